// One consumer of a group that changes its protocol: see JavaMember in ../../compat/test_groups_migration.py.
// Arguments are a topic and settings, name=value. It prints each record as "read PARTITION OFFSET", how many partitions it
// has as "has COUNT", and a failure as "failed ...". It commits before it gives a partition up, and ends with its input.

import java.io.IOException;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Rolling {
    static volatile boolean ended = false;

    static void endWithInput() {
        var watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (IOException error) {
                System.out.println("failed " + error);
            }
            ended = true;
        });
        watch.setDaemon(true);
        watch.start();
    }

    static ConsumerRebalanceListener committing(KafkaConsumer<byte[], byte[]> consumer) {
        return new ConsumerRebalanceListener() {
            public void onPartitionsAssigned(Collection<TopicPartition> ours) {}

            public void onPartitionsRevoked(Collection<TopicPartition> gone) {
                consumer.commitSync();
            }

            public void onPartitionsLost(Collection<TopicPartition> gone) {
                System.out.println("failed lost " + gone);
            }
        };
    }

    static void read(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        consumer.subscribe(List.of(topic), committing(consumer));
        int has = -1;
        while (!ended) {
            for (var record : consumer.poll(Duration.ofMillis(50))) {
                System.out.println("read " + record.partition() + " " + record.offset());
            }
            if (has != consumer.assignment().size()) {
                has = consumer.assignment().size();
                System.out.println("has " + has);
            }
        }
        consumer.commitSync();
    }

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        for (String argument : List.of(arguments).subList(1, arguments.length)) {
            String[] setting = argument.split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        endWithInput();
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            read(consumer, arguments[0]);
        } catch (Exception error) {
            System.out.println("failed " + error);
        }
    }
}
