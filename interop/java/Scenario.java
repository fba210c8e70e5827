import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The scenario of ../SCENARIO.md with Apache Kafka's own clients: {@code Scenario BOOTSTRAP PREFIX}. */
final class Scenario {
    private static final long WAIT_SECONDS = 30;

    private final String bootstrap;
    private final String prefix;
    private final String main;
    private final String acks;
    private final Admin admin;
    private boolean failed;

    /** What a step does; its result becomes JSON. */
    interface Step {
        Object run() throws Exception;
    }

    interface Call {
        void run() throws Exception;
    }

    private Scenario(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
        this.main = prefix + "-records";
        this.acks = prefix + "-acks";
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) {
        Scenario scenario = new Scenario(arguments[0], arguments[1]);
        scenario.run();
        scenario.admin.close();
        System.exit(scenario.failed ? 1 : 0);
    }

    private void run() {
        step("connect", this::connect);
        step("create-topics", this::createTopics);
        step("metadata", this::metadata);
        for (String codec : Records.CODECS) {
            step("produce/" + codec, () -> produce(codec, false));
            step("produce/" + codec + "/idempotent", () -> produce(codec, true));
        }
        step("consume", this::consume);
        step("times", this::times);
        step("seek-time", this::seekTime);
        step("seek-into-batch", this::seekIntoBatch);
        step("small-fetches", this::smallFetches);
        step("acks", this::acks);
        step("commit-metadata", this::commitMetadata);
        step("resume", this::resume);
        step("group", this::groups);
        step("group-admin", this::groupAdmin);
        step("delete-records", this::deleteRecords);
        step("create-partitions", this::createPartitions);
        step("configs", this::configs);
        step("errors", this::errors);
        step("transactions", this::transactions);
        step("group-protocol-consumer", this::groupProtocolConsumer);
        step("delete-topics", this::deleteTopics);
    }

    /** One step's failure must not hide the next one's. */
    private void step(String name, Step step) {
        Map<String, Object> line = Json.object("step", name);
        try {
            line.put("result", step.run());
        } catch (Exception error) {
            line.put("failed", error.toString());
            failed = true;
        }
        System.out.println(Json.write(line));
    }

