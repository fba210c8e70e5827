"""Reads given partitions with confluent-kafka and prints one line of JSON: options as in ../../src/peer.rs."""

import argparse
import json
import time
import zlib

from confluent_kafka import Consumer, TopicPartition

FIRST_RECORD = 25  # How long a consumer waits for its first records, in seconds.

parser = argparse.ArgumentParser()
parser.add_argument("--bootstrap", required=True)
parser.add_argument("--topic", required=True)
parser.add_argument("--ends", required=True)
parser.add_argument("--seconds", type=float, required=True)
parser.add_argument("--hash", action="store_true")
parser.add_argument("--pauses", action="store_true")
parser.add_argument("--ca")
parser.add_argument("--set", action="append", default=[])
options = parser.parse_args()

ends = {int(partition): int(end) for partition, end in (part.split("=") for part in options.ends.split(","))}
settings = {"bootstrap.servers": options.bootstrap, "group.id": "bench", "enable.auto.commit": False}
if options.ca:
    settings |= {"security.protocol": "ssl", "ssl.ca.location": options.ca}
settings |= dict(setting.split("=", 1) for setting in options.set)

records = size = total = timestamps = longest = 0
contiguous, paused = True, False
following = dict.fromkeys(ends, 0)
unfinished = sum(end > 0 for end in ends.values())
begun = last = resumed = time.perf_counter()
first = None
consumer = Consumer(settings)
consumer.assign([TopicPartition(options.topic, partition, 0) for partition in ends])
while unfinished and (
    time.perf_counter() - begun < FIRST_RECORD if first is None else time.perf_counter() - first < options.seconds
):
    asked = time.perf_counter()
    # A full batch is waited for: a short wait, so that the last records of a slow link count.
    messages = consumer.consume(1000, 0.05)
    if not messages:
        continue
    if paused:
        longest = max(longest, time.perf_counter() - asked)
    for message in messages:
        if message.error():
            raise SystemExit(str(message.error()))
        partition, offset = message.partition(), message.offset()
        end = ends[partition]
        if offset >= end:
            continue
        contiguous = contiguous and following[partition] == offset
        following[partition] = offset + 1
        records += 1
        value = message.value()
        size += len(value)
        timestamps ^= message.timestamp()[1]
        if options.hash:
            total += zlib.crc32(value)
        if offset + 1 == end:
            unfinished -= 1
    last = time.perf_counter()
    first = first or last
    if options.pauses and last - resumed >= 2:
        time.sleep(0.2)
        resumed, paused = time.perf_counter(), True

outcome = {
    "records": records,
    "bytes": size,
    "seconds": last - begun,
    "first_seconds": first and first - begun,
    "hash": str(total % 2**64) if options.hash else None,
    "contiguous": contiguous if options.hash else None,
    "complete": unfinished == 0,
    "longest_gap_ms": longest * 1e3 if paused else None,
}
print(json.dumps(outcome), flush=True)
