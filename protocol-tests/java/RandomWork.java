// RandomWork BOOTSTRAP SEED FORMATS ROUNDS   writes at random, as drawn from the seed: every codec, keys, nulls, headers,
// transactions that commit, abort or stay open for a while, deleted records, committed offsets. FORMATS: message formats
// of topics, by commas, for brokers whose protocol still has them; "-" = none.
import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class RandomWork {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static Random random;
    static String bootstrap;

    static KafkaProducer<byte[], byte[]> producer(String codec, String transactionalId, boolean idempotent) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("compression.type", codec);
        p.put("linger.ms", random.nextBoolean() ? "0" : "5");
        p.put("batch.size", "" + (100 + random.nextInt(4000)));
        p.put("enable.idempotence", "" + idempotent);
        p.put("acks", "all");
        if (transactionalId != null) p.put("transactional.id", transactionalId);
        return new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static byte[] text(String name, int length) {
        StringBuilder text = new StringBuilder(name + " " + random.nextInt(1_000_000) + " ");
        while (text.length() < length) text.append((char) ('a' + random.nextInt(26)));
        return text.toString().getBytes();
    }

    /** Records of a few keys; compacted topics get tombstones, others null keys. */
    static void send(Producer<byte[], byte[]> producer, String topic, int partitions, int count, boolean headers) {
        boolean compacted = topic.startsWith("compacted");
        for (int i = 0; i < count; i++) {
            byte[] key = compacted || random.nextInt(3) > 0 ? ("key-" + random.nextInt(40)).getBytes() : null;
            byte[] value = key != null && random.nextInt(8) == 0 ? null : text(topic, random.nextInt(300));
            long timestamp = 1_700_000_000_000L + random.nextInt(1_000_000);
            var record = new ProducerRecord<>(topic, random.nextInt(partitions), timestamp, key, value);
            for (int h = headers ? random.nextInt(3) : 0; h > 0; h--) record.headers().add("h", h == 1 ? null : text("header", 5));
            producer.send(record);
        }
    }

    static void create(Admin admin, String name, int partitions, Map<String, String> configs) throws Exception {
        Map<String, String> all = new HashMap<>(configs);
        all.put("segment.bytes", "20000");
        all.put("segment.index.bytes", "4096");
        all.put("index.interval.bytes", "512");
        try {
            admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(all))).all().get();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof InvalidConfigurationException && all.remove("segment.bytes") != null) {
                // Kafka 4 takes no segments below 1 MiB.
                all.put("segment.bytes", "1048576");
                admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(all))).all().get();
            } else if (!(e.getCause() instanceof TopicExistsException)) {
                throw e;
            }
        }
    }

    /** Exceptions of Kafka have no stack, which the launcher of source files cannot print. */
    public static void main(String[] args) {
        try {
            work(args);
        } catch (Throwable e) {
            System.err.println(e + (e.getCause() == null ? "" : ", caused by " + e.getCause()));
            System.exit(1);
        }
    }

    static void work(String[] args) throws Exception {
        bootstrap = args[0];
        random = new Random(Long.parseLong(args[1]));
        int rounds = Integer.parseInt(args[3]);
        List<String> old = args[2].equals("-") ? List.of() : List.of(args[2].split(","));
        List<String> plain = new ArrayList<>();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (String codec : CODECS) {
                plain.add("plain-" + codec);
                create(admin, "plain-" + codec, 2, Map.of());
            }
            for (String format : old) create(admin, "format-" + format, 1, Map.of("message.format.version", format));
            Map<String, String> compact = Map.of("cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.01");
            for (String codec : CODECS) create(admin, "compacted-" + codec, 1, compact);
            create(admin, "transactional", 2, Map.of());
            create(admin, "shrinking", 2, Map.of());
            for (int round = 0; round < rounds; round++) {
                for (String codec : CODECS) {
                    try (var producer = producer(codec, null, random.nextBoolean())) {
                        send(producer, "plain-" + codec, 2, 20 + random.nextInt(60), true);
                        send(producer, "compacted-" + codec, 1, 40 + random.nextInt(80), true);
                        send(producer, "shrinking", 2, random.nextInt(40), true);
                    }
                }
                for (String format : old) {
                    for (String codec : List.of("none", "gzip", "snappy", "lz4")) {
                        try (var producer = producer(codec, null, false)) {
                            send(producer, "format-" + format, 1, 10 + random.nextInt(30), false);
                        }
                    }
                }
                transactions(round);
                shrink(admin);
            }
        }
    }

    /** Two at a time, so that ends and data of both are mixed. */
    static void transactions(int round) throws Exception {
        String codec = CODECS.get(random.nextInt(CODECS.size()));
        try (var one = producer(codec, "work-one", true); var other = producer("none", "work-other", true)) {
            one.initTransactions();
            other.initTransactions();
            for (int i = 0; i < 4; i++) {
                one.beginTransaction();
                other.beginTransaction();
                send(one, "transactional", 2, 1 + random.nextInt(10), true);
                send(other, "transactional", 2, 1 + random.nextInt(10), true);
                send(other, "compacted-none", 1, 1 + random.nextInt(5), true);
                one.flush();
                other.flush();
                var offset = new OffsetAndMetadata(random.nextInt(5), "round " + round);
                one.sendOffsetsToTransaction(
                    Map.of(new TopicPartition("plain-none", 0), offset), new ConsumerGroupMetadata("work-group"));
                if (random.nextBoolean()) one.commitTransaction(); else one.abortTransaction();
                send(other, "transactional", 2, 1, true);
                if (random.nextInt(3) > 0) other.commitTransaction(); else other.abortTransaction();
            }
        }
    }

    static void shrink(Admin admin) throws Exception {
        TopicPartition partition = new TopicPartition("shrinking", random.nextInt(2));
        var offsets = Map.of(partition, OffsetSpec.latest());
        long end = admin.listOffsets(offsets).partitionResult(partition).get().offset();
        var earliest = admin.listOffsets(Map.of(partition, OffsetSpec.earliest()));
        long start = earliest.partitionResult(partition).get().offset();
        long before = start + (long) ((end - start) * random.nextDouble());
        admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(before))).all().get();
    }
}
