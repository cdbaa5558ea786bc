// Names as Java and Apache Kafka form them: a line of words in, texts in hexadecimal UTF-8 and `-` for an empty one; a
// line out, which is `=` and a text in hexadecimal, or one word.
//
//     name CERTIFICATE              the subject of a certificate in DER
//     equal CERTIFICATE CERTIFICATE whether two subjects are equal
//     map RULES NAME                ssl.principal.mapping.rules
//     kerberos REALM RULES NAME     sasl.kerberos.principal.to.local.rules, a rule a line
//     keystore KEY CHAIN PASSWORD   whether a keystore in PEM can be used: `taken` or `refused`
//     reload KEY CHAIN KEY CHAIN DN SAN
//                                   whether one keystore may replace another, with both settings: `taken` or `refused`

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.network.ConnectionMode;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;
import org.apache.kafka.common.security.ssl.SslFactory;
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
                case "kerberos" -> kerberos(text(words[1]), text(words[2]), text(words[3]));
                case "keystore" -> taken(() -> new SslFactory(ConnectionMode.SERVER).configure(
                    settings(words[1], words[2], words[3], "false", "false")));
                case "reload" -> {
                    SslFactory factory = new SslFactory(ConnectionMode.SERVER);
                    factory.configure(settings(words[1], words[2], "-", words[5], words[6]));
                    yield taken(() -> factory.validateReconfiguration(
                        settings(words[3], words[4], "-", words[5], words[6])));
                }
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

    static String kerberos(String realm, String rules, String name) {
        KerberosShortNamer namer;
        try {
            namer = KerberosShortNamer.fromUnparsedRules(realm, List.of(rules.split("\n")));
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
        try {
            return said(namer.shortName(KerberosName.parse(name)));
        } catch (IOException | RuntimeException none) {
            return "none";
        }
    }

    static Map<String, Object> settings(String key, String chain, String password, String dn, String san) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("ssl.protocol", "TLSv1.3");
        settings.put("ssl.enabled.protocols", List.of("TLSv1.2", "TLSv1.3"));
        settings.put("ssl.cipher.suites", List.of());
        settings.put("ssl.client.auth", "none");
        settings.put("ssl.keymanager.algorithm", "SunX509");
        settings.put("ssl.trustmanager.algorithm", "PKIX");
        settings.put("ssl.keystore.type", "PEM");
        settings.put("ssl.truststore.type", "JKS");
        settings.put("ssl.keystore.key", new Password(text(key)));
        settings.put("ssl.keystore.certificate.chain", new Password(text(chain)));
        settings.put("ssl.allow.dn.changes", Boolean.valueOf(dn));
        settings.put("ssl.allow.san.changes", Boolean.valueOf(san));
        if (!password.equals("-")) {
            settings.put("ssl.key.password", new Password(text(password)));
        }
        return settings;
    }

    static String taken(Runnable step) {
        try {
            step.run();
            return "taken";
        } catch (RuntimeException refused) {
            return "refused";
        }
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
