import java.lang.reflect.Method;
import java.time.Duration;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/** Kafka's own client library, 0.11 and newer: the transactions of clients/README.md. */
public class JavaTransactions {
    static String bootstrap, in, out, group;

    static void emit(Object... fields) {
        System.out.println(Arrays.stream(fields).map(String::valueOf).collect(Collectors.joining("\t")));
        System.out.flush();
    }

    static Map<String, Object> config(Object... pairs) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) config.put((String) pairs[i], pairs[i + 1]);
        return config;
    }

    static KafkaProducer<String, String> producer() {
        KafkaProducer<String, String> producer = new KafkaProducer<>(
            config("transactional.id", "id-" + group, "transaction.timeout.ms", 60000, "linger.ms", 5),
            new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    static KafkaConsumer<String, String> consumer(String groupId) {
        return new KafkaConsumer<>(
            config("group.id", groupId, "isolation.level", "read_committed", "auto.offset.reset", "earliest", "enable.auto.commit", false),
            new StringDeserializer(), new StringDeserializer());
    }

    /** poll(long) went in 4.0, poll(Duration) came in 2.0. */
    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        try {
            Method poll = KafkaConsumer.class.getMethod("poll", Duration.class);
            return cast(poll.invoke(consumer, Duration.ofMillis(100)));
        } catch (NoSuchMethodException old) {
            return cast(KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 100L));
        }
    }

    @SuppressWarnings("unchecked")
    static ConsumerRecords<String, String> cast(Object records) {
        return (ConsumerRecords<String, String>) records;
    }

    /** With the member and generation of the group (KIP-447) where the library has them. */
    static void sendOffsets(KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer, Map<TopicPartition, OffsetAndMetadata> offsets) throws Exception {
        try {
            Object metadata = KafkaConsumer.class.getMethod("groupMetadata").invoke(consumer);
            Class<?> type = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, type).invoke(producer, offsets, metadata);
        } catch (NoSuchMethodException old) {
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class).invoke(producer, offsets, group);
        }
    }

    static void produce(KafkaProducer<String, String> producer, String phase, int count, boolean commit) {
        producer.beginTransaction();
        for (int i = 0; i < count; i++) producer.send(new ProducerRecord<>(in, i % 2, phase + "-" + i, "value"));
        producer.flush();
        if (commit) producer.commitTransaction(); else producer.abortTransaction();
    }

    static void transform(KafkaProducer<String, String> producer, int wanted) throws Exception {
        KafkaConsumer<String, String> consumer = consumer(group);
        consumer.subscribe(Collections.singletonList(in));
        boolean aborted = false;
        int done = 0;
        while (done < wanted) {
            ConsumerRecords<String, String> records = poll(consumer);
            if (records.isEmpty()) continue;
            Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>(), before = new HashMap<>();
            producer.beginTransaction();
            for (ConsumerRecord<String, String> record : records) {
                TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                before.putIfAbsent(partition, new OffsetAndMetadata(record.offset()));
                next.put(partition, new OffsetAndMetadata(record.offset() + 1));
                producer.send(new ProducerRecord<>(out, record.partition(), "out-" + record.key(), record.value()));
            }
            sendOffsets(producer, consumer, next);
            if (!aborted) {
                producer.abortTransaction();
                before.forEach((partition, offset) -> consumer.seek(partition, offset.offset()));
                aborted = true;
                continue;
            }
            producer.commitTransaction();
            done += records.count();
        }
        consumer.close();
    }

    static void read(String topic, int wanted) throws Exception {
        KafkaConsumer<String, String> consumer = consumer("reader-" + group);
        consumer.assign(Arrays.asList(new TopicPartition(topic, 0), new TopicPartition(topic, 1)));
        consumer.seekToBeginning(consumer.assignment());
        int seen = 0;
        while (seen < wanted) {
            for (ConsumerRecord<String, String> record : poll(consumer)) {
                emit("read", topic, record.partition(), record.offset(), record.key());
                seen++;
            }
        }
        consumer.close();
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        in = arguments[1];
        out = arguments[2];
        group = arguments[3];
        KafkaProducer<String, String> producer = producer();
        produce(producer, "first", 20, true);
        produce(producer, "aborted", 20, false);
        produce(producer, "second", 10, true);
        read(in, 30);
        transform(producer, 30);
        read(out, 30);
        KafkaProducer<String, String> rival = producer();
        try {
            produce(producer, "fenced", 2, true);
        } catch (Exception error) {
            // Wrapped by older versions; of another kind in transactions of the second generation.
            boolean isFenced = Stream.of(error, error.getCause()).filter(Objects::nonNull)
                .anyMatch(e -> e.getClass().getSimpleName().matches("InvalidProducerEpochException|ProducerFencedException"));
            if (!isFenced) throw error;
            emit("fenced");
        }
        produce(rival, "last", 4, true);
        rival.close();
        emit("done");
        System.exit(0);
    }
}
