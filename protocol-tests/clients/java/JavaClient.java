import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Future;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

/** Kafka's own client library, 2.4 and newer: the walk of clients/README.md. */
public class JavaClient {
    static final int PARTITIONS = 4, COUNT = 40;
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    static String bootstrap, topic, group;

    static synchronized void emit(Object... fields) {
        System.out.println(Arrays.stream(fields).map(String::valueOf).collect(Collectors.joining("\t")));
        System.out.flush();
    }

    static Producer<String, String> producer(String codec) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "enable.idempotence", true, "compression.type", codec, "linger.ms", 20);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static void produce(Producer<String, String> producer, String phase) throws Exception {
        Map<String, Future<RecordMetadata>> sent = new LinkedHashMap<>();
        for (int i = 0; i < COUNT; i++) {
            String key = phase + "-" + i;
            ProducerRecord<String, String> record = new ProducerRecord<>(topic, i % PARTITIONS, key, key + ":" + "0123456789".repeat(20));
            record.headers().add("phase", phase.getBytes()).add("number", String.valueOf(i).getBytes());
            sent.put(key, producer.send(record));
        }
        for (Map.Entry<String, Future<RecordMetadata>> entry : sent.entrySet()) {
            RecordMetadata stored = entry.getValue().get();
            emit("produced", entry.getKey(), stored.partition(), stored.offset());
        }
    }

    /** One consumer; a group member once it subscribes. */
    static class Reader implements ConsumerRebalanceListener, AutoCloseable {
        final String name;
        final Consumer<String, String> consumer;
        final Set<Integer> owned = new TreeSet<>();

        Reader(String name) {
            this.name = name;
            Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "group.id", group, "client.id", name,
                "auto.offset.reset", "earliest", "enable.auto.commit", false, "heartbeat.interval.ms", 200);
            consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        }

        Reader subscribe() {
            consumer.subscribe(List.of(topic), this);
            return this;
        }

        void tell() {
            emit("assigned", name, owned.stream().map(String::valueOf).collect(Collectors.joining(",")));
        }

        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(p -> owned.add(p.partition()));
            tell();
        }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(p -> owned.remove(p.partition()));
            tell();
        }

        void poll(Set<String> seen) {
            for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(50))) {
                String headers = StreamSupport.stream(r.headers().spliterator(), false)
                    .map(h -> h.key() + "=" + new String(h.value(), StandardCharsets.UTF_8)).collect(Collectors.joining(","));
                emit("read", name, r.partition(), r.offset(), r.key(), r.value(), headers);
                seen.add(r.key());
            }
        }

        public void close() {
            consumer.close();
        }
    }

    static boolean has(Set<String> seen, String... phases) {
        return Arrays.stream(phases).allMatch(phase -> IntStream.range(0, COUNT).allMatch(i -> seen.contains(phase + "-" + i)));
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        group = arguments[2];
        List<TopicPartition> all = IntStream.range(0, PARTITIONS).mapToObj(p -> new TopicPartition(topic, p)).collect(Collectors.toList());
        Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        for (String codec : CODECS) {
            try (Producer<String, String> producer = producer(codec)) {
                produce(producer, codec);
            }
        }
        Set<String> seen = new HashSet<>();
        try (Reader byHand = new Reader("assignment")) {
            byHand.consumer.assign(all);
            byHand.consumer.seekToBeginning(all);
            while (!has(seen, CODECS)) byHand.poll(seen);
        }

        Producer<String, String> producer = producer("none");
        seen.clear();
        Reader b = new Reader("b");
        try (Reader a = new Reader("a").subscribe()) {
            b.subscribe();
            while (!(has(seen, CODECS) && a.owned.size() == 2 && b.owned.size() == 2)) {
                a.poll(seen);
                b.poll(seen);
            }
            produce(producer, "together");
            while (!has(seen, "together")) {
                a.poll(seen);
                b.poll(seen);
            }
            b.consumer.commitSync();
            a.consumer.commitSync();
        }
        while (b.owned.size() != PARTITIONS) b.poll(seen);
        produce(producer, "alone");
        while (!has(seen, "alone")) b.poll(seen);
        b.consumer.commitSync();
        b.consumer.committed(new HashSet<>(all)).forEach((p, offset) -> emit("committed", p.partition(), offset.offset()));

        emit("restart");
        if (System.in.read() < 0) throw new IllegalStateException("stdin ended instead of telling of the restart");
        produce(producer, "after");
        while (!has(seen, "after")) b.poll(seen);
        b.consumer.commitSync();
        b.close();
        producer.close();
        admin.deleteConsumerGroups(List.of(group)).all().get();
        admin.deleteTopics(List.of(topic)).all().get();
        while (admin.listTopics().names().get().contains(topic));
        admin.close();
        emit("done");
    }
}
