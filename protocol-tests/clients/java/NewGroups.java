import java.time.Duration;
import java.util.*;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;

/**
 * One group of each protocol after the classic one: consumer (with a pattern), share, and streams, of Kafka 4.2 or later.
 *
 * <p>Arguments: BOOTSTRAP STATE_DIR. Creates the topics "t" and "out". Ends when each group has read twenty records and stored
 * that it has.
 */
public class NewGroups {
    static final int COUNT = 20;

    public static void main(String[] args) throws Exception {
        Map<String, Object> bootstrap = Map.of("bootstrap.servers", args[0]);
        try (Admin admin = Admin.create(bootstrap)) {
            admin.createTopics(List.of(new NewTopic("t", 2, (short) 1), new NewTopic("out", 1, (short) 1))).all().get();
            ConfigResource share = new ConfigResource(ConfigResource.Type.GROUP, "share");
            AlterConfigOp earliest =
                    new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(share, List.of(earliest))).all().get();
        }
        try (Producer<String, String> producer = new KafkaProducer<>(bootstrap, new StringSerializer(), new StringSerializer())) {
            IntStream.range(0, COUNT).forEach(i -> producer.send(new ProducerRecord<>("t", "k" + i % 3, "v" + i)));
        }
        consume(with(args[0], Map.of("group.id", "pattern", "group.protocol", "consumer", "auto.offset.reset", "earliest")));
        share(with(args[0], Map.of("group.id", "share")));
        stream(with(args[0], Map.of("application.id", "app", "group.protocol", "streams", "state.dir", args[1],
                "commit.interval.ms", 200, "auto.offset.reset", "earliest")));
        System.out.println("done");
    }

    static Properties with(String bootstrap, Map<String, Object> more) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.putAll(more);
        return config;
    }

    static void consume(Properties config) {
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(new SubscriptionPattern("t.*"));
            int[] read = {0};
            await(() -> (read[0] += consumer.poll(Duration.ofMillis(100)).count()) >= COUNT);
            consumer.commitSync();
        }
    }

    static void share(Properties config) {
        try (var consumer = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("t"));
            int[] read = {0};
            await(() -> (read[0] += consumer.poll(Duration.ofMillis(100)).count()) >= COUNT);
            consumer.commitSync();
        }
    }

    static void stream(Properties config) throws Exception {
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("t").selectKey((key, value) -> value).groupByKey().count().toStream()
                .mapValues(String::valueOf).to("out");
        Map<String, Object> reader = Map.of("bootstrap.servers", config.get("bootstrap.servers"), "group.id", "check",
                "auto.offset.reset", "earliest");
        try (KafkaStreams streams = new KafkaStreams(builder.build(), config);
                var counts = new KafkaConsumer<>(reader, new StringDeserializer(), new StringDeserializer())) {
            streams.start();
            counts.subscribe(List.of("out"));
            int[] read = {0};
            await(() -> (read[0] += counts.poll(Duration.ofMillis(100)).count()) >= COUNT);
        }
    }

    static void await(BooleanSupplier isDone) {
        for (long end = System.nanoTime() + 60_000_000_000L; !isDone.getAsBoolean(); )
            if (System.nanoTime() > end) throw new IllegalStateException("nothing comes any more");
    }
}
