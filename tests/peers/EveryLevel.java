import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Formats a log directory at every metadata.version that Apache Kafka knows, in one process, and says what each allows.
 *
 * <p>Arguments: a directory for them, a cluster id. Prints a line a level: number, name, the versions of the records
 * that registering a broker, a partition and a change of one take, and 1 or 0 for each ability.
 */
public class EveryLevel {
    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]);
        PrintStream quiet = new PrintStream(PrintStream.nullOutputStream());
        for (MetadataVersion level : MetadataVersion.values()) {
            if (!level.isProduction()) {
                continue;
            }
            Path properties = home.resolve(level.version() + ".properties");
            Files.write(properties, List.of(
                "process.roles=broker,controller", "node.id=1", "controller.listener.names=CONTROLLER",
                "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
                "controller.quorum.voters=1@127.0.0.1:9093", "log.dirs=" + home.resolve(level.version())));
            String[] format = {"format", "-t", arguments[1], "-r", level.version(), "-c", properties.toString()};
            if (kafka.tools.StorageTool.execute(format, quiet) != 0) {
                throw new IllegalStateException("no format at " + level.version());
            }
            List<String> words = new ArrayList<>(List.of(String.valueOf(level.featureLevel()), level.version()));
            words.add(String.valueOf(level.registerBrokerRecordVersion()));
            words.add(String.valueOf(level.partitionRecordVersion()));
            words.add(String.valueOf(level.partitionChangeRecordVersion()));
            for (boolean able : new boolean[] {
                    level.isMigrationSupported(), level.isMetadataTransactionSupported(),
                    level.isControllerRegistrationSupported(), level.isDirectoryAssignmentSupported(),
                    level.isElrSupported(), level.isCordonedLogDirsSupported()}) {
                words.add(able ? "1" : "0");
            }
            System.out.println(String.join(" ", words));
        }
    }
}
