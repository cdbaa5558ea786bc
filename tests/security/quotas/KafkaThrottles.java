// Measures with Apache Kafka's own classes. A line in begins with what is asked:
//   rate SAMPLES BOUND TIME:VALUE...     a rate of one-second samples; a throttle time out for each value
//   tokens SAMPLES BOUND TIME:VALUE...   a token bucket in the same way
//   find QUOTAS USER CLIENT              QUOTAS as user/client=bound, comma-separated, `*` the default, `-` not said;
//                                        out: the bound, and whose bucket it is

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.util.Map;
import java.util.Optional;
import java.util.StringJoiner;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaCallback;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ClientQuotaType;
import org.apache.kafka.server.quota.QuotaType;
import org.apache.kafka.server.quota.QuotaUtils;

public class KafkaThrottles {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            out.println(words[0].equals("find") ? find(words) : measure(words));
        }
        out.flush();
        System.exit(0);
    }

    static String measure(String[] words) {
        double bound = Double.parseDouble(words[2]);
        boolean tokens = words[0].equals("tokens");
        MetricConfig config = new MetricConfig().samples(Integer.parseInt(words[1])).timeWindow(1, TimeUnit.SECONDS)
            .quota(Quota.upperBound(bound));
        try (Metrics metrics = new Metrics()) {
            Sensor sensor = metrics.sensor("s");
            sensor.add(metrics.metricName("m", "g"), tokens ? new TokenBucket() : new Rate(), config);
            StringJoiner said = new StringJoiner(" ");
            for (int i = 3; i < words.length; i++) {
                String[] event = words[i].split(":");
                long now = Long.parseLong(event[0]);
                long throttle = 0;
                try {
                    sensor.record(Double.parseDouble(event[1]), now, true);
                } catch (QuotaViolationException e) {
                    throttle = tokens ? Math.round(-e.value() / e.bound() * 1000) : QuotaUtils.throttleTime(e, now);
                }
                said.add(Long.toString(throttle));
            }
            return said.toString();
        }
    }

    static Optional<ClientQuotaEntity.ConfigEntity> user(String name) {
        return name.equals("-") ? Optional.empty() : Optional.of(
            name.equals("*") ? ClientQuotaManager.DEFAULT_USER_ENTITY : new ClientQuotaManager.UserEntity(name));
    }

    static Optional<ClientQuotaEntity.ConfigEntity> client(String name) {
        return name.equals("-") ? Optional.empty() : Optional.of(
            name.equals("*") ? ClientQuotaManager.DEFAULT_USER_CLIENT_ID : new ClientQuotaManager.ClientIdEntity(name));
    }

    static String find(String[] words) throws Exception {
        try (Metrics metrics = new Metrics()) {
            ClientQuotaManager manager =
                new ClientQuotaManager(new ClientQuotaManagerConfig(), metrics, QuotaType.PRODUCE, Time.SYSTEM, "t");
            for (String quota : words[1].split(",")) {
                String[] sides = quota.split("=");
                String[] names = sides[0].split("/");
                manager.updateQuota(user(names[0]), client(names[1]),
                    Optional.of(Quota.upperBound(Double.parseDouble(sides[1]))));
            }
            Field field = ClientQuotaManager.class.getDeclaredField("quotaCallback");
            field.setAccessible(true);
            ClientQuotaCallback callback = (ClientQuotaCallback) field.get(manager);
            Map<String, String> tags = callback.quotaMetricTags(
                ClientQuotaType.PRODUCE, new KafkaPrincipal("User", words[2]), words[3]);
            Double bound = callback.quotaLimit(ClientQuotaType.PRODUCE, tags);
            manager.shutdown();
            if (bound == null || bound == Long.MAX_VALUE)
                return "none";
            return bound + " " + tags.get("user") + "/" + tags.get("client-id");
        }
    }
}
