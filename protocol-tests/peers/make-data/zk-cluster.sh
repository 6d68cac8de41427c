#!/usr/bin/env bash
# zk-cluster.sh kafka|barnabas WORKDIR [PORT]: three brokers on one ZooKeeper go through a script of failures and moves;
# prints the part of the tree that the controller writes after each step. Takes about two minutes, most of it waiting.
# barnabas needs BARNABAS_BIN. PORT (28100): ZooKeeper; the brokers take the next three.
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); peers=$here/..
kind=$1; work=$2; zk=${3:-28100}
mkdir -p "$work"
settings=(auto.leader.rebalance.enable=false offsets.topic.num.partitions=1 zookeeper.session.timeout.ms=6000
  default.replication.factor=1 controlled.shutdown.retry.backoff.ms=500 replica.lag.time.max.ms=10000)

start() { # ID
  local port=$((zk + $1)) dir=$work/$1
  if [ "$kind" = kafka ]; then
    local overrides=() setting
    for setting in "${settings[@]}"; do overrides+=(--override "$setting"); done
    KAFKA_HEAP=256m "$peers/kafka-server" start 3.9.2 --port $port --dir "$dir" --zk 127.0.0.1:$zk --id "$1" \
      "${overrides[@]}" >/dev/null
  else
    mkdir -p "$dir"
    { echo "broker.id=$1"; echo "zookeeper.connect=127.0.0.1:$zk"; echo "listeners=PLAINTEXT://127.0.0.1:$port"
      echo "log.dirs=$dir/data"; printf '%s\n' "${settings[@]}"; } >"$dir/server.properties"
    "$BARNABAS_BIN" serve "$dir/server.properties" >"$dir/stdout" 2>>"$dir/stderr" & echo $! >"$dir/pid"
    until grep -q '^barnabas ready' "$dir/stdout"; do sleep 0.1; done
  fi
}
pid() { if [ "$kind" = kafka ]; then "$peers/kafka-server" pid --dir "$work/$1"; else cat "$work/$1/pid"; fi; }
kill_() { kill -9 "$(pid "$1")"; rm -f "$work/$1/kafka.pid"; }
stop() { local p; p=$(pid "$1"); kill -TERM "$p"; while kill -0 "$p" 2>/dev/null; do sleep 0.2; done; rm -f "$work/$1/kafka.pid"; }
tree() { python3 "$here/zk_tree.py" 127.0.0.1:$zk "$@"; }
tool() { "$peers/kafka-tool" 3.9.2 "$@"; }
until_() { local i; for i in $(seq 150); do if eval "$1"; then return 0; fi; sleep 0.4; done; echo "never: $1" >&2; tree >&2; exit 1; }
isr() { tree "/brokers/topics/$1/partitions/$2/state" | grep -o '"isr":\[[^]]*\]' | tr -d '"isr:[]' ; }
size() { isr "$1" "$2" | tr , '\n' | grep -c .; }
gone() { [ -z "$(tree "/brokers/ids/$1")" ]; }
show() { echo "== $1"; tree /brokers/topics /admin /controller_epoch | grep -v '^/brokers/topics	'; }
cleanup() {
  for id in 1 2 3; do if p=$(pid $id 2>/dev/null); then kill -9 "$p" 2>/dev/null; fi; done
  "$peers/zookeeper" stop --dir "$work/zk" >/dev/null
}
trap cleanup EXIT
b1=127.0.0.1:$((zk + 1)) b3=127.0.0.1:$((zk + 3))
topics() { tool kafka-topics --bootstrap-server "$@" >/dev/null; }
reassign() { # BOOTSTRAP JSON
  echo "$2" >"$work/moves.json"
  tool kafka-reassign-partitions --bootstrap-server "$1" --reassignment-json-file "$work/moves.json" --execute >/dev/null
}
move() { echo "{\"topic\":\"$1\",\"partition\":$2,\"replicas\":[$3]}"; }
moves() { local IFS=,; echo "{\"version\":1,\"partitions\":[$*]}"; }

"$peers/zookeeper" start --port $zk --dir "$work/zk" >/dev/null
start 1; start 2; start 3
topics $b1 --create --topic a --replica-assignment 1:2:3
topics $b1 --create --topic b --replica-assignment 2:1,3:2
topics $b1 --create --topic c --replica-assignment 1
topics $b1 --create --topic d --replica-assignment 2:3
topics $b1 --create --topic e --replica-assignment 3
until_ '[ "$(size a 0)" = 3 ]'; show "three brokers, five topics"
kill_ 3; until_ 'gone 3'; until_ '! tree /brokers/topics/e/partitions/0/state | grep -q "\"leader\":3"'; sleep 1; show "3 is killed"
start 3; until_ '[ "$(size a 0)" = 3 ] && [ "$(size b 1)" = 2 ] && [ "$(size d 0)" = 2 ]'; show "3 is back"
tool kafka-leader-election --bootstrap-server $b1 --election-type preferred --all-topic-partitions >/dev/null
sleep 1; show "preferred leaders"
reassign $b1 "$(moves "$(move b 0 3,2)")"
until_ '[ "$(isr b 0 | tr , "\n" | sort | tr "\n" ,)" = 2,3, ]'; sleep 1; show "b-0 moves from 2,1 to 3,2"
reassign $b1 "$(moves "$(move c 0 2)")"; until_ '[ "$(isr c 0)" = 2 ]'
reassign $b1 "$(moves "$(move a 0 3,1)")"; until_ '[ "$(size a 0)" = 2 ]'
reassign $b1 "$(moves "$(move d 0 3,2)")"; sleep 2; show "c-0 moves, a-0 shrinks, d-0 turns round"
tree --create /admin/reassign_partitions "$(moves "$(move e 0 1)")"
until_ '[ -z "$(tree /admin/reassign_partitions)" ]'; sleep 1; show "e-0 moves through the tree"
tree --create /admin/preferred_replica_election '{"version":1,"partitions":[{"topic":"d","partition":0}]}'
until_ '[ -z "$(tree /admin/preferred_replica_election)" ]'; sleep 1; show "an election through the tree"
stop 2; until_ 'gone 2'; sleep 1; show "2 is stopped"
topics $b1 --alter --topic a --partitions 3 --replica-assignment 3:1,1:3,3:1
until_ '[ "$(size a 1)" = 2 ]'; show "a grows"
topics $b1 --delete --topic b; topics $b1 --delete --topic e
until_ '[ -z "$(tree /brokers/topics/e)" ]'; sleep 2; show "b is deleted while 2 is away, e at once"
start 2; until_ '[ -z "$(tree /brokers/topics/b)" ]'; until_ '[ "$(size d 0)" = 2 ]'; show "2 is back"
kill_ 1; until_ 'gone 1'; sleep 2; show "1, the controller, is killed"
