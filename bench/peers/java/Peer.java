import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads given partitions with Java's consumer and prints one line of JSON: options as in ../../src/peer.rs. */
public final class Peer {
    /** How long a consumer waits for its first records, in nanoseconds. */
    private static final double FIRST_RECORD = 25e9;

    private Peer() {
    }

    public static void main(String[] arguments) {
        Map<String, String> options = new HashMap<>();
        Properties settings = new Properties();
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("enable.auto.commit", "false");
        for (int i = 0; i < arguments.length; i++) {
            String name = arguments[i];
            if (name.equals("--hash") || name.equals("--pauses")) {
                options.put(name, "");
            } else if (name.equals("--set")) {
                String[] setting = arguments[++i].split("=", 2);
                settings.put(setting[0], setting[1]);
            } else {
                options.put(name, arguments[++i]);
            }
        }
        settings.put("bootstrap.servers", options.get("--bootstrap"));
        if (options.containsKey("--ca")) {
            settings.put("security.protocol", "SSL");
            settings.put("ssl.truststore.type", "PEM");
            settings.put("ssl.truststore.location", options.get("--ca"));
        }
        String topic = options.get("--topic");
        boolean hashing = options.containsKey("--hash");
        double limit = Double.parseDouble(options.get("--seconds"));
        List<TopicPartition> partitions = new ArrayList<>();
        Map<Integer, Long> ends = new HashMap<>();
        int open = 0;
        for (String part : options.get("--ends").split(",")) {
            String[] pair = part.split("=");
            int partition = Integer.parseInt(pair[0]);
            long end = Long.parseLong(pair[1]);
            partitions.add(new TopicPartition(topic, partition));
            ends.put(partition, end);
            open += end > 0 ? 1 : 0;
        }

        long records = 0;
        long bytes = 0;
        long hash = 0;
        long timestamps = 0;
        boolean contiguous = true;
        Map<Integer, Long> next = new HashMap<>();
        // Loads the classes and starts the logging, which is not what is timed. Nothing connects before the first poll.
        new KafkaConsumer<>(settings).close(CloseOptions.timeout(Duration.ZERO));
        long begun = System.nanoTime();
        long last = begun;
        long first = -1;
        long resumed = begun;
        long longest = -1;
        boolean paused = false;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (open > 0 && (first < 0 ? System.nanoTime() - begun < FIRST_RECORD : System.nanoTime() - first < limit * 1e9)) {
                long asked = System.nanoTime();
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(100));
                if (polled.isEmpty()) {
                    continue;
                }
                if (paused) {
                    longest = Math.max(longest, System.nanoTime() - asked);
                }
                for (TopicPartition partition : polled.partitions()) {
                    long end = ends.get(partition.partition());
                    long expected = next.getOrDefault(partition.partition(), 0L);
                    for (ConsumerRecord<byte[], byte[]> record : polled.records(partition)) {
                        if (record.offset() >= end) {
                            continue;
                        }
                        contiguous &= record.offset() == expected;
                        expected = record.offset() + 1;
                        records++;
                        byte[] value = record.value();
                        timestamps ^= record.timestamp();
                        if (value != null) {
                            bytes += value.length;
                            if (hashing) {
                                CRC32 crc = new CRC32();
                                crc.update(value);
                                hash += crc.getValue();
                            }
                        }
                        if (expected == end) {
                            open--;
                        }
                    }
                    next.put(partition.partition(), expected);
                }
                last = System.nanoTime();
                first = first < 0 ? last : first;
                if (options.containsKey("--pauses") && last - resumed >= 2_000_000_000L) {
                    sleep(200);
                    resumed = System.nanoTime();
                    paused = true;
                }
            }
            System.out.printf("{\"records\":%d,\"bytes\":%d,\"seconds\":%.6f,\"first_seconds\":%s,\"hash\":%s,\"contiguous\":%s,"
                    + "\"complete\":%b,\"longest_gap_ms\":%s,\"note\":\"%s\"}%n", records, bytes,
                    (last - begun) / 1e9, first < 0 ? "null" : (first - begun) / 1e9, hashing ? "\"" + Long.toUnsignedString(hash) + "\"" : "null",
                    hashing ? contiguous : "null", open == 0, paused ? longest / 1e6 : "null",
                    // Printed so that the timestamps are read.
                    timestamps == Long.MIN_VALUE ? "odd timestamps" : "");
            System.out.flush();
            // Closing waits for fetches on their way, which is no part of reading.
            Runtime.getRuntime().halt(0);
        }
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
