// A transactional producer with Kafka's own client, told what to do line by line: see ../transacting.py for what it
// is told and what it says.

import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.Scanner;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transacting {
    static synchronized void say(String line) {
        System.out.println(line);
    }

    // What a program is to do about it, as KIP-1050 sorts errors: call again, abort, or begin a new life.
    static String remedy(String command, KafkaException error) {
        if (error instanceof TimeoutException && !command.equals("send")) return "retriable";
        return error instanceof ApplicationRecoverableException || command.equals("abort") ? "fatal" : "abortable";
    }

    static void act(KafkaProducer<String, String> producer, String[] words) {
        switch (words[0]) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> {
                String value = words[3];
                var record = new ProducerRecord<String, String>(words[1], Integer.parseInt(words[2]), null, value);
                producer.send(record, (found, error) -> {
                    if (error == null) say("ack " + value);
                });
            }
            case "offset" -> producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(words[2], Integer.parseInt(words[3])),
                    new OffsetAndMetadata(Long.parseLong(words[4]))),
                new ConsumerGroupMetadata(words[1]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        for (String each : arguments) settings.put(each.substring(0, each.indexOf('=')), each.substring(each.indexOf('=') + 1));
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            try {
                act(producer, words);
                say("done");
            } catch (KafkaException error) {
                say(remedy(words[0], error) + " " + error);
            }
        }
        producer.close(Duration.ZERO);
    }
}
