import java.io.*;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools, each by its own main class, in one JVM: starting a JVM for each would take most of the
 * time of a test.
 *
 * <p>A line of stdin starts a tool: ID, main class, file for its stdin or "-", arguments; separated by tabs. Tools run at
 * once, each in a thread of its own. Their output comes as lines ID, "out" or "err", text; and ID, "exit", status.
 */
public class ToolSession {
    /** A tool that is running: its threads inherit this. */
    static class Run {
        final String id;
        final InputStream stdin;
        final PrintStream out = lines("out"), err = lines("err");
        /** Of the first call of exit: a tool that catches everything takes that for an error and exits again. */
        Integer status;
        final ThreadGroup threads;

        Run(String id, InputStream stdin) {
            this.id = id;
            this.stdin = stdin;
            threads = new ThreadGroup("tool-" + id);
        }

        private PrintStream lines(String kind) {
            OutputStream stream = new OutputStream() {
                private final ByteArrayOutputStream line = new ByteArrayOutputStream();

                public synchronized void write(int b) {
                    if (b != '\n') {
                        line.write(b);
                    } else {
                        print(id, kind, line.toString(StandardCharsets.UTF_8));
                        line.reset();
                    }
                }

                public synchronized void flush() {
                }

                public synchronized void close() {
                    if (line.size() > 0) write('\n');
                }
            };
            return new PrintStream(stream, false, StandardCharsets.UTF_8);
        }
    }

    /** What Exit.exit throws instead of ending the JVM. */
    static class Exited extends Error {
        Exited(int status, String message) {
            super(message, null, false, false);
            Run run = current.get();
            if (run.status == null) run.status = status;
        }
    }

    /** The tools keep counts in static fields, so each run gets its tool's classes anew; the client library stays. */
    static class ToolClasses extends URLClassLoader {
        ToolClasses(URL[] jars) {
            super(jars, ToolSession.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                boolean own = name.startsWith("org.apache.kafka.tools.") || name.startsWith("kafka.tools.") || name.startsWith("kafka.admin.");
                Class<?> found = own ? findLoadedClass(name) : null;
                if (own && found == null) {
                    try {
                        found = findClass(name);
                    } catch (ClassNotFoundException elsewhere) {
                        own = false;
                    }
                }
                return own ? found : super.loadClass(name, resolve);
            }
        }
    }

    static final InheritableThreadLocal<Run> current = new InheritableThreadLocal<>();
    static final PrintStream realOut = System.out, realErr = System.err;

    static void print(String id, String kind, String text) {
        synchronized (realOut) {
            realOut.println(id + "\t" + kind + "\t" + text.replace("\r", ""));
            realOut.flush();
        }
    }

    public static void main(String[] arguments) throws Exception {
        InputStream commands = System.in;
        System.setIn(new InputStream() {
            public int read() throws IOException {
                return current.get().stdin.read();
            }

            public int read(byte[] buffer, int offset, int length) throws IOException {
                return current.get().stdin.read(buffer, offset, length);
            }

            public int available() throws IOException {
                return current.get().stdin.available();
            }
        });
        System.setOut(dispatch(realOut, true));
        System.setErr(dispatch(realErr, false));
        Exit.Procedure exit = (status, message) -> {
            throw new Exited(status, message);
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        URL[] jars = jars();
        BufferedReader reader = new BufferedReader(new InputStreamReader(commands, StandardCharsets.UTF_8));
        for (String line; (line = reader.readLine()) != null; ) {
            String[] fields = line.split("\t", -1);
            InputStream stdin = fields[2].equals("-") ? InputStream.nullInputStream() : Files.newInputStream(Path.of(fields[2]));
            Run run = new Run(fields[0], stdin);
            Thread thread = new Thread(run.threads, () -> run(run, jars, fields[1], Arrays.copyOfRange(fields, 3, fields.length)), "tool-" + run.id);
            thread.setDaemon(true);
            thread.start();
        }
        realOut.flush();
        Runtime.getRuntime().halt(0);
    }

    static PrintStream dispatch(PrintStream real, boolean isOut) {
        OutputStream stream = new OutputStream() {
            private OutputStream target() {
                Run run = current.get();
                return run == null ? real : isOut ? run.out : run.err;
            }

            public void write(int b) throws IOException {
                target().write(b);
            }

            public void write(byte[] buffer, int offset, int length) throws IOException {
                target().write(buffer, offset, length);
            }
        };
        return new PrintStream(stream, true, StandardCharsets.UTF_8);
    }

    /** The shutdown hooks that the threads of a tool have registered: they run when the tool has ended. */
    static List<Thread> takeShutdownHooks(ThreadGroup group) throws ReflectiveOperationException {
        Field field = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        field.setAccessible(true);
        List<Thread> taken = new ArrayList<>();
        for (Object hook : ((Map<?, ?>) field.get(null)).keySet().toArray()) {
            if (((Thread) hook).getThreadGroup() == group) taken.add((Thread) hook);
        }
        taken.forEach(Runtime.getRuntime()::removeShutdownHook);
        return taken;
    }

    static URL[] jars() throws IOException {
        List<URL> urls = new ArrayList<>();
        for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) urls.add(Path.of(entry).toUri().toURL());
        return urls.toArray(new URL[0]);
    }

    static void run(Run run, URL[] jars, String mainClass, String[] arguments) {
        current.set(run);
        try {
            new ToolClasses(jars).loadClass(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            failed(run, thrown.getCause());
        } catch (ReflectiveOperationException thrown) {
            failed(run, thrown);
        }
        try {
            for (Thread hook : takeShutdownHooks(run.threads)) hook.run();
        } catch (Throwable thrown) {
            failed(run, thrown);
        }
        run.out.close();
        run.err.close();
        print(run.id, "exit", String.valueOf(run.status == null ? 0 : run.status));
    }

    static void failed(Run run, Throwable thrown) {
        if (thrown instanceof Exited) return;
        thrown.printStackTrace(run.err);
        if (run.status == null) run.status = 1;
    }
}
