// Names as Java and Apache Kafka form them: a line of words in, texts in hexadecimal UTF-8 and `-` for an empty one; a
// line out, which is `=` and a text in hexadecimal, or one word.
//
//     name CERTIFICATE              the subject of a certificate in DER
//     equal CERTIFICATE CERTIFICATE whether two subjects are equal
//     map RULES NAME                ssl.principal.mapping.rules

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class KafkaNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            out.println(switch (words[0]) {
                case "name" -> name(words[1]);
                case "equal" -> String.valueOf(subject(words[1]).equals(subject(words[2])));
                case "map" -> map(text(words[1]), text(words[2]));
                default -> throw new IllegalArgumentException(line);
            });
        }
        out.flush();
    }

    static byte[] bytes(String word) {
        return word.equals("-") ? new byte[0] : HexFormat.of().parseHex(word);
    }

    static String text(String word) {
        return new String(bytes(word), StandardCharsets.UTF_8);
    }

    static String said(String text) {
        return "=" + HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    static X500Principal subject(String word) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        X509Certificate certificate =
            (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(bytes(word)));
        return certificate.getSubjectX500Principal();
    }

    static String name(String word) {
        try {
            return said(subject(word).getName());
        } catch (Exception refused) {
            return "refused";
        }
    }

    static String map(String rules, String name) {
        SslPrincipalMapper mapper;
        try {
            mapper = SslPrincipalMapper.fromRules(rules);
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
        try {
            return said(mapper.getName(name));
        } catch (IOException | RuntimeException none) {
            return "none";
        }
    }
}
