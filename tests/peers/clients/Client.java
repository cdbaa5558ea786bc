// A producer and a member of a group with Kafka's own clients, at their defaults: see ../programs.py for what it prints.

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Scanner;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Client {
    static final AtomicBoolean STOP_WRITING = new AtomicBoolean();
    static final AtomicBoolean STOP_READING = new AtomicBoolean();

    static synchronized void say(String line) {
        System.out.println(line);
    }

    static Properties settings(String bootstrap, String... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < more.length; i += 2) settings.put(more[i], more[i + 1]);
        return settings;
    }

    static void produce(String bootstrap, String topic, int partitions) {
        var producer = new KafkaProducer<>(settings(bootstrap), new StringSerializer(), new StringSerializer());
        int sent = 0;
        while (!STOP_WRITING.get()) {
            int number = sent++;
            var record = new ProducerRecord<String, String>(topic, number % partitions, null, "" + number);
            producer.send(record, (found, error) -> say(
                error == null ? "ack " + found.partition() + " " + found.offset() + " " + number : "error produce: " + error));
            try {
                Thread.sleep(2);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
        producer.flush();
        say("flushed " + sent);
        producer.close();
    }

    static void consume(String bootstrap, String topic, String group) {
        Properties settings = settings(bootstrap, "group.id", group, "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (!STOP_READING.get())
                for (var record : consumer.poll(Duration.ofMillis(100)))
                    say("got " + record.partition() + " " + record.offset() + " " + record.value());
            consumer.commitSync();
        } catch (RuntimeException error) {
            say("error consumer: " + error);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        String bootstrap = arguments[0], topic = arguments[1], group = arguments[2];
        Thread writer = new Thread(() -> produce(bootstrap, topic, Integer.parseInt(arguments[3])));
        Thread reader = new Thread(() -> consume(bootstrap, topic, group));
        writer.start();
        reader.start();
        Scanner lines = new Scanner(System.in);
        lines.nextLine();
        STOP_WRITING.set(true);
        writer.join();
        lines.nextLine();
        STOP_READING.set(true);
        reader.join();
        say("closed");
    }
}
