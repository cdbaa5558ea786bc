// Kafka's own tools, one after the other in one Java machine: a start of each takes seconds where there are two cores.
//
// A call comes on standard input: the number of words, the words (a class with a `main`, its arguments) and what the
// tool reads from its standard input, each as a length of four bytes and UTF-8. Its answer goes to standard output: the
// exit status as four bytes, then what the tool said on both of its outputs, in the same way. The tools are as they
// come: their `exit` ends the call and not the machine, which is what Kafka's own tests do.

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

public class KafkaTools {
    static final class Ended extends Error {
        final int status;

        Ended(int status, String message) {
            super(message, null, false, false);
            this.status = status;
        }
    }

    // Kept for the whole run, as Scala's Console and the loggers remember the first stream that they see.
    static final class Said extends OutputStream {
        private final ByteArrayOutputStream text = new ByteArrayOutputStream();

        public synchronized void write(int each) {
            text.write(each);
        }

        public synchronized void write(byte[] bytes, int from, int count) {
            text.write(bytes, from, count);
        }

        synchronized byte[] take() {
            byte[] all = text.toByteArray();
            text.reset();
            return all;
        }
    }

    // The first one counts: tools catch whatever is thrown, their own end as well, and exit again.
    static Integer first;
    static byte[] saidByThen;

    static void end(Said said, int status, String message) {
        if (first == null) {
            if (message != null) {
                System.err.println(message);
            }
            first = status;
            saidByThen = said.take();
        }
        throw new Ended(status, message);
    }

    static int call(String[] words) {
        try {
            String[] arguments = Arrays.copyOfRange(words, 1, words.length);
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException wrapped) {
            Throwable cause = wrapped.getCause();
            for (Throwable each = cause; each != null; each = each.getCause()) {
                if (each instanceof Ended) {
                    return ((Ended) each).status;
                }
            }
            cause.printStackTrace();
            return 1;
        } catch (ReflectiveOperationException unknown) {
            System.err.println(unknown);
            return 127;
        }
    }

    static byte[] part(DataInputStream in) throws IOException {
        return in.readNBytes(in.readInt());
    }

    public static void main(String[] given) throws IOException {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(new FileOutputStream(FileDescriptor.out));
        Said said = new Said();
        PrintStream stream = new PrintStream(said, true, StandardCharsets.UTF_8);
        System.setOut(stream);
        System.setErr(stream);
        Exit.setExitProcedure((status, message) -> end(said, status, message));
        // What waits for the end of the machine, such as a producer's last records, waits for the end of the call.
        List<Runnable> hooks = new ArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        Exit.setHaltProcedure((status, message) -> end(said, status, message));
        while (true) {
            int count;
            try {
                count = in.readInt();
            } catch (EOFException over) {
                break;
            }
            String[] words = new String[count];
            for (int at = 0; at < count; at++) {
                words[at] = new String(part(in), StandardCharsets.UTF_8);
            }
            System.setIn(new ByteArrayInputStream(part(in)));
            first = null;
            int status = call(words);
            byte[] before = said.take();
            if (first != null) { // what it said of the end that it caught is not the tool's
                status = first;
                before = saidByThen;
            }
            hooks.forEach(Runnable::run);
            hooks.clear();
            byte[] after = said.take();
            out.writeInt(status);
            out.writeInt(before.length + after.length);
            out.write(before);
            out.write(after);
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