    private static <T> T get(Future<T> future) throws Exception {
        try {
            return future.get(WAIT_SECONDS, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            throw error.getCause() instanceof Exception cause ? cause : error;
        }
    }

    /** 0, or Kafka's number of the error that it ended with. */
    private static int code(Call call) throws Exception {
        try {
            call.run();
            return 0;
        } catch (ApiException error) {
            return Errors.forException(error).code();
        }
    }

    private static int code(Future<?> future) throws Exception {
        return code(() -> get(future));
    }

    private KafkaProducer<byte[], byte[]> producer(Object... settings) {
        Map<String, Object> all = Json.object("bootstrap.servers", bootstrap, "linger.ms", 200, "max.block.ms", 5000,
                "enable.idempotence", false);
        all.putAll(Json.object(settings));
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(Object... settings) {
        Map<String, Object> all = Json.object("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest",
                "enable.auto.commit", false, "allow.auto.create.topics", false);
        all.putAll(Json.object(settings));
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, int partition, Long timestamp, String value) {
        return new ProducerRecord<>(topic, partition, timestamp, null, Records.bytes(value));
    }

    /** The offsets that the records got. */
    private static List<Long> send(KafkaProducer<byte[], byte[]> producer,
            Collection<ProducerRecord<byte[], byte[]>> records) throws Exception {
        List<Future<RecordMetadata>> sent = records.stream().map(producer::send).toList();
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> future : sent) {
            offsets.add(get(future).offset());
        }
        return offsets;
    }

    private static List<ProducerRecord<byte[], byte[]>> ten(String topic, int partition, String text) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            records.add(record(topic, partition, Records.BASE + i, text + "-" + i));
        }
        return records;
    }

    /** The records of a partition from {@code start} to the end of the log. */
    private List<ConsumerRecord<byte[], byte[]>> read(String topic, int number, long start, Object... settings)
            throws TimeoutException {
        TopicPartition partition = new TopicPartition(topic, number);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.assign(Set.of(partition));
            consumer.seek(partition, start);
            long end = consumer.endOffsets(Set.of(partition), Duration.ofSeconds(WAIT_SECONDS)).get(partition);
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
            // A position beyond the end is one only until the broker has been asked.
            for (boolean asked = false; !asked || consumer.position(partition) < end; asked = true) {
                consumer.poll(Duration.ofMillis(500)).forEach(records::add);
                if (System.nanoTime() > deadline) {
                    throw new TimeoutException(records.size() + " records, the end is " + end);
                }
            }
            return records;
        }
    }

    private static Map<String, Object> summary(List<ConsumerRecord<byte[], byte[]>> records) {
        return Json.object("first", records.isEmpty() ? null : records.get(0).offset(), "count", records.size(),
                "digest", Records.digest(records));
    }

    private Object connect() throws Exception {
        var cluster = admin.describeCluster();
        return Json.object("brokers", get(cluster.nodes()).size(), "controller", get(cluster.controller()) != null,
                "cluster_id", !get(cluster.clusterId()).isEmpty(), "rack", get(cluster.nodes()).iterator().next().hasRack());
    }

    private int create(NewTopic topic, boolean validateOnly) throws Exception {
        return code(admin.createTopics(List.of(topic), new CreateTopicsOptions().validateOnly(validateOnly)).all());
    }

    private NewTopic newTopic(String suffix, int partitions) {
        return new NewTopic(prefix + suffix, partitions, (short) 1).configs(Map.of("retention.ms", "-1"));
    }

    private Object createTopics() throws Exception {
        Map<String, Object> codes = new LinkedHashMap<>();
        codes.put("main", create(newTopic("-records", 10), false));
        codes.put("again", create(newTopic("-records", 10), false));
        codes.put("name", create(newTopic("/slash", 1), false));
        codes.put("partitions", create(newTopic("-partitions", 0), false));
        codes.put("replicas", create(new NewTopic(prefix + "-replicas", 1, (short) 3), false));
        codes.put("config", create(newTopic("-config", 1).configs(Map.of("no.such.config", "1")), false));
        codes.put("validated", create(newTopic("-validated", 1), true));
        NewTopic assigned = new NewTopic(prefix + "-assigned", Map.of(0, List.of(12345)));
        codes.put("assigned_elsewhere", create(assigned, false));
        NewTopic defaults = new NewTopic(acks, Optional.empty(), Optional.empty());
        codes.put("acks", create(defaults.configs(Map.of("retention.ms", "-1")), false));
        codes.put("topics", ownTopics(names -> names.contains(acks)));
        return codes;
    }

    /** Our topics without the prefix; Kafka answers a change before its metadata has followed. */
    private List<String> ownTopics(Predicate<Set<String>> awaited) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
        while (true) {
            Set<String> names = new TreeSet<>(get(admin.listTopics().names()));
            names.removeIf(name -> !name.startsWith(prefix));
            if (awaited.test(names) || System.nanoTime() > deadline) {
                return names.stream().map(name -> name.substring(prefix.length())).toList();
            }
            TimeUnit.MILLISECONDS.sleep(100);
        }
    }

    private Object metadata() throws Exception {
        TopicDescription topic = get(admin.describeTopics(List.of(main)).allTopicNames()).get(main);
        var partitions = topic.partitions();
        return Json.object("partitions", partitions.stream().map(p -> p.partition()).toList(),
                "leaders", partitions.stream().allMatch(p -> p.leader() != null && p.leader().port() > 0),
                "replicas", partitions.stream().map(p -> p.replicas().size()).distinct().toList(),
                "in_sync", partitions.stream().map(p -> p.isr().size()).distinct().toList(),
                "topic_id", !topic.topicId().equals(org.apache.kafka.common.Uuid.ZERO_UUID),
                "internal", topic.isInternal());
    }

    private Object produce(String codec, boolean idempotent) throws Exception {
        int partition = 2 * Records.CODECS.indexOf(codec) + (idempotent ? 1 : 0);
        try (var producer = producer("compression.type", codec, "enable.idempotence", idempotent)) {
            List<Long> offsets = send(producer, Records.twenty(main, partition, codec));
            return Json.object("partition", partition, "offsets", List.of(offsets.get(0), offsets.get(19)),
                    "in_order", offsets.stream().sorted().toList().equals(offsets));
        }
    }

    private Object consume() throws Exception {
        Map<Integer, Object> found = new TreeMap<>();
        for (int partition = 0; partition < 10; partition++) {
            found.put(partition, summary(read(main, partition, 0)));
        }
        return found;
    }

    private Object times() throws Exception {
        long base = Records.BASE;
        List<Long> asked = List.of(base - 1, base, base + 2500, Records.LATE + 1, base + 13000, base + 19000,
                base + 19001);
        Map<Integer, Object> found = new TreeMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            for (int number = 0; number < 10; number += 2) {
                TopicPartition partition = new TopicPartition(main, number);
                List<Long> offsets = new ArrayList<>();
                for (long time : asked) {
                    OffsetAndTimestamp at = consumer.offsetsForTimes(Map.of(partition, time)).get(partition);
                    offsets.add(at == null ? -1 : at.offset());
                }
                ListOffsetsResultInfo greatest = listed(partition, OffsetSpec.maxTimestamp());
                found.put(number, Json.object("first_at_or_after", offsets,
                        "greatest", List.of(greatest.offset(), greatest.timestamp()),
                        "watermarks", List.of(listed(partition, OffsetSpec.earliest()).offset(),
                                listed(partition, OffsetSpec.latest()).offset()),
                        "local", listed(partition, OffsetSpec.earliestLocal()).offset(),
                        "tiered", listed(partition, OffsetSpec.latestTiered()).offset()));
            }
        }
        return found;
    }

    private ListOffsetsResultInfo listed(TopicPartition partition, OffsetSpec spec) throws Exception {
        return get(admin.listOffsets(Map.of(partition, spec)).partitionResult(partition));
    }

    private Object seekTime() throws Exception {
        TopicPartition partition = new TopicPartition(main, 2);
        return summary(read(main, 2, listed(partition, OffsetSpec.forTimestamp(Records.LATE + 1)).offset()));
    }

    private Object seekIntoBatch() throws Exception {
        Map<Integer, Object> found = new TreeMap<>();
        for (int partition = 0; partition < 10; partition += 2) {
            found.put(partition, summary(read(main, partition, 7)));
        }
        return found;
    }

    private Object smallFetches() throws Exception {
        Map<Integer, Object> found = new TreeMap<>();
        for (int partition : List.of(0, 2)) {
            found.put(partition, summary(read(main, partition, 0, "max.partition.fetch.bytes", 200,
                    "fetch.max.bytes", 200)));
        }
        return found;
    }

    private Object acks() throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (String level : List.of("0", "1")) {
            try (var producer = producer("acks", level)) {
                send(producer, ten(acks, 0, "acks-" + level));
            }
            found.put(level, summary(read(acks, 0, 0)));
        }
        return found;
    }

    private static List<Object> committed(int partition, OffsetAndMetadata offset) {
        List<Object> fields = new ArrayList<>();
        fields.add(partition);
        fields.add(offset == null ? null : offset.offset());
        fields.add(offset == null ? null : offset.metadata());
        return fields;
    }

    private List<Object> committedOffsets(String group) throws Exception {
        var spec = Map.of(group, new ListConsumerGroupOffsetsSpec());
        var offsets = get(admin.listConsumerGroupOffsets(spec).partitionsToOffsetAndMetadata(group));
        return offsets.entrySet().stream().sorted((a, b) -> a.getKey().partition() - b.getKey().partition())
                .map(entry -> (Object) committed(entry.getKey().partition(), entry.getValue())).toList();
    }

    private Object commitMetadata() throws Exception {
        String group = prefix + "-metadata";
        TopicPartition zero = new TopicPartition(main, 0);
        TopicPartition one = new TopicPartition(main, 1);
        TopicPartition two = new TopicPartition(main, 2);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", group)) {
            consumer.commitSync(Map.of(zero, new OffsetAndMetadata(5, Optional.of(0), "five \u00e9"),
                    one, new OffsetAndMetadata(7)));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", group)) {
            Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(Set.of(zero, one, two));
            int tooLong = code(() -> consumer.commitSync(Map.of(zero, new OffsetAndMetadata(6, "x".repeat(5000)))));
            OffsetAndMetadata after = consumer.committed(Set.of(zero)).get(zero);
            return Json.object("committed",
                    List.of(committed(0, found.get(zero)), committed(1, found.get(one)), committed(2, found.get(two))),
                    "epoch", found.get(zero).leaderEpoch().orElse(null),
                    "too_long", tooLong, "after", after.offset(), "listed", committedOffsets(group));
        }
    }

    private List<Long> subscribeAndRead(String group, String topic, int count, Object... settings) throws Exception {
        Map<String, Object> all = Json.object("group.id", group, "max.poll.records", 1);
        all.putAll(Json.object(settings));
        Object[] flat = all.entrySet().stream().flatMap(e -> List.of(e.getKey(), e.getValue()).stream()).toArray();
        List<Long> offsets = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(flat)) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
            while (offsets.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    offsets.add(record.offset());
                }
                consumer.commitSync();
            }
        }
        if (offsets.size() < count) {
            throw new TimeoutException(offsets.size() + " of " + count + " records");
        }
        return List.of(offsets.get(0), offsets.get(offsets.size() - 1));
    }

    private Object resume() throws Exception {
        String group = prefix + "-resume";
        Map<String, Object> found = Json.object("first", subscribeAndRead(group, acks, 10),
                "then", subscribeAndRead(group, acks, 5),
                "static", subscribeAndRead(group, acks, 5, "group.instance.id", "one"));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", prefix + "-latest",
                "auto.offset.reset", "latest")) {
            consumer.subscribe(List.of(acks));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
            while (consumer.assignment().isEmpty() && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(200));
            }
            found.put("latest", consumer.position(new TopicPartition(acks, 0)));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", prefix + "-none",
                "auto.offset.reset", "none")) {
            consumer.subscribe(List.of(acks));
            String refused = "nothing";
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
            while (refused.equals("nothing") && System.nanoTime() < deadline) {
                try {
                    consumer.poll(Duration.ofMillis(200));
                } catch (KafkaException error) {
                    refused = error.getClass().getSimpleName();
                }
            }
            found.put("none", refused);
        }
        return found;
    }

    /** Most of the step is waiting for a dead member's session to end: the groups wait together. */
    private Object groups() throws Exception {
        List<String> assignors = List.of("RangeAssignor", "StickyAssignor", "CooperativeStickyAssignor");
        ExecutorService pool = Executors.newFixedThreadPool(assignors.size());
        try {
            Map<String, Future<Object>> played = new LinkedHashMap<>();
            assignors.forEach(assignor -> played.put(assignor, pool.submit(() -> group(assignor))));
            Map<String, Object> found = new LinkedHashMap<>();
            for (Map.Entry<String, Future<Object>> each : played.entrySet()) {
                found.put(each.getKey(), each.getValue().get());
            }
            return found;
        } finally {
            pool.shutdownNow();
        }
    }

    private Object group(String assignor) throws Exception {
        String topic = prefix + "-group-" + assignor;
        get(admin.createTopics(List.of(newTopic("-group-" + assignor, 6))).all());
        String java = ProcessHandle.current().info().command().orElse("java");
        List<String> command = List.of(java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
                System.getProperty("java.class.path"), "Member", bootstrap, topic, topic, assignor);
        Map<String, Object> found = Members.play(command, round -> {
            try (var producer = producer()) {
                List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
                for (int partition = 0; partition < 6; partition++) {
                    records.addAll(ten(topic, partition, "round-" + round));
                }
                send(producer, records);
            }
        });
        found.put("committed", committedOffsets(topic));
        return found;
    }

    private Map<String, Object> described(String group) throws Exception {
        ConsumerGroupDescription found = get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
        List<Object> members = found.members().stream().map(member -> (Object) List.of(member.clientId(),
                !member.host().isEmpty(),
                member.assignment().topicPartitions().stream().map(TopicPartition::partition).sorted().toList()))
                .toList();
        return Json.object("state", found.groupState(), "simple", found.isSimpleConsumerGroup(),
                "assignor", found.partitionAssignor(), "type", found.type(), "members", members);
    }

    private Object groupAdmin() throws Exception {
        String group = prefix + "-admin";
        Map<String, Object> found = new LinkedHashMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", group, "client.id", "the-member")) {
            consumer.subscribe(List.of(acks));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
            while (consumer.assignment().isEmpty() && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(200));
            }
            consumer.commitSync(Map.of(new TopicPartition(acks, 0), new OffsetAndMetadata(3, "three")));
            found.put("listed", get(admin.listGroups().valid()).stream()
                    .filter(listed -> listed.groupId().equals(group))
                    .map(listed -> listed.groupState().map(Object::toString).orElse("?") + " " + listed.protocol())
                    .collect(Collectors.toList()));
            found.put("live", described(group));
            found.put("delete_live", code(admin.deleteConsumerGroups(List.of(group)).all()));
        }
        found.put("empty", described(group));
        found.put("offsets", committedOffsets(group));
        found.put("move", code(admin.alterConsumerGroupOffsets(group,
                Map.of(new TopicPartition(acks, 0), new OffsetAndMetadata(1))).all()));
        found.put("moved", committedOffsets(group));
        // What makes the group go on existing without the other one.
        found.put("keep", code(admin.alterConsumerGroupOffsets(group,
                Map.of(new TopicPartition(main, 1), new OffsetAndMetadata(2))).all()));
        found.put("forget", code(admin.deleteConsumerGroupOffsets(group, Set.of(new TopicPartition(acks, 0))).all()));
        found.put("forgotten", committedOffsets(group));
        found.put("delete", code(admin.deleteConsumerGroups(List.of(group)).all()));
        found.put("delete_again", code(admin.deleteConsumerGroups(List.of(group)).all()));
        found.put("describe_deleted", code(admin.describeConsumerGroups(List.of(group)).all()));
        return found;
    }

    private Object deleteRecords() throws Exception {
        TopicPartition partition = new TopicPartition(acks, 0);
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("low_watermark", deleteBefore(partition, 4));
        found.put("beyond_the_end", code(() -> deleteBefore(partition, 1000)));
        found.put("lower", deleteBefore(partition, 2));
        found.put("read", summary(read(acks, 0, 0)));
        return found;
    }

    private long deleteBefore(TopicPartition partition, long offset) throws Exception {
        var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(offset)));
        return get(deleted.lowWatermarks().get(partition)).lowWatermark();
    }

    private Object createPartitions() throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("to_three", code(admin.createPartitions(Map.of(acks, NewPartitions.increaseTo(3))).all()));
        found.put("to_two", code(admin.createPartitions(Map.of(acks, NewPartitions.increaseTo(2))).all()));
        found.put("unknown", code(
                admin.createPartitions(Map.of(prefix + "-nowhere", NewPartitions.increaseTo(2))).all()));
        try (var producer = producer()) {
            found.put("offsets", send(producer, List.of(record(acks, 2, null, "new"))));
        }
        var described = get(admin.describeTopics(List.of(acks)).allTopicNames()).get(acks);
        found.put("partitions", described.partitions().stream().map(p -> p.partition()).toList());
        return found;
    }

    private Map<String, Object> describeConfigs(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config found = get(admin.describeConfigs(List.of(resource)).all()).get(resource);
        Map<String, Object> values = new LinkedHashMap<>();
        for (String name : List.of("retention.ms", "cleanup.policy", "max.message.bytes")) {
            ConfigEntry entry = found.get(name);
            values.put(name, List.of(entry.value(), entry.source(), entry.type(), entry.isReadOnly()));
        }
        return values;
    }

    /** What is shown of the retention, at the latest when it is {@code awaited}: Kafka answers a change before its metadata has followed. */
    private Object retention(String awaited) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
        while (true) {
            List<?> shown = (List<?>) describeConfigs(acks).get("retention.ms");
            if (awaited.equals(shown.get(0)) || System.nanoTime() > deadline) {
                return shown;
            }
            TimeUnit.MILLISECONDS.sleep(100);
        }
    }

    private int alter(String topic, String value, AlterConfigOp.OpType operation) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp alter = new AlterConfigOp(new ConfigEntry("retention.ms", value), operation);
        return code(admin.incrementalAlterConfigs(Map.of(resource, List.of(alter))).all());
    }

    private Object configs() throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("before", describeConfigs(acks));
        found.put("set", alter(acks, "86400000", AlterConfigOp.OpType.SET));
        found.put("after", retention("86400000"));
        found.put("delete", alter(acks, null, AlterConfigOp.OpType.DELETE));
        found.put("deleted", retention("604800000"));
        found.put("append", alter(acks, "1", AlterConfigOp.OpType.APPEND));
        found.put("no_number", alter(acks, "tomorrow", AlterConfigOp.OpType.SET));
        found.put("unknown_topic", alter(prefix + "-nowhere", "1", AlterConfigOp.OpType.SET));
        found.put("describe_unknown", code(() -> describeConfigs(prefix + "-nowhere")));
        found.put("set_back", alter(acks, "-1", AlterConfigOp.OpType.SET));
        found.put("at_last", retention("-1"));
        return found;
    }

    private Object errors() throws Exception {
        String nowhere = prefix + "-nowhere";
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("describe_unknown", code(admin.describeTopics(List.of(nowhere)).allTopicNames()));
        try (var producer = producer("max.block.ms", 1000)) {
            // A topic that does not exist is awaited, then given up: the reason is named in the cause.
            try {
                send(producer, List.of(record(nowhere, 0, null, "v")));
                found.put("produce_unknown", "nothing");
            } catch (KafkaException error) {
                found.put("produce_unknown", error.getClass().getSimpleName());
            }
        }
        try {
            read(main, 0, 1000, "auto.offset.reset", "none");
            found.put("beyond_the_end", "nothing");
        } catch (KafkaException error) {
            found.put("beyond_the_end", error.getClass().getSimpleName());
        }
        found.put("beyond_then_earliest", readBeyond());
        try (var producer = producer("max.request.size", 10_000_000)) {
            found.put("too_large",
                    code(() -> send(producer, List.of(record(main, 0, Records.BASE, "x".repeat(2_000_000))))));
        }
        NewTopic bounds = new NewTopic(prefix + "-bounds", 1, (short) 1)
                .configs(Map.of("message.timestamp.before.max.ms", "3600000"));
        found.put("bounds", code(admin.createTopics(List.of(bounds)).all()));
        try (var producer = producer()) {
            found.put("old",
                    code(() -> send(producer, List.of(record(prefix + "-bounds", 0, Records.BASE, "v")))));
            found.put("present", code(() -> send(producer, List.of(record(prefix + "-bounds", 0, null, "v")))));
        }
        return found;
    }

    private long readBeyond() throws Exception {
        TopicPartition partition = new TopicPartition(main, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(Set.of(partition));
            consumer.seek(partition, 1000);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
            while (System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    return record.offset();
                }
            }
        }
        throw new TimeoutException("no record after the reset");
    }

    private Object transactions() throws Exception {
        String topic = prefix + "-transactions";
        String group = prefix + "-transactional";
        get(admin.createTopics(List.of(newTopic("-transactions", 1))).all());
        try (var producer = producer("transactional.id", group, "enable.idempotence", true);
                KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", group)) {
            try {
                producer.initTransactions();
            } catch (KafkaException error) {
                return Json.object("refused", error.getClass().getSimpleName(),
                        "in_words", error.getMessage().contains("no transactions"));
            }
            producer.beginTransaction();
            send(producer, ten(topic, 0, "commit"));
            producer.sendOffsetsToTransaction(Map.of(new TopicPartition(main, 0),
                    new OffsetAndMetadata(9, "in a transaction")), consumer.groupMetadata());
            producer.commitTransaction();
            producer.beginTransaction();
            send(producer, ten(topic, 0, "abort"));
            producer.abortTransaction();
        }
        return Json.object(
                "read_committed", summary(read(topic, 0, 0, "isolation.level", "read_committed")),
                "read_uncommitted", summary(read(topic, 0, 0, "isolation.level", "read_uncommitted")),
                "committed", committedOffsets(group));
    }

    private Object groupProtocolConsumer() throws Exception {
        int count = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", prefix + "-protocol",
                "group.protocol", "consumer")) {
            consumer.subscribe(List.of(main));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
            while (count < 200 && System.nanoTime() < deadline) {
                try {
                    count += consumer.poll(Duration.ofMillis(500)).count();
                } catch (KafkaException error) {
                    return Json.object("refused", error.getClass().getSimpleName());
                }
            }
        }
        return Json.object("records", count);
    }

    private Object deleteTopics() throws Exception {
        Set<Integer> codes = new TreeSet<>();
        for (String suffix : ownTopics(names -> true)) {
            codes.add(code(admin.deleteTopics(List.of(prefix + suffix)).all()));
        }
        return Json.object("codes", codes, "left", ownTopics(Set::isEmpty),
                "unknown", code(admin.deleteTopics(List.of(prefix + "-nowhere")).all()));
    }
}
