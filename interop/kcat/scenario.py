"""The scenario of ../SCENARIO.md with kcat: `scenario.py KCAT BOOTSTRAP PREFIX`. The topics are there already."""

import hashlib
import json
import queue
import re
import subprocess
import sys
import threading
import time

WAIT = 30.0
GROUP_WAIT = 90.0
KCAT, BOOTSTRAP, PREFIX = sys.argv[1:4]
MAIN, ACKS = f"{PREFIX}-records", f"{PREFIX}-acks"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

STEPS = []


def step(name):
    def add(run):
        STEPS.append((name, run))
        return run

    return add


def command(*arguments):
    return [KCAT, "-b", BOOTSTRAP, *arguments]


def kcat(*arguments, stdin=""):
    done = subprocess.run(command(*arguments), input=stdin, capture_output=True, text=True, timeout=WAIT)
    if done.returncode != 0:
        raise RuntimeError(f"kcat {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def complaint(*arguments, stdin=""):
    """What the broker's error is called, when kcat fails with one."""
    try:
        kcat(*arguments, stdin=stdin)
    except RuntimeError as error:
        return named(str(error))
    return "none"


def named(text):
    found = re.search(r"(Broker|Local): [\w ,'/-]+", text)
    return found.group(0).strip() if found else text


def read(topic, partition, start, *options):
    """The records of a partition from `start` to the end of the log, as kcat's JSON has them."""
    out = kcat("-C", "-t", topic, "-p", str(partition), "-o", str(start), "-e", "-q", "-J", *options)
    return [json.loads(line) for line in out.splitlines()]


def summary(records):
    fields = [[r["offset"], r["key"], r["payload"], r.get("headers")] for r in records]
    return {
        "first": records[0]["offset"] if records else None,
        "count": len(records),
        "digest": hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:16],
        "create_time": all(r["tstype"] == "create" and r["ts"] > 0 for r in records),
    }


def metadata_of(*arguments):
    return json.loads(kcat("-L", "-J", *arguments))


@step("connect")
def connect():
    found = metadata_of()
    nodes = [broker["id"] for broker in found["brokers"]]
    return {
        "brokers": len(nodes),
        "controller": found["controllerid"] in nodes,
        "originating": found["originating_broker"]["id"] in [*nodes, -1],
        "topics": sorted(t["topic"][len(PREFIX) :] for t in found["topics"] if t["topic"].startswith(PREFIX)),
    }


@step("metadata")
def metadata():
    found = metadata_of("-t", MAIN)
    (topic,) = found["topics"]
    nodes = {broker["id"] for broker in found["brokers"]}
    return {
        "partitions": sorted(p["partition"] for p in topic["partitions"]),
        "leaders": all(p["leader"] in nodes for p in topic["partitions"]),
        "replicas": sorted({len(p["replicas"]) for p in topic["partitions"]}),
        "in_sync": sorted({len(p["isrs"]) for p in topic["partitions"]}),
    }


def line(codec, i):
    """With `-Z`, what is empty is null."""
    key = "" if i % 5 == 4 else f"key-{i}"
    value = "" if i % 6 == 5 else f"value-{codec}-{i}-{'x' * 100}"
    return f"{key}:{value}\n"


