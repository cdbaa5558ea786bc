import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.kafka.transaction.KafkaTransactionManager;

/**
 * A Spring program: BOOTSTRAP IN OUT EVERY_MS. A group of three reads IN and writes OUT exactly once, a transaction a
 * poll; a plain producer writes a record to IN every so often. Runs until it is ended.
 */
public final class SpringApp {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String in = arguments[1];
        String out = arguments[2];
        long everyMs = Long.parseLong(arguments[3]);

        Map<String, Object> producing = new HashMap<>();
        producing.put("bootstrap.servers", bootstrap);
        producing.put("key.serializer", StringSerializer.class);
        producing.put("value.serializer", StringSerializer.class);
        DefaultKafkaProducerFactory<String, String> transactional = new DefaultKafkaProducerFactory<>(producing);
        transactional.setTransactionIdPrefix("spring-");
        KafkaTemplate<String, String> template = new KafkaTemplate<>(transactional);

        Map<String, Object> consuming = new HashMap<>();
        consuming.put("bootstrap.servers", bootstrap);
        consuming.put("group.id", "spring");
        consuming.put("isolation.level", "read_committed");
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("key.deserializer", StringDeserializer.class);
        consuming.put("value.deserializer", StringDeserializer.class);
        ContainerProperties properties = new ContainerProperties(in);
        properties.setKafkaAwareTransactionManager(new KafkaTransactionManager<>(transactional));
        MessageListener<String, String> listener = record -> template.send(out, record.key(), record.value());
        properties.setMessageListener(listener);
        ConcurrentMessageListenerContainer<String, String> container =
                new ConcurrentMessageListenerContainer<>(new DefaultKafkaConsumerFactory<>(consuming), properties);
        container.setConcurrency(3);
        container.start();

        KafkaTemplate<String, String> sender = new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(producing));
        for (long number = 0;; number++) {
            sender.send(in, "key-" + number % 100, "value-" + number);
            Thread.sleep(everyMs);
        }
    }
}
