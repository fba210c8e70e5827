import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One member of a group: {@code Member BOOTSTRAP TOPIC GROUP ASSIGNOR}. It prints `assigned PARTITION...` whenever that
 * changes and `read PARTITION OFFSET` for each record once it is committed, and leaves when its standard input ends.
 */
final class Member {
    private Member() {
    }

    public static void main(String[] arguments) {
        AtomicBoolean stop = new AtomicBoolean();
        Thread wait = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            } finally {
                stop.set(true);
            }
        });
        wait.setDaemon(true);
        wait.start();

        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "group.id", arguments[2],
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + arguments[3],
                "session.timeout.ms", 6000, "heartbeat.interval.ms", 500, "auto.offset.reset", "earliest",
                "enable.auto.commit", false, "max.poll.records", 1);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(arguments[1]));
            Set<Integer> assigned = null;
            while (!stop.get()) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    try {
                        consumer.commitSync(Map.of(partition, new OffsetAndMetadata(record.offset() + 1)));
                    } catch (CommitFailedException | RebalanceInProgressException error) {
                        // The group is rebalancing: whoever has the partition then reads the record again.
                        if (consumer.assignment().contains(partition)) {
                            consumer.seek(partition, record.offset());
                        }
                        continue;
                    }
                    System.out.println("read " + record.partition() + " " + record.offset());
                }
                Set<Integer> now = new TreeSet<>();
                consumer.assignment().forEach(partition -> now.add(partition.partition()));
                if (!now.equals(assigned)) {
                    assigned = now;
                    StringBuilder line = new StringBuilder("assigned");
                    now.forEach(partition -> line.append(' ').append(partition));
                    System.out.println(line);
                }
            }
        }
    }
}