def produce(number, codec, idempotent):
    partition = 2 * number + idempotent
    headers = ("-H", "h=1", "-H", "h=2", "-H", "n", "-H", "e=")
    options = ("-z", codec, "-X", f"enable.idempotence={'true' if idempotent else 'false'}", "-X", "linger.ms=500")
    producer = subprocess.Popen(
        command("-P", "-t", MAIN, "-p", str(partition), "-K:", "-Z", *headers, *options),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # kcat stamps a record when it has read its line: times apart in one batch.
    for i in range(20):
        producer.stdin.write(line(codec, i))
        producer.stdin.flush()
        time.sleep(0.01)
    _, said = producer.communicate(timeout=WAIT)
    return {"partition": partition, "exit": producer.returncode, "said": said}


for _number, _codec in enumerate(CODECS):
    for _idempotent in (0, 1):
        _name = f"produce/{_codec}" + ("/idempotent" if _idempotent else "")
        STEPS.append((_name, lambda n=_number, c=_codec, i=_idempotent: produce(n, c, i)))


@step("consume")
def consume():
    return {str(partition): summary(read(MAIN, partition, "beginning")) for partition in range(10)}


def query(partition, timestamp):
    out = kcat("-Q", "-t", f"{MAIN}:{partition}:{timestamp}")
    return int(re.search(r"offset (-?\d+)", out).group(1))


@step("times")
def times():
    found = {}
    for partition in range(0, 10, 2):
        records = read(MAIN, partition, "beginning")
        stamps = [r["ts"] for r in records]
        first = [next(o for o, other in enumerate(stamps) if other >= stamp) for stamp in stamps]
        found[str(partition)] = {
            "exact": [query(partition, stamp) for stamp in stamps[::4]] == first[::4],
            "before_all": query(partition, stamps[0] - 1),
            "after_all": query(partition, max(stamps) + 1),
            "apart": len(set(stamps)) > 5,
        }
    return found


@step("seek-time")
def seek_time():
    records = read(MAIN, 2, "beginning")
    stamp = records[9]["ts"]
    must = [r for r in records if r["offset"] >= query(2, stamp)]
    return {"same": read(MAIN, 2, f"s@{stamp}") == must, "none_after": len(read(MAIN, 2, f"s@{stamp + 3_600_000}"))}


@step("seek-into-batch")
def seek_into_batch():
    found = {str(partition): summary(read(MAIN, partition, 7)) for partition in range(0, 10, 2)}
    found["last_five"] = summary(read(MAIN, 0, -5))
    return found


@step("small-fetches")
def small_fetches():
    return {str(p): summary(read(MAIN, p, "beginning", "-X", "fetch.message.max.bytes=200")) for p in (0, 2)}


@step("acks")
def acks():
    found = {}
    for level in (0, 1):
        lines = "".join(f"acks-{level}-{i}\n" for i in range(10))
        kcat("-P", "-t", ACKS, "-p", "0", "-X", f"acks={level}", stdin=lines)
        # Nothing tells a producer without acknowledgements that its records are there.
        deadline = time.monotonic() + WAIT
        while len(records := read(ACKS, 0, "beginning")) < 10 * (level + 1) and time.monotonic() < deadline:
            pass
        found[str(level)] = summary(records)
    return found


def grouped(group, *arguments):
    options = ("-X", "auto.offset.reset=earliest", "-J", "-q")
    # Behind -G, kcat takes all that is no option for topics.
    out = kcat(*options, *arguments, "-G", group, ACKS)
    return [json.loads(line)["offset"] for line in out.splitlines()]


@step("resume")
def resume():
    group = f"{PREFIX}-resume"
    first, then, rest = grouped(group, "-c", "10"), grouped(group, "-c", "5"), grouped(group, "-e")
    return {"first": [first[0], first[-1]], "then": [then[0], then[-1]], "rest": [rest[0], rest[-1]]}


class Members:
    """Three `kcat -G`: records on standard output, rebalances on standard error."""

    def __init__(self, group, topic):
        self.processes, self.assigned, self.read, self.events = [], [], set(), queue.Queue()
        settings = {
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "auto.commit.interval.ms": 100,
            "auto.offset.reset": "earliest",
        }
        options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
        self.command = command(*options, "-u", "-f", "%p %o\\n", "-G", group, topic)

    def start(self):
        process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        number = len(self.processes)
        self.processes.append(process)
        self.assigned.append(set())
        for stream in (process.stdout, process.stderr):
            threading.Thread(target=self._follow, args=(number, stream), daemon=True).start()

    def _follow(self, number, stream):
        for text in stream:
            self.events.put((number, text))

    def until(self, what, reached):
        deadline = time.monotonic() + GROUP_WAIT
        while not reached():
            try:
                number, text = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"waiting for {what}: {self.assigned}, {len(self.read)} records read") from None
            if re.fullmatch(r"\d+ \d+\n", text):
                self.read.add(text)
            elif "rebalanced" in text:
                named = {int(p) for p in re.findall(r"\[(\d+)\]", text)}
                self.assigned[number] = named if "assigned:" in text else set()

    def each_has(self, numbers, count):
        owned = [self.assigned[number] for number in numbers]
        return all(len(each) == count for each in owned) and len(set().union(*owned)) == count * len(owned)

    def end(self, number, signal):
        getattr(self.processes[number], signal)()
        self.processes[number].wait(GROUP_WAIT)


@step("group")
def group():
    topic, name = f"{PREFIX}-group", f"{PREFIX}-group"

    def produce_ten_each(round_number):
        lines = "".join(f"{round_number}-{i}\n" for i in range(10))
        for partition in range(6):
            kcat("-P", "-t", topic, "-p", str(partition), stdin=lines)

    members = Members(name, topic)
    try:
        for _ in range(3):
            members.start()
        members.until("two partitions each", lambda: members.each_has([0, 1, 2], 2))
        produce_ten_each(1)
        members.until("sixty records", lambda: len(members.read) == 60)
        members.end(0, "kill")
        produce_ten_each(2)
        members.until("three partitions each", lambda: members.each_has([1, 2], 3))
        members.until("all records", lambda: len(members.read) == 120)
        members.end(1, "terminate")
        members.until("all partitions", lambda: members.each_has([2], 6))
        members.end(2, "terminate")
    finally:
        for process in members.processes:
            process.kill()
            process.wait()
    again = kcat("-X", "auto.offset.reset=earliest", "-q", "-e", "-G", name, topic)
    return {
        "each": [2, 2, 2],
        "after_kill": [3, 3],
        "after_leave": [6],
        "read": len(members.read),
        "read_again": len(again.splitlines()),
    }


@step("errors")
def errors():
    nowhere = f"{PREFIX}-nowhere"
    at_once = ("-X", "topic.metadata.propagation.max.ms=0")
    beyond = read(MAIN, 0, 1000, "-X", "auto.offset.reset=earliest")
    large = ("-P", "-t", MAIN, "-p", "0", "-X", "message.max.bytes=10000000")
    return {
        "produce_unknown": complaint("-P", "-t", nowhere, *at_once, stdin="v\n"),
        "read_unknown": complaint("-C", "-t", nowhere, "-e", *at_once),
        "beyond_then_earliest": beyond[0]["offset"],
        "beyond_the_end": complaint("-C", "-t", MAIN, "-p", "0", "-o", "1000", "-X", "auto.offset.reset=error"),
        "too_large": complaint(*large, stdin="x" * 2_000_000 + "\n"),
    }


@step("transactions")
def transactions():
    topic = f"{PREFIX}-transactions"
    lines = "".join(f"commit-{i}\n" for i in range(10))
    try:
        kcat("-P", "-t", topic, "-X", f"transactional.id={PREFIX}", stdin=lines)
    except RuntimeError as error:
        return {"refused": named(str(error)), "in_words": "no transactions" in str(error)}
    return {
        level: summary(read(topic, 0, "beginning", "-X", f"isolation.level={level}"))
        for level in ("read_committed", "read_uncommitted")
    }


def main():
    failed = False
    for name, run in STEPS:
        try:
            said = {"step": name, "result": run()}
        except Exception as error:  # One step's failure must not hide the next one's.
            said = {"step": name, "failed": f"{type(error).__name__}: {error}"}
            failed = True
        print(json.dumps(said), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
