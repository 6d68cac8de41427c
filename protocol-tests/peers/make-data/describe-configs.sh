#!/usr/bin/env bash
# describe-configs.sh WORKDIR   make src/config/testdata/*.tsv anew: what real brokers answer to DescribeConfigs
# describe-configs.sh BOOTSTRAP broker|topic [NAME]   print the same of any broker, to compare
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); peers=$(dirname "$here"); out=$(cd "$peers/../../src/config/testdata" && pwd)
cache=${KAFKA_PEERS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kafka-peers}
zkp=${ZK_PORT:-12381} kp=${KAFKA_PORT:-19392}
describe() { java -Xmx256m -cp "$cache/4.3.1/lib/*" "$here/DescribeConfigs.java" "$@" 2>/dev/null; }
case ${1:-} in *:*) describe "$@"; exit ;; '') sed -n '2,3s/^# //p' "$0" >&2; exit 2 ;; esac
rm -rf "$1/configs"; mkdir -p "$1/configs"; w=$(cd "$1/configs" && pwd)
trap '"$peers/kafka-server" stop --dir "$w/k3" || true; "$peers/kafka-server" stop --dir "$w/k4" || true; "$peers/zookeeper" stop --dir "$w/zk" || true' EXIT
write() { # FILE VERSION ARGS...: one place and port whatever the machine
  { echo "# What DescribeConfigs of Kafka $2 answers: name, value, source, read-only, sensitive, type, synonyms, documented."
    describe "${@:3}" | sed "s#$w/k[34]/data#/data#g; s#127.0.0.1:$zkp#zookeeper:2181#g; s#127.0.0.1:$kp#127.0.0.1:9092#g; s#127.0.0.1:$((kp + 10000))#127.0.0.1:9093#g"; } >"$out/$1"
}
"$peers/zookeeper" start --port "$zkp" --dir "$w/zk"
"$peers/kafka-server" start 3.9.2 --port "$kp" --dir "$w/k3" --zk "127.0.0.1:$zkp"
"$peers/kafka-tool" 3.9.2 kafka-topics --bootstrap-server "127.0.0.1:$kp" --create --topic t
write broker-3.9.2.tsv 3.9.2 "127.0.0.1:$kp" broker 1
write topic-3.9.2.tsv 3.9.2 "127.0.0.1:$kp" topic t
"$peers/kafka-server" stop --dir "$w/k3"
"$peers/kafka-server" start 4.3.1 --port "$kp" --dir "$w/k4"
write broker-4.3.1.tsv 4.3.1 "127.0.0.1:$kp" broker 1
