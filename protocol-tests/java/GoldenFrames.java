import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.jar.JarFile;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

/**
 * Prints what Kafka's own classes write: one line per frame, "NAME VERSION FILL HEX", for every message and
 * version in the jars given as arguments. FILL is one of
 *   default  as constructed
 *   empty    every string, byte field and array empty
 *   null     null wherever the version allows it, values elsewhere
 *   full     a value everywhere
 *   mixed-N  each of these by chance
 * Values depend on name, version and fill only.
 */
public final class GoldenFrames {
    private static final int MIXED = 3;
    private static final PrintStream OUT = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false);
    private static final Map<String, Boolean> NULLABLE = new HashMap<>();

    private final short version;
    private final String fill;
    private final Random random;

    private GoldenFrames(String name, short version, String fill) {
        this.version = version;
        this.fill = fill;
        this.random = new Random((name + version + fill).hashCode());
    }

    public static void main(String[] jars) throws Exception {
        TreeMap<String, Class<?>> messages = new TreeMap<>();
        for (String jar : jars) {
            collect(Path.of(jar), messages);
        }
        for (Map.Entry<String, Class<?>> message : messages.entrySet()) {
            emit(message.getKey(), message.getValue());
        }
        OUT.flush();
    }

    private static void collect(Path jar, Map<String, Class<?>> messages) throws Exception {
        try (JarFile file = new JarFile(jar.toFile())) {
            for (var entry : (Iterable<java.util.jar.JarEntry>) file.stream()::iterator) {
                String path = entry.getName();
                boolean generated = path.contains("org/apache/kafka/common/message/")
                    || path.contains("org/apache/kafka/common/metadata/") || path.contains("/generated/");
                if (!generated || path.contains("$") || !path.endsWith(".class")) {
                    continue;
                }
                Class<?> type = Class.forName(path.replace(".class", "").replace('/', '.'));
                if (Message.class.isAssignableFrom(type)) {
                    messages.put(type.getSimpleName().replaceFirst("(Request|Response|Header)Data$", "$1"), type);
                }
            }
        }
    }

    private static void emit(String name, Class<?> type) throws Exception {
        Message sample = (Message) create(type);
        List<String> fills = new ArrayList<>(List.of("default", "empty", "null", "full"));
        for (int i = 0; i < MIXED; i++) {
            fills.add("mixed-" + i);
        }
        for (short version = sample.lowestSupportedVersion(); version <= sample.highestSupportedVersion(); version++) {
            for (String fill : fills) {
                Message message = (Message) create(type);
                if (!fill.equals("default")) {
                    new GoldenFrames(name, version, fill).fill(message, schema(type, version));
                }
                try {
                    OUT.println(name + " " + version + " " + fill + " " + HexFormat.of().formatHex(write(message, version)));
                } catch (NullPointerException | org.apache.kafka.common.errors.UnsupportedVersionException e) {
                    // Some messages have a default that some of their versions cannot carry.
                    if (!fill.equals("default")) {
                        throw new IllegalStateException(name + " " + version + " " + fill, e);
                    }
                }
            }
        }
    }

    private static byte[] write(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("size and write disagree");
        }
        return buffer.array();
    }

    private static Object create(Class<?> type) throws Exception {
        Constructor<?> constructor = type.getDeclaredConstructor();
        constructor.setAccessible(true);
        return constructor.newInstance();
    }

    private static Schema schema(Class<?> type, short version) throws Exception {
        return ((Schema[]) type.getField("SCHEMAS").get(null))[version];
    }

    /** Sets every field that the version has. */
    private void fill(Object target, Schema schema) throws Exception {
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields tagged) {
                for (var entry : tags(tagged).values()) {
                    set(target, entry.name, entry.type, true);
                }
            } else {
                set(target, field.def.name, field.def.type, false);
            }
        }
    }

    @SuppressWarnings("unchecked")
    private static Map<Integer, org.apache.kafka.common.protocol.types.Field> tags(TaggedFields tagged) throws Exception {
        Field fields = TaggedFields.class.getDeclaredField("fields");
        fields.setAccessible(true);
        return (Map<Integer, org.apache.kafka.common.protocol.types.Field>) fields.get(tagged);
    }

    private void set(Object target, String snakeName, Type type, boolean tagged) throws Exception {
        String style = style();
        if (style.equals("default")) {
            return;
        }
        Method setter = setter(target.getClass(), snakeName);
        boolean unsaid = type instanceof Schema || type.toString().endsWith("RECORDS");
        boolean nullable = unsaid ? isNullable(target.getClass(), setter) : type.isNullable();
        boolean isNull = style.equals("null") && nullable;
        setter.invoke(target, isNull ? null : value(type, setter, style.equals("empty")));
    }

    private String style() {
        if (!fill.startsWith("mixed")) {
            return fill;
        }
        // Not "default": a default may be null where this version has no null.
        return List.of("full", "full", "null", "empty").get(random.nextInt(4));
    }

    private static Method setter(Class<?> type, String snakeName) {
        String wanted = "set" + snakeName.replace("_", "");
        for (Method method : type.getMethods()) {
            if (method.getName().equalsIgnoreCase(wanted) && method.getParameterCount() == 1) {
                return method;
            }
        }
        throw new IllegalStateException(type + " has no " + wanted);
    }

    /** Schemas do not always say which structs and records may be null; the generated code knows. */
    private boolean isNullable(Class<?> type, Method setter) throws Exception {
        String key = type.getName() + " " + setter.getName() + " " + version;
        Boolean known = NULLABLE.get(key);
        if (known == null) {
            Object probe = create(type);
            // Null defaults of other fields must not be in the way.
            new GoldenFrames(key, version, "full").fillOthers(probe, setter);
            setter.invoke(probe, (Object) null);
            try {
                write((Message) probe, version);
                known = true;
            } catch (NullPointerException e) {
                known = false;
            }
            NULLABLE.put(key, known);
        }
        return known;
    }

    private void fillOthers(Object target, Method except) throws Exception {
        for (BoundField field : schema(target.getClass(), version).fields()) {
            boolean asksAgain = field.def.type instanceof Schema || field.def.type.toString().endsWith("RECORDS");
            if (!(field.def.type instanceof TaggedFields) && !asksAgain) {
                set(target, field.def.name, field.def.type, false);
            }
        }
    }

    private Object value(Type type, Method setter, boolean empty) throws Exception {
        Class<?> wanted = setter.getParameterTypes()[0];
        if (type.isArray()) {
            return array(type.arrayElementType().get(), setter, empty ? 0 : 1 + random.nextInt(3));
        }
        if (type instanceof Schema schema) {
            Object struct = create(wanted);
            fill(struct, schema);
            return struct;
        }
        return scalar(type, wanted, empty);
    }

    @SuppressWarnings("unchecked")
    private Object array(Type element, Method setter, int count) throws Exception {
        Class<?> wanted = setter.getParameterTypes()[0];
        java.lang.reflect.Type generic =
            wanted == List.class ? setter.getGenericParameterTypes()[0] : wanted.getGenericSuperclass();
        Class<?> elementClass = (Class<?>) ((ParameterizedType) generic).getActualTypeArguments()[0];
        Collection<Object> collection = wanted == List.class ? new ArrayList<>() : (Collection<Object>) create(wanted);
        for (int i = 0; i < count; i++) {
            if (element instanceof Schema schema) {
                Object struct = create(elementClass);
                fill(struct, schema);
                collection.add(struct);
            } else {
                collection.add(scalar(element, elementClass, false));
            }
        }
        return collection;
    }

    private Object scalar(Type type, Class<?> wanted, boolean empty) throws Exception {
        int length = empty ? 0 : random.nextInt(10) == 0 ? 100 + random.nextInt(200) : 1 + random.nextInt(12);
        String name = type.toString();
        if (name.endsWith("STRING")) {
            return text(length);
        }
        if (name.endsWith("RECORDS")) {
            return records(ByteBuffer.wrap(bytes(length)));
        }
        if (name.endsWith("BYTES")) {
            return wanted == ByteBuffer.class ? ByteBuffer.wrap(bytes(length)) : bytes(length);
        }
        return switch (name) {
            case "BOOLEAN" -> random.nextBoolean();
            case "INT8" -> (byte) number();
            case "INT16" -> (short) number();
            case "UINT16" -> (int) number() & 0xffff;
            case "INT32" -> (int) number();
            case "UINT32" -> number() & 0xffffffffL;
            case "INT64" -> number();
            case "FLOAT64" -> random.nextDouble();
            case "UUID" -> new Uuid(random.nextLong(), random.nextLong());
            default -> throw new IllegalStateException("type " + name);
        };
    }

    /** The class moved between releases. */
    private static Object records(ByteBuffer buffer) throws Exception {
        Class<?> type;
        try {
            type = Class.forName("org.apache.kafka.common.record.internal.MemoryRecords");
        } catch (ClassNotFoundException e) {
            type = Class.forName("org.apache.kafka.common.record.MemoryRecords");
        }
        return type.getMethod("readableRecords", ByteBuffer.class).invoke(null, buffer);
    }

    private long number() {
        return random.nextInt(4) == 0 ? random.nextInt(5) - 2 : random.nextLong();
    }

    private byte[] bytes(int length) {
        byte[] bytes = new byte[length];
        random.nextBytes(bytes);
        return bytes;
    }

    private String text(int length) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < length; i++) {
            text.appendCodePoint(random.nextInt(12) == 0 ? 0x1f980 + random.nextInt(9) : 'a' + random.nextInt(26));
        }
        return text.toString();
    }
}
