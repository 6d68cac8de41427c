import java.io.*;
import java.time.Duration;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/** Kafka's own client library: the steady work of clients/README.md. */
public class SteadyClient {
    static String bootstrap, plain, transactional, group;
    static volatile boolean stopped, enough;

    static synchronized void emit(Object... fields) {
        System.out.println(Arrays.stream(fields).map(String::valueOf).collect(Collectors.joining("\t")));
        System.out.flush();
    }

    static Map<String, Object> config(Object... pairs) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) config.put((String) pairs[i], pairs[i + 1]);
        return config;
    }

    static void produce() throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                config("acks", "all", "enable.idempotence", true, "linger.ms", 2, "request.timeout.ms", 5000),
                new StringSerializer(), new StringSerializer())) {
            for (int number = 0; !stopped; number++) {
                String value = "p-" + number;
                producer.send(new ProducerRecord<>(plain, number % 3, null, value), (metadata, error) -> {
                    if (error != null) fail(error);
                    else emit("acked", value);
                });
                Thread.sleep(5);
            }
            producer.flush();
        }
    }

    static void transact() throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                config("transactional.id", "steady-" + group, "request.timeout.ms", 5000, "transaction.timeout.ms", 60000),
                new StringSerializer(), new StringSerializer())) {
            again(producer::initTransactions);
            for (int number = 0; !stopped; number += 5) {
                int first = number;
                producer.beginTransaction();
                try {
                    for (int i = 0; i < 5; i++) producer.send(new ProducerRecord<>(transactional, (first + i) % 3, null, "t-" + (first + i)));
                    again(producer::commitTransaction);
                    emit("committed", first, first + 4);
                } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException fatal) {
                    throw fatal;
                } catch (KafkaException error) {
                    again(producer::abortTransaction);
                    emit("aborted", first, first + 4);
                }
                Thread.sleep(20);
            }
        }
    }

    /** A timeout leaves the outcome open, and the same call may be made again. */
    static void again(Runnable call) {
        for (int attempt = 0; ; attempt++) {
            try {
                call.run();
                return;
            } catch (TimeoutException | InterruptException timeout) {
                if (attempt > 5) throw timeout;
            }
        }
    }

    static void read(String topic, String kind, String isolation) {
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                config("group.id", group + "-" + kind, "isolation.level", isolation, "auto.offset.reset", "earliest", "session.timeout.ms", 6000,
                    "auto.commit.interval.ms", 200),
                new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (!enough) for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) emit(kind, record.value());
        }
    }

    interface Work { void run() throws Exception; }

    static Thread start(Work work) {
        Thread thread = new Thread(() -> {
            try { work.run(); } catch (Throwable error) { fail(error); }
        });
        thread.start();
        return thread;
    }

    static void fail(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0]; plain = args[1]; transactional = args[2]; group = args[3];
        Thread producing = start(SteadyClient::produce), transacting = start(SteadyClient::transact);
        Thread reading = start(() -> read(plain, "read", "read_uncommitted"));
        Thread readingCommitted = start(() -> read(transactional, "readtxn", "read_committed"));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        in.readLine();
        stopped = true;
        producing.join();
        transacting.join();
        emit("stopped");
        in.readLine();
        enough = true;
        reading.join();
        readingCommitted.join();
        emit("done");
    }
}
