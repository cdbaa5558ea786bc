// Decodes and encodes again with Apache Kafka's own classes: a line `class version hex` in, a line of hex out, or
// `- why` where Kafka cannot read the bytes.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class KafkaCodec {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", 3);
            try {
                out.println(again(words[0], Short.parseShort(words[1]), HexFormat.of().parseHex(words[2])));
            } catch (Exception error) {
                out.println("- " + String.valueOf(error).replace('\n', ' '));
            }
        }
        out.flush();
    }

    static String again(String name, short version, byte[] bytes) throws Exception {
        Message message = (Message) Class.forName(name).getDeclaredConstructor().newInstance();
        if (version > message.highestSupportedVersion()) {
            return "- newer";
        }
        ByteBuffer input = ByteBuffer.wrap(bytes);
        message.read(new ByteBufferAccessor(input), version);
        if (input.hasRemaining()) {
            return "- " + input.remaining() + " bytes are left";
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer output = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(output), cache, version);
        return HexFormat.of().formatHex(output.array());
    }
}
