"""Barnabas and Apache Kafka 3.9.2 as the bench scripts beside this file start them, and what fills and asks them."""
import contextlib
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
PEERS = ROOT + "/protocol-tests/peers"
TARGET = os.environ.get("CARGO_TARGET_DIR", ROOT + "/target")
CACHE = os.environ.get("KAFKA_PEERS_CACHE", os.path.expanduser("~/.cache/kafka-peers"))
START_MAX_S = 600
FILL = """
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** BOOTSTRAP TOPIC PARTITIONS RECORDS VALUE_BYTES KEYS BATCH_BYTES CODEC [CONFIG=VALUE ...]: RECORDS to each partition, with
 * that many different keys drawn from a fixed seed; 0 = none. The topic is created where it is missing. */
public class Fill {
    /** So many partitions are asked for at once: a broker answers when all of them have leaders. */
    static final int PARTITIONS_AT_ONCE = 1000;

    public static void main(String[] a) throws Exception {
        int partitions = Integer.parseInt(a[2]), keys = Integer.parseInt(a[5]);
        long records = Long.parseLong(a[3]);
        Random random = new Random(7);
        byte[] value = new byte[Integer.parseInt(a[4])];
        random.nextBytes(value);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", a[0], "request.timeout.ms", "600000", "default.api.timeout.ms", "600000"))) {
            if (!admin.listTopics().names().get().contains(a[1])) {
                Map<String, String> configs = new HashMap<>();
                for (String config : Arrays.asList(a).subList(8, a.length)) configs.put(config.split("=")[0], config.split("=")[1]);
                int there = Math.min(partitions, PARTITIONS_AT_ONCE);
                admin.createTopics(List.of(new NewTopic(a[1], there, (short) 1).configs(configs))).all().get();
                while (there < partitions) {
                    there = Math.min(partitions, there + PARTITIONS_AT_ONCE);
                    admin.createPartitions(Map.of(a[1], NewPartitions.increaseTo(there))).all().get();
                }
            }
        }
        Properties p = new Properties();
        p.put("bootstrap.servers", a[0]);
        p.put("batch.size", a[6]);
        p.put("compression.type", a[7]);
        p.put("linger.ms", "20");
        p.put("acks", "all");
        p.put("buffer.memory", "268435456");
        p.put("max.block.ms", "600000");
        p.put("delivery.timeout.ms", "900000");
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<byte[], byte[]>(p, bytes, bytes)) {
            for (long i = 0; i < records; i++) {
                for (int partition = 0; partition < partitions; partition++) {
                    byte[] key = keys == 0 ? null : String.format("key-%09d", random.nextInt(keys)).getBytes();
                    producer.send(new ProducerRecord<>(a[1], partition, key, value), (metadata, failure) -> {
                        if (failure == null) return;
                        failure.printStackTrace();
                        Runtime.getRuntime().halt(1);
                    });
                }
            }
        }
    }
}
"""


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(*command):
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)


class Barnabas:
    name = "barnabas"

    def __init__(self, folder, port):
        self.folder, self.port, self.process = folder, port, None
        self.data = folder + "/data"

    def start(self, settings, waits=True):
        lines = {
            "broker.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:%d" % self.port,
            "log.dirs": self.data,
            "offsets.topic.replication.factor": "1",
            **settings,
        }
        path = self.folder + "/server.properties"
        with open(path, "w") as file:
            file.writelines("%s=%s\n" % item for item in lines.items())
        with open(self.folder + "/log", "a") as log:
            command = [TARGET + "/release/barnabas", "serve", path]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        while waits and not self.process.stdout.readline().startswith("barnabas ready"):
            if self.process.poll() is not None:
                sys.exit("barnabas did not start:\n" + self.log())
        return self.process.pid

    def log(self):
        with open(self.folder + "/log") as file:
            return "".join(file.readlines()[-20:])

    def lives(self):
        return self.process.poll() is None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait():
            sys.exit("barnabas did not stop well:\n" + self.log())

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        if self.process and self.lives():
            self.kill()


class Kafka:
    name = "kafka"

    def __init__(self, folder, port):
        self.folder, self.port = folder, port
        self.data, self.zookeeper = folder + "/data", folder + "/zookeeper"
        run(PEERS + "/zookeeper", "start", "--port", port + 1, "--dir", self.zookeeper)

    def start(self, settings, waits=True):
        # A short session: a start after a kill must not wait for ZooKeeper to forget the one before.
        settings = {"zookeeper.session.timeout.ms": "6000", **settings}
        overrides = [part for item in settings.items() for part in ("--override", "%s=%s" % item)]
        server = [PEERS + "/kafka-server", "start", "3.9.2", "--port", self.port, "--dir", self.folder]
        run(*server, "--zk", "127.0.0.1:%d" % (self.port + 1), *overrides, *([] if waits else ["--no-wait"]))
        return self.pid()

    def pid(self):
        with open(self.folder + "/kafka.pid") as file:
            return int(file.read().split()[0])

    def log(self):
        with open(self.folder + "/logs/server.log") as file:
            return "".join(file.readlines()[-20:])

    def lives(self):
        try:
            with open("/proc/%d/stat" % self.pid()) as file:
                return file.read().rsplit(") ", 1)[1][0] != "Z"
        except FileNotFoundError:
            return False

    def stop(self):
        run(PEERS + "/kafka-server", "stop", "--dir", self.folder)

    def kill(self):
        os.kill(self.pid(), signal.SIGKILL)
        while self.lives():
            time.sleep(0.01)
        os.remove(self.folder + "/kafka.pid")
        # The next start finds the session gone.
        time.sleep(8)

    def close(self):
        for script, folder in (("kafka-server", self.folder), ("zookeeper", self.zookeeper)):
            command = [PEERS + "/" + script, "stop", "--dir", folder]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wanted(only):
    """The servers that --only names, ours first."""
    return [make for make in (Barnabas, Kafka) if make.name in only.split(",")]


