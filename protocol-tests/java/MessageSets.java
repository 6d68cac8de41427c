import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.zip.CRC32;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * What Kafka 3.9's own classes make of record sets in every format, for src/records/legacy/kafka_tests.rs:
 *
 *   store  TARGET_MAGIC TARGET_CODEC|producer TOPIC_TIMESTAMP_TYPE  INPUT  OUTPUT|!REFUSAL   as a leader stores a produced set
 *   down   TARGET_MAGIC FROM_OFFSET -                               INPUT  OUTPUT|!REFUSAL   as a consumer of old gets a batch
 *
 * Prints to stdout; the result stands in peers/data/message-sets-3.9.2.tsv.
 */
public class MessageSets {
    static final long NOW = 1_700_000_000_000L;
    static final CompressionType[] OLD =
        {CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4};

    /** A clock that stands at NOW. */
    static final Time CLOCK = (Time) java.lang.reflect.Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
        (proxy, method, arguments) -> method.getName().equals("nanoseconds") ? NOW * 1_000_000 : (Object) NOW);

    record Plain(long timestamp, String key, String value, Header... headers) {}

    static final List<Plain> PLAIN = List.of(
        new Plain(NOW - 5000, "a", "one"), new Plain(NOW - 1000, null, ""), new Plain(NOW - 3000, "", null),
        new Plain(-1, null, null), new Plain(NOW - 4000, "k", "v".repeat(300)));

    public static void main(String[] args) throws Exception {
        List<byte[]> sets = new ArrayList<>();
        for (byte magic = 0; magic < 3; magic++)
            for (CompressionType codec : OLD)
                for (TimestampType type : new TimestampType[] {TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME})
                    if (magic > 0 || type == TimestampType.CREATE_TIME) sets.add(set(magic, codec, type, 0, PLAIN));
        sets.add(set((byte) 2, CompressionType.ZSTD, TimestampType.CREATE_TIME, 0, PLAIN));
        sets.addAll(strange());
        for (byte[] input : sets)
            for (byte target = 0; target < 3; target++)
                for (TimestampType type : new TimestampType[] {TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME})
                    for (CompressionType codec : new CompressionType[] {null, CompressionType.NONE, CompressionType.GZIP}) {
                        if (codec != null && type == TimestampType.LOG_APPEND_TIME) continue;
                        System.out.printf("store\t%d\t%s\t%s\t%s\t%s%n", target, codec == null ? "producer" : codec.name, type.name,
                            hex(input), store(input, target, codec, type));
                    }
        List<byte[]> batches = new ArrayList<>();
        for (CompressionType codec : CompressionType.values()) {
            batches.add(set((byte) 2, codec, TimestampType.CREATE_TIME, 50, PLAIN));
            batches.add(set((byte) 2, codec, TimestampType.LOG_APPEND_TIME, 50, PLAIN));
        }
        batches.add(withHeaders(50));
        batches.add(withGaps());
        batches.add(MemoryRecords.withEndTransactionMarker(50, NOW, 0, 1, (short) 0,
            new EndTransactionMarker(ControlRecordType.COMMIT, 3)).buffer().array());
        for (CompressionType codec : OLD)
            for (byte magic = 0; magic < 2; magic++) batches.add(set(magic, codec, TimestampType.CREATE_TIME, 50, PLAIN));
        for (byte[] batch : batches)
            for (byte target = 0; target < 2; target++)
                for (long from : new long[] {0, 52})
                    System.out.printf("down\t%d\t%d\t-\t%s\t%s%n", target, from, hex(batch), down(batch, target, from));
    }

    static byte[] set(byte magic, CompressionType codec, TimestampType type, long base, List<Plain> plain) {
        ByteBuffer buffer = ByteBuffer.allocate(4096);
        MemoryRecordsBuilder builder =
            MemoryRecords.builder(buffer, magic, Compression.of(codec).build(), type, base, NOW - 77);
        for (Plain record : plain)
            builder.append(magic == 0 ? RecordBatch.NO_TIMESTAMP : record.timestamp, bytes(record.key), bytes(record.value), record.headers);
        return array(builder.build().buffer());
    }

    static byte[] withHeaders(long base) {
        Header[] headers = {new RecordHeader("h", bytes("1")), new RecordHeader("h", null), new RecordHeader("", bytes(""))};
        return set((byte) 2, CompressionType.NONE, TimestampType.CREATE_TIME, base, List.of(new Plain(NOW, "a", "b", headers)));
    }

    static byte[] withGaps() {
        ByteBuffer buffer = ByteBuffer.allocate(4096);
        MemoryRecordsBuilder builder =
            MemoryRecords.builder(buffer, (byte) 2, Compression.gzip().build(), TimestampType.CREATE_TIME, 50);
        builder.appendWithOffset(51, NOW, bytes("a"), bytes("b"));
        builder.appendWithOffset(54, NOW + 1, bytes("c"), bytes("d"));
        builder.appendWithOffset(59, NOW - 1, bytes("e"), bytes("f"));
        return array(builder.build().buffer());
    }

    /** Sets that clients should not send, some of which they do. */
    static List<byte[]> strange() throws Exception {
        List<byte[]> sets = new ArrayList<>();
        byte[][] v1 = new byte[4][];
        for (int i = 0; i < 4; i++) v1[i] = set((byte) 1, CompressionType.NONE, TimestampType.CREATE_TIME, i, List.of(PLAIN.get(i)));
        byte[] v0 = set((byte) 0, CompressionType.NONE, TimestampType.CREATE_TIME, 0, List.of(PLAIN.get(0)));
        // Inner offsets: right, with another offset outside, all zero, absolute, beyond the wrapper's.
        for (long outer : new long[] {0, 2, 77}) sets.add(wrapper((byte) 1, outer, join(v1[0], v1[1], v1[2])));
        byte[] zero = at(v1[1], 0);
        sets.add(wrapper((byte) 1, 0, join(zero, zero, zero)));
        sets.add(wrapper((byte) 1, 2, join(zero, zero, zero)));
        sets.add(wrapper((byte) 1, 102, join(at(v1[0], 100), at(v1[1], 101), at(v1[2], 102))));
        sets.add(wrapper((byte) 1, 1, join(v1[0], v1[1], v1[2])));
        sets.add(wrapper((byte) 0, 1, join(v0, v0)));
        sets.add(wrapper((byte) 0, 9, join(at(v0, 8), at(v0, 9))));
        // Wrappers of the wrong things.
        sets.add(wrapper((byte) 1, 0, v0));
        sets.add(wrapper((byte) 0, 0, v1[0]));
        sets.add(wrapper((byte) 1, 0, wrapper((byte) 1, 0, v1[0])));
        sets.add(wrapper((byte) 0, 0, wrapper((byte) 0, 0, v0)));
        sets.add(wrapper((byte) 1, 0, new byte[0]));
        sets.add(wrapper((byte) 1, 1, java.util.Arrays.copyOf(join(v1[0], v1[1]), v1[0].length + 20)));
        byte[] broken = v1[0].clone();
        broken[broken.length - 1] ^= 1;
        sets.add(wrapper((byte) 1, 0, broken));
        sets.add(broken);
        // Several of them in one set.
        sets.add(join(v0, v1[0]));
        sets.add(join(v1[0], wrapper((byte) 1, 0, v1[0])));
        sets.add(join(wrapper((byte) 1, 0, v1[0]), v1[1]));
        sets.add(join(v1[3], v1[2], at(v1[1], 500)));
        // What only some formats can hold.
        sets.add(withHeaders(0));
        ByteBuffer buffer = ByteBuffer.allocate(512);
        MemoryRecordsBuilder idempotent = MemoryRecords.idempotentBuilder(buffer, Compression.NONE, 0, 9, (short) 1, 7);
        idempotent.append(NOW, bytes("a"), bytes("b"));
        sets.add(array(idempotent.build().buffer()));
        return sets;
    }

    /** A gzip wrapper around any bytes. */
    static byte[] wrapper(byte magic, long offset, byte[] inner) throws Exception {
        java.io.ByteArrayOutputStream compressed = new java.io.ByteArrayOutputStream();
        try (java.io.OutputStream gzip = new java.util.zip.GZIPOutputStream(compressed)) { gzip.write(inner); }
        byte[] value = compressed.toByteArray();
        ByteBuffer message = ByteBuffer.allocate(12 + (magic == 0 ? 14 : 22) + value.length);
        message.putLong(offset).putInt(message.capacity() - 12).putInt(0).put(magic).put((byte) 1);
        if (magic > 0) message.putLong(NOW - 10);
        message.putInt(-1).putInt(value.length).put(value);
        CRC32 crc = new CRC32();
        crc.update(message.array(), 16, message.capacity() - 16);
        message.putInt(12, (int) crc.getValue());
        return message.array();
    }

    static String store(byte[] input, byte target, CompressionType codec, TimestampType type) {
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(input.clone()));
            CompressionType source = CompressionType.NONE;
            for (RecordBatch batch : records.batches()) {
                batch.ensureValid();
                if (batch.compressionType() != CompressionType.NONE) source = batch.compressionType();
            }
            Compression wanted = Compression.of(codec == null ? source : codec).build();
            LogValidator validator = new LogValidator(records, new TopicPartition("t", 0), CLOCK, source, wanted,
                false, target, type, 3_600_000, 3_600_000, 5, AppendOrigin.CLIENT, MetadataVersion.latestProduction());
            LogValidator.MetricsRecorder metrics = new LogValidator.MetricsRecorder() {
                public void recordInvalidMagic() {}
                public void recordInvalidOffset() {}
                public void recordInvalidSequence() {}
                public void recordInvalidChecksums() {}
                public void recordNoKeyCompactedTopic() {}
            };
            return hex(array(validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(100), metrics, BufferSupplier.NO_CACHING)
                .validatedRecords.buffer()));
        } catch (RecordValidationException e) {
            return "!" + e.invalidException().getClass().getSimpleName();
        } catch (RuntimeException e) {
            return "!" + e.getClass().getSimpleName();
        }
    }

    static String down(byte[] input, byte target, long from) {
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(input.clone()));
            return hex(array(((MemoryRecords) records.downConvert(target, from, Time.SYSTEM).records()).buffer()));
        } catch (RuntimeException e) {
            return "!" + e.getClass().getSimpleName();
        }
    }

    static byte[] at(byte[] message, long offset) {
        byte[] moved = message.clone();
        ByteBuffer.wrap(moved).putLong(0, offset);
        return moved;
    }

    static byte[] join(byte[]... parts) {
        java.io.ByteArrayOutputStream joined = new java.io.ByteArrayOutputStream();
        for (byte[] part : parts) joined.writeBytes(part);
        return joined.toByteArray();
    }

    static byte[] array(ByteBuffer buffer) {
        ByteBuffer copy = buffer.duplicate();
        byte[] bytes = new byte[copy.remaining()];
        copy.get(bytes);
        return bytes;
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes();
    }

    static String hex(byte[] bytes) {
        return bytes.length == 0 ? "-" : HexFormat.of().formatHex(bytes);
    }
}
