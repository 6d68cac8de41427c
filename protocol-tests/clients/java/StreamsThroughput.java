import java.time.Duration;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

/**
 * How fast a Kafka Streams application counts records by key, with its counts and its changelog in the broker.
 *
 * <p>Arguments: BOOTSTRAP STATE_DIR GUARANTEE COUNT IN OUT. The topics exist and have the same number of partitions. Prints
 * records a second from the start of the application's first look at its input, all of which is there, until a read_committed
 * reader has every count; "warm" is a second application over the same input in the same JVM.
 */
public class StreamsThroughput {
    static final int KEYS = 1_000, VALUE_BYTES = 100;

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], stateDir = args[1], guarantee = args[2], in = args[4], out = args[5];
        int count = Integer.parseInt(args[3]);
        feed(bootstrap, in, count);
        System.out.println("cold\t" + run(bootstrap, stateDir, guarantee, count, in, out, "cold"));
        System.out.println("warm\t" + run(bootstrap, stateDir, guarantee, count, in, out, "warm"));
        System.exit(0);
    }

    static void feed(String bootstrap, String topic, int count) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "acks", "all", "linger.ms", 5);
        byte[] value = new byte[VALUE_BYTES];
        try (Producer<String, byte[]> producer = new KafkaProducer<>(config, new StringSerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < count; i++) producer.send(new ProducerRecord<>(topic, "key-" + i % KEYS, value));
        }
    }

    static double run(String bootstrap, String stateDir, String guarantee, int count, String in, String out, String name)
            throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(in, Consumed.with(Serdes.String(), Serdes.ByteArray()))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()))
            .count(Materialized.with(Serdes.String(), Serdes.Long()))
            .toStream()
            .to(out, Produced.with(Serdes.String(), Serdes.Long()));
        Properties config = new Properties();
        config.put("application.id", "streams-throughput-" + name);
        config.put("bootstrap.servers", bootstrap);
        config.put("state.dir", stateDir);
        config.put("processing.guarantee", guarantee);
        config.put("replication.factor", 1);
        config.put("statestore.cache.max.bytes", 0);
        config.put("main.consumer.auto.offset.reset", "earliest");
        CountDownLatch running = new CountDownLatch(1);
        Map<String, Object> reading = Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed");
        try (KafkaStreams streams = new KafkaStreams(builder.build(), config);
                Consumer<String, Long> consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new LongDeserializer())) {
            streams.setStateListener((now, before) -> {
                if (now == KafkaStreams.State.RUNNING) running.countDown();
            });
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(out).forEach(p -> partitions.add(new TopicPartition(out, p.partition())));
            consumer.assign(partitions);
            consumer.seekToEnd(partitions);
            partitions.forEach(consumer::position);
            streams.start();
            running.await();
            long started = System.nanoTime();
            for (int seen = 0; seen < count; ) seen += consumer.poll(Duration.ofSeconds(1)).count();
            return count / ((System.nanoTime() - started) / 1e9);
        }
    }
}
