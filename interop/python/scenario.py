"""The scenario of ../SCENARIO.md with confluent-kafka: `scenario.py BOOTSTRAP PREFIX`."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

import group
from records import BASE, CODECS, LATE, digest, twenty

WAIT = 30.0
BOOTSTRAP, PREFIX = sys.argv[1], sys.argv[2]
MAIN = f"{PREFIX}-records"
ACKS = f"{PREFIX}-acks"

# One for all: its answers end when it is collected.
ADMIN = AdminClient({"bootstrap.servers": BOOTSTRAP})

STEPS = []


def step(name):
    def add(run):
        STEPS.append((name, run))
        return run

    return add


def producer(**settings):
    return Producer({"bootstrap.servers": BOOTSTRAP, "linger.ms": 200, **dotted(settings)})


def consumer(group_id=None, **settings):
    return Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            # The consumer wants a group id even where it joins none.
            "group.id": group_id or f"{PREFIX}-none",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **dotted(settings),
        }
    )


def dotted(settings):
    return {name.replace("_", "."): value for name, value in settings.items()}


def outcome(future):
    """0, or the number of the error that an admin request ended with."""
    return code_of(lambda: future.result(timeout=WAIT))


def code_of(call):
    try:
        call()
    except KafkaException as error:
        return error.args[0].code()
    return 0


def send(client, topic, records, partition):
    """Produces the records and returns the offsets that they got, or raises the first error."""
    offsets, errors = [], []

    def acknowledged(error, message):
        if error is None:
            offsets.append(message.offset())
        else:
            errors.append(error)

    for key, value, headers, timestamp in records:
        extra = {} if timestamp is None else {"timestamp": timestamp}
        client.produce(
            topic, value, key, partition=partition, headers=headers, on_delivery=acknowledged, **extra
        )
    assert client.flush(WAIT) == 0, "not all records were acknowledged in time"
    if errors:
        raise KafkaException(errors[0])
    return offsets


def read(topic, partition, start, **settings):
    """The records of a partition from `start` to the end of the log."""
    client = consumer(**settings)
    try:
        client.assign([TopicPartition(topic, partition, start)])
        messages = []
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            message = client.poll(1.0)
            if message is None:
                continue
            if message.error() is None:
                messages.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return messages
            else:
                raise KafkaException(message.error())
        raise TimeoutError(f"no end of {topic}-{partition} after {len(messages)} records")
    finally:
        client.close()


def summary(messages):
    return {
        "first": messages[0].offset() if messages else None,
        "count": len(messages),
        "digest": digest(messages),
    }


@step("connect")
def connect():
    cluster = ADMIN.describe_cluster().result(timeout=WAIT)
    listed = ADMIN.list_topics(timeout=WAIT)
    return {
        "brokers": len(cluster.nodes),
        "controller": cluster.controller is not None,
        "cluster_id": bool(cluster.cluster_id) and cluster.cluster_id == listed.cluster_id,
    }


@step("create-topics")
def create_topics():
    client = ADMIN

    def create(name, partitions=1, replicas=1, config=None, **options):
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=config or {})
        return code_of(lambda: outcome_raising(client.create_topics([topic], **options)[name]))

    def outcome_raising(future):
        future.result(timeout=WAIT)

    main = {"retention.ms": "-1"}
    codes = {
        "main": create(MAIN, 10, config=main),
        "again": create(MAIN, 10, config=main),
        "name": create(f"{PREFIX}/slash"),
        "replicas": create(f"{PREFIX}-replicas", replicas=3),
        "config": create(f"{PREFIX}-config", config={"no.such.config": "1"}),
        "validated": create(f"{PREFIX}-validated", validate_only=True),
        "acks": create(ACKS, config=main),
    }
    codes["topics"] = own_topics(lambda names: ACKS in names)
    return codes


def own_topics(awaited):
    """Our topics without the prefix; Kafka answers a change before its metadata has followed."""
    deadline = time.monotonic() + WAIT
    while True:
        names = sorted(name for name in ADMIN.list_topics(timeout=WAIT).topics if name.startswith(PREFIX))
        if awaited(names) or time.monotonic() > deadline:
            return [name[len(PREFIX) :] for name in names]
        time.sleep(0.1)


@step("metadata")
def metadata():
    found = ADMIN.list_topics(MAIN, timeout=WAIT)
    partitions = found.topics[MAIN].partitions
    described = ADMIN.describe_topics(TopicCollection([MAIN]))[MAIN].result(timeout=WAIT)
    return {
        "partitions": sorted(partitions),
        "leaders": all(p.leader in found.brokers for p in partitions.values()),
        "replicas": sorted({len(p.replicas) for p in partitions.values()}),
        "in_sync": sorted({len(p.isrs) for p in partitions.values()}),
        "topic_id": str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA",
        "internal": described.is_internal,
    }


def produce(number, codec, idempotent):
    partition = 2 * number + idempotent
    client = producer(compression_type=codec, enable_idempotence=bool(idempotent))
    offsets = send(client, MAIN, twenty(codec), partition)
    return {"partition": partition, "offsets": [offsets[0], offsets[-1]], "in_order": offsets == sorted(offsets)}


for _number, _codec in enumerate(CODECS):
    for _idempotent in (0, 1):
        _name = f"produce/{_codec}" + ("/idempotent" if _idempotent else "")
        STEPS.append((_name, lambda n=_number, c=_codec, i=_idempotent: produce(n, c, i)))


@step("consume")
def consume():
    return {str(partition): summary(read(MAIN, partition, 0)) for partition in range(10)}


TIMES = [BASE - 1, BASE, BASE + 2500, LATE + 1, BASE + 13000, BASE + 19000, BASE + 19001]


@step("times")
def times():
    client = consumer()
    found = {}
    for partition in range(0, 10, 2):
        offsets = [
            client.offsets_for_times([TopicPartition(MAIN, partition, at)], timeout=WAIT)[0].offset for at in TIMES
        ]
        asked = {TopicPartition(MAIN, partition): OffsetSpec.max_timestamp()}
        (future,) = ADMIN.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED).values()
        latest = future.result(timeout=WAIT)
        low, high = client.get_watermark_offsets(TopicPartition(MAIN, partition), timeout=WAIT)
        found[str(partition)] = {
            "first_at_or_after": offsets,
            "greatest": [latest.offset, latest.timestamp],
            "watermarks": [low, high],
        }
    client.close()
    return found


@step("seek-time")
def seek_time():
    client = consumer()
    (found,) = client.offsets_for_times([TopicPartition(MAIN, 2, LATE + 1)], timeout=WAIT)
    client.close()
    return summary(read(MAIN, 2, found.offset))


@step("seek-into-batch")
def seek_into_batch():
    return {str(partition): summary(read(MAIN, partition, 7)) for partition in range(0, 10, 2)}


@step("small-fetches")
def small_fetches():
    small = {"max_partition_fetch_bytes": 200, "fetch_message_max_bytes": 200}
    return {str(partition): summary(read(MAIN, partition, 0, **small)) for partition in (0, 2)}


@step("acks")
def acks():
    result = {}
    for level in (0, 1):
        client = producer(acks=level)
        records = [(None, f"acks-{level}-{i}".encode(), [], BASE + i) for i in range(10)]
        send(client, ACKS, records, 0)
        result[str(level)] = summary(read(ACKS, 0, 0))
    return result


@step("commit-metadata")
def commit_metadata():
    client = consumer(f"{PREFIX}-metadata")
    client.commit(
        offsets=[TopicPartition(MAIN, 0, 5, metadata="five \u00e9"), TopicPartition(MAIN, 1, 7)], asynchronous=False
    )
    client.close()
    client = consumer(f"{PREFIX}-metadata")
    found = client.committed([TopicPartition(MAIN, p) for p in range(3)], timeout=WAIT)
    long = [TopicPartition(MAIN, 0, 6, metadata="x" * 5000)]
    refused = code_of(lambda: check(client.commit(offsets=long, asynchronous=False)))
    after = client.committed([TopicPartition(MAIN, 0)], timeout=WAIT)
    client.close()
    asked = ConsumerGroupTopicPartitions(f"{PREFIX}-metadata")
    listed = ADMIN.list_consumer_group_offsets([asked])[f"{PREFIX}-metadata"].result(timeout=WAIT)
    return {
        "committed": [[p.partition, p.offset, p.metadata] for p in found],
        "too_long": refused,
        "after": after[0].offset,
        "listed": sorted([p.partition, p.offset, p.metadata] for p in listed.topic_partitions),
    }


def check(partitions):
    for partition in partitions:
        if partition.error is not None:
            raise KafkaException(partition.error)


def subscribe_and_read(group_id, topic, count, **settings):
    client = consumer(group_id, **settings)
    try:
        client.subscribe([topic])
        offsets = []
        deadline = time.monotonic() + WAIT
        while len(offsets) < count and time.monotonic() < deadline:
            message = client.poll(1.0)
            if message is None or (message.error() and message.error().code() == KafkaError._PARTITION_EOF):
                continue
            if message.error():
                raise KafkaException(message.error())
            offsets.append(message.offset())
            client.commit(message, asynchronous=False)
        if len(offsets) < count:
            raise TimeoutError(f"{len(offsets)} of {count} records")
        return [offsets[0], offsets[-1]]
    finally:
        client.close()


@step("resume")
def resume():
    group_id = f"{PREFIX}-resume"
    result = {
        "first": subscribe_and_read(group_id, ACKS, 10),
        "then": subscribe_and_read(group_id, ACKS, 5),
        "static": subscribe_and_read(group_id, ACKS, 5, group_instance_id="one"),
    }
    # A group that has committed nothing starts at the end when told to, and sees what comes after.
    client = consumer(f"{PREFIX}-latest", auto_offset_reset="latest")
    client.subscribe([ACKS])
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        message = client.poll(1.0)
        if message is not None and message.error() and message.error().code() == KafkaError._PARTITION_EOF:
            result["latest"] = message.offset()
            break
    client.close()
    return result


def run_group(assignor):
    topic = f"{PREFIX}-group-{assignor}"
    new = NewTopic(topic, num_partitions=6, replication_factor=1, config={"retention.ms": "-1"})
    ADMIN.create_topics([new])[topic].result(timeout=WAIT)

    def produce_ten_each(round_number):
        client = producer()
        for partition in range(6):
            send(client, topic, [(None, f"{round_number}-{i}".encode(), [], None) for i in range(10)], partition)

    command = [sys.executable, group.__file__, BOOTSTRAP, topic, f"{PREFIX}-group-{assignor}", assignor]
    result = group.three_members(command, produce_ten_each)
    client = consumer(f"{PREFIX}-group-{assignor}")
    committed = client.committed([TopicPartition(topic, p) for p in range(6)], timeout=WAIT)
    client.close()
    result["committed"] = [p.offset for p in committed]
    return result


# Most of the step is waiting for a dead member's session to end: the groups wait together.
@step("group")
def groups():
    assignors = ("range", "roundrobin", "cooperative-sticky")
    with ThreadPoolExecutor(len(assignors)) as pool:
        return dict(zip(assignors, pool.map(run_group, assignors)))


@step("group-admin")
def group_admin():
    client, group_id = ADMIN, f"{PREFIX}-admin"
    member = consumer(group_id, client_id="the-member")
    member.subscribe([ACKS])
    deadline = time.monotonic() + WAIT
    while not member.assignment() and time.monotonic() < deadline:
        member.poll(0.2)
    member.commit(offsets=[TopicPartition(ACKS, 0, 3, metadata="three")], asynchronous=False)

    def describe():
        found = client.describe_consumer_groups([group_id])[group_id].result(timeout=WAIT)
        return {
            "state": found.state.name,
            "simple": found.is_simple_consumer_group,
            "assignor": found.partition_assignor,
            "members": [
                [m.client_id, bool(m.host), sorted(p.partition for p in m.assignment.topic_partitions)]
                for m in found.members
            ],
        }

    listed = client.list_consumer_groups().result(timeout=WAIT).valid
    result = {
        "listed": [g.state.name for g in listed if g.group_id == group_id],
        "live": describe(),
        "delete_live": outcome(client.delete_consumer_groups([group_id])[group_id]),
    }
    member.close()
    result["empty"] = describe()
    asked = [ConsumerGroupTopicPartitions(group_id)]
    offsets = client.list_consumer_group_offsets(asked)[group_id].result(timeout=WAIT).topic_partitions
    result["offsets"] = [[p.partition, p.offset, p.metadata] for p in offsets]
    moved = ConsumerGroupTopicPartitions(group_id, [TopicPartition(ACKS, 0, 1)])
    client.alter_consumer_group_offsets([moved])[group_id].result(timeout=WAIT)
    offsets = client.list_consumer_group_offsets(asked)[group_id].result(timeout=WAIT).topic_partitions
    result["moved"] = [[p.partition, p.offset] for p in offsets]
    result["delete"] = outcome(client.delete_consumer_groups([group_id])[group_id])
    result["delete_again"] = outcome(client.delete_consumer_groups([group_id])[group_id])
    return result


@step("delete-records")
def delete_records():
    client = ADMIN

    def delete(before):
        partition = TopicPartition(ACKS, 0, before)
        return client.delete_records([partition])[partition]

    result = {"low_watermark": delete(4).result(timeout=WAIT).low_watermark}
    result["beyond_the_end"] = outcome(delete(1000))
    result["lower"] = delete(2).result(timeout=WAIT).low_watermark
    result["read"] = summary(read(ACKS, 0, 0))
    return result


@step("create-partitions")
def create_partitions():
    client = ADMIN
    result = {
        "to_three": outcome(client.create_partitions([NewPartitions(ACKS, 3)])[ACKS]),
        "to_two": outcome(client.create_partitions([NewPartitions(ACKS, 2)])[ACKS]),
        "unknown": outcome(client.create_partitions([NewPartitions(f"{PREFIX}-nowhere", 2)])[f"{PREFIX}-nowhere"]),
        "partitions": sorted(client.list_topics(ACKS, timeout=WAIT).topics[ACKS].partitions),
    }
    result["offsets"] = send(producer(), ACKS, [(b"k", b"new", [], None)], 2)
    return result


@step("configs")
def configs():
    client = ADMIN

    def describe(topic=ACKS):
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = client.describe_configs([resource])[resource].result(timeout=WAIT)
        names = ("retention.ms", "cleanup.policy", "max.message.bytes")
        return {name: [found[name].value, found[name].is_default] for name in names}

    def retention(awaited):
        """What is shown, at the latest when it is `awaited`: Kafka answers a change before its metadata has followed."""
        deadline = time.monotonic() + WAIT
        while (shown := describe()["retention.ms"])[0] != awaited and time.monotonic() < deadline:
            time.sleep(0.1)
        return shown

    def alter(value, operation, topic=ACKS):
        entry = ConfigEntry("retention.ms", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        return outcome(client.incremental_alter_configs([resource])[resource])

    result = {"before": describe(), "set": alter("86400000", AlterConfigOpType.SET)}
    result["after"] = retention("86400000")
    result["delete"] = alter(None, AlterConfigOpType.DELETE)
    result["deleted"] = retention("604800000")
    result["no_number"] = alter("tomorrow", AlterConfigOpType.SET)
    result["unknown_topic"] = alter("1", AlterConfigOpType.SET, f"{PREFIX}-nowhere")
    result["describe_unknown"] = code_of(lambda: describe(f"{PREFIX}-nowhere"))
    resource = ConfigResource(ResourceType.TOPIC, ACKS, set_config={"retention.ms": "-1"})
    result["replaced"] = outcome(client.alter_configs([resource])[resource])
    result["at_last"] = retention("-1")
    return result


@step("errors")
def errors():
    nowhere = f"{PREFIX}-nowhere"
    unknown = producer(topic_metadata_propagation_max_ms=0)
    result = {"produce_unknown": code_of(lambda: send(unknown, nowhere, [(None, b"v", [], None)], 0))}
    result["read_unknown"] = code_of(lambda: subscribe_and_read(f"{PREFIX}-unknown", nowhere, 1))
    result["beyond_the_end"] = code_of(lambda: read(MAIN, 0, 1000, auto_offset_reset="error"))
    result["beyond_then_earliest"] = summary(read(MAIN, 0, 1000))["first"]
    large = producer(message_max_bytes=10_000_000)
    result["too_large"] = code_of(lambda: send(large, MAIN, [(None, b"x" * 2_000_000, [], BASE)], 0))
    topic = f"{PREFIX}-bounds"
    bounds = {"message.timestamp.before.max.ms": "3600000"}
    result["bounds"] = outcome(ADMIN.create_topics([NewTopic(topic, 1, 1, config=bounds)])[topic])
    result["old"] = code_of(lambda: send(producer(), topic, [(None, b"v", [], BASE)], 0))
    result["present"] = code_of(lambda: send(producer(), topic, [(None, b"v", [], None)], 0))
    return result


@step("transactions")
def transactions():
    topic = f"{PREFIX}-transactions"
    new = NewTopic(topic, 1, 1, config={"retention.ms": "-1"})
    ADMIN.create_topics([new])[topic].result(timeout=WAIT)
    client = producer(transactional_id=f"{PREFIX}-transactional")
    try:
        client.init_transactions(WAIT)
    except KafkaException as error:
        found = error.args[0]
        words = "no transactions" in found.str()
        return {"refused": found.code(), "fatal": found.fatal(), "retriable": found.retriable(), "in_words": words}
    for end in ("commit", "abort"):
        client.begin_transaction()
        send(client, topic, [(None, f"{end}-{i}".encode(), [], BASE + i) for i in range(10)], 0)
        if end == "commit":
            position = [TopicPartition(MAIN, 0, 9, metadata="in a transaction")]
            member = consumer(f"{PREFIX}-transactional")
            client.send_offsets_to_transaction(position, member.consumer_group_metadata(), WAIT)
            member.close()
            client.commit_transaction(WAIT)
        else:
            client.abort_transaction(WAIT)
    member = consumer(f"{PREFIX}-transactional")
    committed = member.committed([TopicPartition(MAIN, 0)], timeout=WAIT)[0]
    member.close()
    return {
        "read_committed": summary(read(topic, 0, 0, isolation_level="read_committed")),
        "read_uncommitted": summary(read(topic, 0, 0, isolation_level="read_uncommitted")),
        "committed": [committed.offset, committed.metadata],
    }


@step("group-protocol-consumer")
def group_protocol_consumer():
    group_id = f"{PREFIX}-protocol"
    client = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": group_id,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    client.subscribe([MAIN])
    count = 0
    deadline = time.monotonic() + WAIT
    try:
        while count < 200 and time.monotonic() < deadline:
            message = client.poll(0.5)
            if message is None:
                continue
            if message.error():
                return {"refused": message.error().code(), "fatal": message.error().fatal()}
            count += 1
    finally:
        client.close()
    return {"records": count}


@step("delete-topics")
def delete_topics():
    codes = [outcome(future) for future in ADMIN.delete_topics(own_names()).values()]
    nowhere = f"{PREFIX}-nowhere"
    return {
        "codes": sorted(set(codes)),
        "left": own_topics(lambda names: not names),
        "unknown": outcome(ADMIN.delete_topics([nowhere])[nowhere]),
    }


def own_names():
    return [PREFIX + name for name in own_topics(lambda names: True)]


def main():
    failed = False
    for name, run in STEPS:
        try:
            line = {"step": name, "result": run()}
        except Exception as error:  # One step's failure must not hide the next one's.
            line = {"step": name, "failed": f"{type(error).__name__}: {error}"}
            failed = True
        print(json.dumps(line), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
