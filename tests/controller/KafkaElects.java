// Changes partitions with Apache Kafka's own rules: a line of words NAME=VALUE in, lists with commas, and a line of what
// the record says out, `nothing` where there is none.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

public class KafkaElects {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, String> told = new HashMap<>();
            for (String word : line.split(" ")) {
                String[] parts = word.split("=", 2);
                told.put(parts[0], parts[1]);
            }
            out.println(change(told));
        }
        out.flush();
    }

    static List<Integer> list(String text) {
        return text.isEmpty() ? List.of() : Arrays.stream(text.split(",")).map(Integer::valueOf).toList();
    }

    static int[] array(String text) {
        return list(text).stream().mapToInt(Integer::intValue).toArray();
    }

    static String change(Map<String, String> told) {
        int[] replicas = array(told.get("replicas"));
        Uuid[] directories = new Uuid[replicas.length];
        Arrays.fill(directories, DirectoryId.UNASSIGNED);
        PartitionRegistration old = new PartitionRegistration.Builder()
            .setReplicas(replicas).setDirectories(directories).setIsr(array(told.get("isr")))
            .setRemovingReplicas(array(told.get("removing"))).setAddingReplicas(array(told.get("adding")))
            .setElr(array(told.get("elr"))).setLastKnownElr(array(told.get("last")))
            .setLeader(Integer.valueOf(told.get("leader")))
            .setLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(told.get("recovery"))))
            .setLeaderEpoch(1).setPartitionEpoch(1).build();
        List<Integer> active = list(told.get("active"));
        boolean hasElr = told.get("has_elr").equals("1");
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            old, Uuid.ONE_UUID, 0, active::contains, MetadataVersion.fromFeatureLevel(Short.parseShort(told.get("level"))),
            Integer.parseInt(told.get("enough")), hasElr);
        builder.setElection(PartitionChangeBuilder.Election.valueOf(told.get("election")));
        builder.setDefaultDirProvider(broker -> DirectoryId.UNASSIGNED);
        builder.setUncleanShutdownReplicas(list(told.get("lost")));
        if (told.containsKey("to_isr")) builder.setTargetIsr(list(told.get("to_isr")));
        if (told.containsKey("to_replicas")) builder.setTargetReplicas(list(told.get("to_replicas")));
        if (told.containsKey("to_removing")) builder.setTargetRemoving(list(told.get("to_removing")));
        if (told.containsKey("to_adding")) builder.setTargetAdding(list(told.get("to_adding")));
        if (told.containsKey("to_recovery")) {
            builder.setTargetLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(told.get("to_recovery"))));
        }
        Optional<ApiMessageAndVersion> made = builder.build();
        if (made.isEmpty()) {
            return "nothing";
        }
        PartitionChangeRecord record = (PartitionChangeRecord) made.get().message();
        return "leader=" + record.leader() + " isr=" + say(record.isr()) + " replicas=" + say(record.replicas())
            + " removing=" + say(record.removingReplicas()) + " adding=" + say(record.addingReplicas())
            + " recovery=" + record.leaderRecoveryState() + " elr=" + say(record.eligibleLeaderReplicas())
            + " last=" + say(record.lastKnownElr());
    }

    static String say(List<Integer> list) {
        return list == null ? "None" : list.stream().map(String::valueOf).collect(Collectors.joining(","));
    }
}
