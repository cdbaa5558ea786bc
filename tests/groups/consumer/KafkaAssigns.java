import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import com.dynatrace.hash4j.hashing.Hashing;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Apache Kafka's own assignors and hashes, asked a line at a time on standard input.
 *
 * <pre>
 * assign NAME COUNTS MEMBERS   COUNTS: 1=8,2=3 (topic=partitions); MEMBERS: id/instance/topics/had;... with had 1:0.1,2:4
 * topic NAME ID RACKS          ID: 1; RACKS: a.b,a (of each partition)
 * </pre>
 *
 * Members and topics are handed over in the order of the line, and topics have small ids, which a hash table keeps in order.
 */
public class KafkaAssigns {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            switch (words[0]) {
                case "assign" -> out.append(assign(words[1], words[2], words[3]));
                default -> out.append(Long.toUnsignedString(topic(words[1], words[2], words[3])));
            }
            out.append('\n');
        }
        System.out.print(out);
    }

    private static Uuid uuid(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    private static String assign(String name, String said, String group) {
        Map<Uuid, Integer> counts = new HashMap<>();
        for (String each : said.split(",")) {
            counts.put(uuid(each.split("=")[0]), Integer.parseInt(each.split("=")[1]));
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new TreeSet<>((a, b) -> a.equals(b) ? 0 : 1);
        for (String each : group.split(";")) {
            String[] parts = each.split("/", -1);
            Set<Uuid> topics = new LinkedHashSet<>();
            for (String topic : parts[2].split(",")) {
                if (!topic.isEmpty()) topics.add(uuid(topic));
            }
            Map<Uuid, Set<Integer>> had = new LinkedHashMap<>();
            for (String one : parts[3].split(",")) {
                if (one.isEmpty()) continue;
                Set<Integer> partitions = new LinkedHashSet<>();
                Uuid topic = uuid(one.split(":")[0]);
                for (String partition : one.split(":")[1].split("\\.")) {
                    partitions.add(Integer.parseInt(partition));
                    inverted.computeIfAbsent(topic, t -> new HashMap<>()).put(Integer.parseInt(partition), parts[0]);
                }
                had.put(topic, partitions);
            }
            subscriptions.add(topics);
            Optional<String> instance = parts[1].isEmpty() ? Optional.empty() : Optional.of(parts[1]);
            members.put(parts[0], new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, topics, new Assignment(Collections.unmodifiableMap(had))));
        }
        SubscriptionType type = subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
        ConsumerGroupPartitionAssignor assignor = name.equals("range") ? new RangeAssignor() : new UniformAssignor();
        Map<String, MemberAssignment> found = new TreeMap<>(
            assignor.assign(new GroupSpecImpl(members, type, inverted), describer).members());
        List<String> told = new ArrayList<>();
        found.forEach((id, assignment) -> {
            TreeMap<Long, String> topics = new TreeMap<>();
            assignment.partitions().forEach((topic, partitions) -> {
                List<String> numbers = new ArrayList<>();
                for (int partition : new TreeSet<>(partitions)) numbers.add(String.valueOf(partition));
                if (!numbers.isEmpty()) {
                    topics.put(topic.getLeastSignificantBits(),
                        topic.getLeastSignificantBits() + ":" + String.join(".", numbers));
                }
            });
            if (!topics.isEmpty()) told.add(id + "=" + String.join(",", topics.values()));
        });
        return String.join(";", told);
    }

    private static long topic(String name, String id, String said) {
        String[] racks = said.split(",", -1);
        CoordinatorMetadataImage.TopicMetadata topic = (CoordinatorMetadataImage.TopicMetadata) Proxy.newProxyInstance(
            KafkaAssigns.class.getClassLoader(), new Class<?>[] {CoordinatorMetadataImage.TopicMetadata.class},
            (proxy, method, given) -> switch (method.getName()) {
                case "id" -> new Uuid(Long.parseLong(id), ~Long.parseLong(id));
                case "name" -> name;
                case "partitionCount" -> racks.length;
                default -> {
                    String one = racks[(Integer) given[0]];
                    yield new ArrayList<>(one.isEmpty() ? List.of() : List.of(one.split("\\.")));
                }
            });
        CoordinatorMetadataImage image = (CoordinatorMetadataImage) Proxy.newProxyInstance(
            KafkaAssigns.class.getClassLoader(), new Class<?>[] {CoordinatorMetadataImage.class},
            (proxy, method, given) -> Optional.of(topic));
        return Utils.computeTopicHash(name, image);
    }
}
