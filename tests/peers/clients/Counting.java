// Counts records with Kafka Streams, exactly once: see ../copying.py for what it prints.

import java.util.Properties;
import java.util.Scanner;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

public class Counting {
    static final int KEYS = 10;

    static Properties settings(String bootstrap, String name, String directory) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, name);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 3);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put("consumer.auto.offset.reset", "earliest");
        return settings;
    }

    // Keys are of the value, so that records pass through a topic of Streams' own before they are counted.
    static StreamsBuilder topology(String source, String sink) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(source, Consumed.with(Serdes.Bytes(), Serdes.String()))
            .selectKey((key, value) -> "" + Integer.parseInt(value) % KEYS)
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(count -> "" + count)
            .to(sink, Produced.with(Serdes.String(), Serdes.String()));
        return builder;
    }

    public static void main(String[] arguments) {
        String bootstrap = arguments[0], source = arguments[1], sink = arguments[2], name = arguments[3];
        var streams = new KafkaStreams(topology(source, sink).build(), settings(bootstrap, name, arguments[4]));
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("error " + error);
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        new Scanner(System.in).nextLine();
        streams.close();
        System.out.println("closed");
    }
}