@contextlib.contextmanager
def prepared(make, port):
    """A server with a folder of its own, not started yet; nothing of it is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        server = make(folder, port)
        try:
            yield server
        finally:
            server.close()


def fill(server, topic, partitions, records, value_bytes, keys=0, batch_bytes=65_536, codec="none", **configs):
    source = server.folder + "/Fill.java"
    with open(source, "w") as file:
        file.write(FILL)
    logging = ["-Dlog4j.configuration=file:%s/conf/tools-log4j.properties" % PEERS, "-Dpeer.level=ERROR"]
    configs = ["%s=%s" % (name.replace("_", "."), value) for name, value in configs.items()]
    run("java", "-Xmx1g", *logging, "-cp", CACHE + "/3.9.2/lib/*", source, "127.0.0.1:%d" % server.port, topic,
        partitions, records, value_bytes, keys, batch_bytes, codec, *configs)


class Client:
    """As much of Kafka's protocol as is asked of a broker here."""

    def __init__(self, server):
        self.server, self.socket = server, None

    def call(self, key, version, body):
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.server.port), timeout=START_MAX_S)
        header = struct.pack(">hhih", key, version, 1, 4) + b"test"
        self.socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", self.read(4))
        return memoryview(self.read(size))[4:]

    def read(self, size):
        into = bytearray(size)
        left = memoryview(into)
        while left:
            count = self.socket.recv_into(left)
            if not count:
                raise ConnectionError("closed")
            left = left[count:]
        return into

    def fetch(self, version, topic, offsets, max_bytes):
        """Fetch 0 to 4 from these offsets by partition: (partition, error, records) of each."""
        limits = struct.pack(">iii", -1, 0, 0) + (struct.pack(">ib", 1 << 30, 0) if version >= 4 else b"")
        entries = [struct.pack(">iqi", partition, offset, max_bytes) for partition, offset in offsets.items()]
        at = self.call(1, version, limits + in_topic(topic, entries))
        position = (4 if version >= 1 else 0) + 4 + 2 + len(topic) + 4
        for _ in offsets:
            partition, error, _ = struct.unpack_from(">ihq", at, position)
            position += 14
            if version >= 4:
                _, aborted = struct.unpack_from(">qi", at, position)
                position += 12 + max(aborted, 0) * 16
            (size,) = struct.unpack_from(">i", at, position)
            position += 4
            yield partition, error, at[position:position + max(size, 0)]
            position += max(size, 0)

    def ends(self, topic, partitions):
        """ListOffsets 1: error and end offset by partition."""
        entries = [struct.pack(">iq", partition, -1) for partition in range(partitions)]
        at = self.call(2, 1, struct.pack(">i", -1) + in_topic(topic, entries))
        position = 4 + 2 + len(topic) + 4
        found = (struct.unpack_from(">ihqq", at, position + 22 * index) for index in range(partitions))
        return {partition: (error, end) for partition, error, _, end in found}

    def until(self, ask):
        limit = time.monotonic() + START_MAX_S
        while time.monotonic() < limit:
            asked_at = time.monotonic()
            try:
                if ask():
                    return
            except OSError:
                self.socket = None
                if not self.server.lives():
                    sys.exit("%s has ended:\n%s" % (self.server.name, self.server.log()))
            # A question about thousands of partitions is work: the server has at least as long for its own.
            time.sleep(max(0.005, time.monotonic() - asked_at))
        sys.exit("%s did not get ready" % self.server.name)


def in_topic(topic, entries):
    name = topic.encode()
    return struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", len(entries)) + b"".join(entries)


def cpu_seconds(pid):
    """CPU seconds of the process, to the nanosecond, its ended threads included."""
    return time.clock_gettime((~pid << 3) | 2)


def age_seconds(pid):
    """Since the process was started."""
    with open("/proc/%d/stat" % pid) as file:
        ticks = int(file.read().rsplit(") ", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def peak_mib(pid):
    with open("/proc/%d/status" % pid) as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))


def forget_peak(pid):
    """Of memory, so that the next one is of what follows."""
    with open("/proc/%d/clear_refs" % pid, "w") as file:
        file.write("5")


def allow(open_files, memory_maps):
    """As many as a server with many segments needs, where that is allowed (a JVM maps two files of each): how many files it
    may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in ((open_files, open_files), (hard, hard)):
        try:
            if soft < open_files:
                resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            break
        except ValueError:
            continue
    maps = "/proc/sys/vm/max_map_count"
    with open(maps) as file:
        has_maps = int(file.read()) >= memory_maps
    if not has_maps:
        try:
            with open(maps, "w") as file:
                file.write(str(memory_maps))
        except OSError as refused:
            sys.exit("a JVM needs %d memory maps (vm.max_map_count): %s" % (memory_maps, refused))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def table(columns, rows):
    """Markdown: a row is what its first columns say and figures with their formats."""
    print("| %s |\n|%s" % (" | ".join(columns), "---|" * len(columns)))
    for row in rows:
        print("| %s |" % " | ".join(row))
