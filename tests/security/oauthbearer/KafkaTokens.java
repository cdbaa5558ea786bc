// Checks tokens as Apache Kafka's two handlers do: a token a line in, and out `=NAME EXPIRES_MS SCOPE,...` with the texts
// in hexadecimal UTF-8, or `refused`.
//
//     KafkaTokens signed JWKS_FILE AUDIENCES ISSUER SUB_CLAIM SCOPE_CLAIM    `-` for none
//     KafkaTokens unsecured REQUIRED_SCOPE

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.Collectors;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.AppConfigurationEntry.LoginModuleControlFlag;
import org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler;

public class KafkaTokens {
    interface Check {
        OAuthBearerToken of(String token) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Check check = arguments[0].equals("signed") ? signed(arguments) : unsecured(arguments);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            OAuthBearerToken token = null;
            try {
                token = check.of(line);
            } catch (Exception refused) {
                System.err.println(refused);
            }
            out.println(token == null ? "refused" : "=" + said(token));
        }
        out.flush();
    }

    static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    static String said(OAuthBearerToken token) {
        String scope = new TreeSet<>(token.scope()).stream().map(KafkaTokens::hex).sorted().collect(Collectors.joining(","));
        return hex(token.principalName()) + " " + token.lifetimeMs() + " " + scope;
    }

    static List<AppConfigurationEntry> jaas(Map<String, String> options) {
        String module = OAuthBearerLoginModule.class.getName();
        return List.of(new AppConfigurationEntry(module, LoginModuleControlFlag.REQUIRED, options));
    }

    static Check signed(String[] arguments) {
        String file = Path.of(arguments[1]).toUri().toString();
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", file);
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", arguments[1]);
        Map<String, Object> settings = new HashMap<>();
        settings.put("sasl.oauthbearer.jwks.endpoint.url", file);
        settings.put("sasl.oauthbearer.expected.audience", arguments[2].equals("-") ? List.of() : List.of(arguments[2].split(",")));
        settings.put("sasl.oauthbearer.clock.skew.seconds", 30);
        if (!arguments[3].equals("-")) {
            settings.put("sasl.oauthbearer.expected.issuer", arguments[3]);
        }
        settings.put("sasl.oauthbearer.sub.claim.name", arguments[4]);
        settings.put("sasl.oauthbearer.scope.claim.name", arguments[5]);
        BrokerJwtValidator validator = new BrokerJwtValidator();
        validator.configure(settings, "OAUTHBEARER", jaas(Map.of()));
        return validator::validate;
    }

    static Check unsecured(String[] arguments) {
        Map<String, String> options = new HashMap<>();
        if (!arguments[1].equals("-")) {
            options.put("unsecuredValidatorRequiredScope", arguments[1]);
        }
        OAuthBearerUnsecuredValidatorCallbackHandler handler = new OAuthBearerUnsecuredValidatorCallbackHandler();
        handler.configure(Map.of(), "OAUTHBEARER", jaas(options));
        return token -> {
            OAuthBearerValidatorCallback callback = new OAuthBearerValidatorCallback(token);
            handler.handle(new Callback[] {callback});
            return callback.token();
        };
    }
}
