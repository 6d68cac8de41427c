import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * A Kafka Streams application with a repartition, a join, a windowed count and an aggregate with a standby; what feeds it;
 * and what knows its result.
 *
 * <p>customers: customer -> region. purchases: purchase -> "customer,amount", a second apart. Results: totals: region -> sum of
 * amounts; counts: "customer@window" -> purchases of the customer in that minute.
 *
 * <p>Arguments: feed BOOTSTRAP FROM TO PAUSE_MS | app BOOTSTRAP STATE_DIR GUARANTEE REPLICAS | check BOOTSTRAP COUNT exact|least
 *
 * <p>app prints "state STATE" for each state, and "died ERROR" when a thread has to be replaced. feed prints "written N" for
 * each purchase that was acknowledged, and "fed"; check prints "counted N" as the counts come to N purchases, and "right".
 */
public class StreamsWalk {
    static final int CUSTOMERS = 20, REGIONS = 4;
    static final long WINDOW_MS = 60_000, EPOCH_MS = 1_700_000_000_000L / WINDOW_MS * WINDOW_MS;

    static String customer(int purchase) {
        return "customer-" + Math.floorMod(purchase * 7919, CUSTOMERS);
    }

    static String region(String customer) {
        return "region-" + Integer.parseInt(customer.substring(9)) % REGIONS;
    }

    static long amount(int purchase) {
        return purchase % 97 + 1;
    }

    static long timestamp(int purchase) {
        return EPOCH_MS + purchase * 1000L;
    }

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "feed" -> feed(args[1], Integer.parseInt(args[2]), Integer.parseInt(args[3]), Long.parseLong(args[4]));
            case "app" -> app(args[1], args[2], args[3], Integer.parseInt(args[4]));
            case "check" -> check(args[1], Integer.parseInt(args[2]), args[3].equals("exact"));
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static void feed(String bootstrap, int from, int to, long pauseMs) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "acks", "all", "linger.ms", 5);
        try (Producer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
            var written = new java.util.concurrent.atomic.AtomicInteger(from);
            if (from == 0) {
                for (int i = 0; i < CUSTOMERS; i++) {
                    String customer = "customer-" + i;
                    sent.add(producer.send(new ProducerRecord<>("customers", null, EPOCH_MS - 1, customer, region(customer))));
                }
                producer.flush();
            }
            for (int i = from; i < to; i++) {
                sent.add(producer.send(new ProducerRecord<>("purchases", null, timestamp(i), "purchase-" + i, customer(i) + "," + amount(i)), (metadata, error) -> {
                    if (error == null) System.out.println("written " + written.incrementAndGet());
                }));
                if (pauseMs > 0) Thread.sleep(pauseMs);
            }
            for (var one : sent) one.get();
        }
        System.out.println("fed");
    }

    static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<String, String> strings = Consumed.with(Serdes.String(), Serdes.String());
        KTable<String, String> customers = builder.table("customers", strings);
        KStream<String, Long> byCustomer = builder.stream("purchases", strings)
            .map((purchase, text) -> KeyValue.pair(text.split(",")[0], Long.parseLong(text.split(",")[1])))
            .repartition(Repartitioned.<String, Long>as("by-customer").withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()).withNumberOfPartitions(4));
        byCustomer.groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(WINDOW_MS), Duration.ofDays(1)))
            .count()
            .toStream((window, count) -> window.key() + "@" + window.window().start())
            .to("counts", Produced.with(Serdes.String(), Serdes.Long()));
        byCustomer.join(customers, (amount, region) -> region + "," + amount, Joined.with(Serdes.String(), Serdes.Long(), Serdes.String()))
            .map((customer, text) -> KeyValue.pair(text.split(",")[0], Long.parseLong(text.split(",")[1])))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
            .reduce(Long::sum, Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("totals-store").withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream().to("totals", Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    static void app(String bootstrap, String stateDir, String guarantee, int replicas) {
        Properties config = new Properties();
        config.put("application.id", "streams-walk");
        config.put("bootstrap.servers", bootstrap);
        config.put("state.dir", stateDir);
        config.put("processing.guarantee", guarantee);
        config.put("num.standby.replicas", 1);
        config.put("replication.factor", replicas);
        config.put("commit.interval.ms", 200);
        config.put("statestore.cache.max.bytes", 0);
        // The purchases are of 2023: where the broker's retention comes by, it deletes what such windows are restored from.
        config.put("windowstore.changelog.additional.retention.ms", Duration.ofDays(36_500).toMillis());
        // A killed instance must not be waited for longer than the test wants to last.
        config.put("main.consumer.session.timeout.ms", 6000);
        config.put("main.consumer.heartbeat.interval.ms", 500);
        config.put("producer.transaction.timeout.ms", 10000);
        config.put("main.consumer.auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(topology(), config);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            System.out.println("died " + error);
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    /** Reads both results until they are as the feed of `count` purchases makes them, or stand still; prints what differs then. */
    static void check(String bootstrap, int count, boolean exact) throws Exception {
        Map<String, Long> wanted = new TreeMap<>();
        for (int i = 0; i < count; i++) {
            wanted.merge(region(customer(i)), amount(i), Long::sum);
            wanted.merge(customer(i) + "@" + timestamp(i) / WINDOW_MS * WINDOW_MS, 1L, Long::sum);
        }
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed");
        Map<String, Long> seen = new TreeMap<>();
        long counted = 0, silence = 180_000_000_000L, deadline = System.nanoTime() + silence;
        try (Consumer<String, Long> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new LongDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (String topic : List.of("totals", "counts")) {
                consumer.partitionsFor(topic).forEach(p -> partitions.add(new TopicPartition(topic, p.partition())));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (System.nanoTime() < deadline) {
                ConsumerRecords<String, Long> records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<String, Long> record : records) {
                    long before = seen.getOrDefault(record.key(), 0L);
                    if (exact && record.value() < before) {
                        System.out.println("wrong\t" + record.key() + " went from " + before + " to " + record.value());
                        return;
                    }
                    seen.put(record.key(), record.value());
                    long most = wanted.getOrDefault(record.key(), 0L);
                    if (exact && record.value() > most) {
                        System.out.println("wrong\t" + record.key() + " is " + record.value() + ", more than " + most);
                        return;
                    }
                    if (record.key().contains("@")) counted += Math.min(record.value(), most) - Math.min(before, most);
                }
                if (!records.isEmpty()) {
                    System.out.println("counted " + counted);
                    deadline = System.nanoTime() + silence;
                }
                boolean done = exact ? seen.equals(wanted)
                    : wanted.entrySet().stream().allMatch(e -> seen.getOrDefault(e.getKey(), 0L) >= e.getValue());
                if (done) {
                    System.out.println("right");
                    return;
                }
            }
        }
        wanted.entrySet().removeIf(e -> e.getValue().equals(seen.get(e.getKey())));
        System.out.println("wrong\tmissing " + wanted);
    }
}
