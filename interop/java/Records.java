import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** The twenty records and the digest of SCENARIO.md. */
final class Records {
    static final long BASE = 1_700_000_000_000L;
    static final long LATE = BASE + 8000;
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    private Records() {
    }

    static List<ProducerRecord<byte[], byte[]>> twenty(String topic, int partition, String codec) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            byte[] key = i % 5 == 4 ? null : i % 7 == 6 ? new byte[0] : bytes("key-" + i);
            byte[] value = i % 6 == 5 ? null
                    : i % 6 == 3 ? new byte[0] : bytes("value-" + codec + "-" + i + "-" + "x".repeat(100));
            List<Header> headers = switch (i % 3) {
                case 0 -> List.of(new RecordHeader("h", bytes("1")), new RecordHeader("h", bytes("2")));
                case 1 -> List.of(new RecordHeader("n", null), new RecordHeader("e", new byte[0]));
                default -> List.of();
            };
            long timestamp = i == 13 ? LATE : BASE + 1000L * i;
            records.add(new ProducerRecord<>(topic, partition, timestamp, key, value, headers));
        }
        return records;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String digest(List<ConsumerRecord<byte[], byte[]>> records) {
        StringBuilder lines = new StringBuilder();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            StringJoiner headers = new StringJoiner(",");
            record.headers().forEach(header -> headers.add(header.key() + ":" + encoded(header.value())));
            lines.append(record.offset()).append(' ').append(record.timestamp()).append(' ')
                    .append(encoded(record.key())).append(' ').append(encoded(record.value())).append(' ')
                    .append(headers).append('\n');
        }
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(bytes(lines.toString()));
            return HexFormat.of().formatHex(hash).substring(0, 16);
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String encoded(byte[] value) {
        return value == null ? "-" : "x" + HexFormat.of().formatHex(value);
    }
}
