"""Step `group`: three processes, one of which is killed. As a program, one member:
`group.py BOOTSTRAP TOPIC GROUP ASSIGNOR`.

A member prints a line of JSON whenever its assignment changes, `{"assigned":[0,1]}`, and for each record once it is
committed, `{"read":[partition, offset]}`. It leaves in order when its standard input ends.
"""

import json
import queue
import subprocess
import sys
import threading
import time

WAIT = 90.0


class Members:
    """The member processes and what they have printed."""

    def __init__(self):
        self.processes, self.assigned, self.events, self.read = [], [], queue.Queue(), set()

    def start(self, command):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        number = len(self.processes)
        self.processes.append(process)
        self.assigned.append([])
        threading.Thread(target=self._follow, args=(number, process), daemon=True).start()

    def _follow(self, number, process):
        for line in process.stdout:
            self.events.put((number, json.loads(line)))

    def until(self, what, reached):
        """Follows what the members say until `reached()`."""
        deadline = time.monotonic() + WAIT
        while not reached():
            try:
                number, event = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"waiting for {what}: {self.assigned}, {len(self.read)} records read") from None
            if "assigned" in event:
                self.assigned[number] = event["assigned"]
            else:
                self.read.add(tuple(event["read"]))

    def each_has(self, numbers, count):
        lists = [self.assigned[number] for number in numbers]
        return all(len(each) == count for each in lists) and len(set().union(*lists)) == count * len(lists)

    def kill(self, number):
        self.processes[number].kill()
        self.processes[number].wait()

    def leave(self, number):
        self.processes[number].stdin.close()
        self.processes[number].wait(WAIT)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def three_members(command, produce_ten_each):
    """Plays the step; `produce_ten_each(round)` produces ten records to each of the six partitions."""
    members = Members()
    try:
        for _ in range(3):
            members.start(command)
        members.until("two partitions each", lambda: members.each_has([0, 1, 2], 2))
        produce_ten_each(1)
        members.until("sixty records", lambda: len(members.read) == 60)
        members.kill(0)
        produce_ten_each(2)
        members.until("three partitions each", lambda: members.each_has([1, 2], 3))
        members.until("all records", lambda: len(members.read) == 120)
        members.leave(1)
        members.until("all partitions", lambda: members.each_has([2], 6))
        members.leave(2)
    finally:
        members.end()
    return {"each": [2, 2, 2], "after_kill": [3, 3], "after_leave": [6], "read": len(members.read)}


def member(bootstrap, topic, group_id, assignor):
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    client = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    client.subscribe([topic])
    assigned = None
    while not stop.is_set():
        message = client.poll(0.1)
        now = sorted(p.partition for p in client.assignment())
        if now != assigned:
            assigned = now
            print(json.dumps({"assigned": assigned}), flush=True)
        if message is None or message.error():
            continue
        try:
            client.commit(message, asynchronous=False)
        except KafkaException:
            # The group is rebalancing: whoever has the partition then reads the record again.
            back = TopicPartition(topic, message.partition(), message.offset())
            if back in client.assignment():
                client.seek(back)
            continue
        print(json.dumps({"read": [message.partition(), message.offset()]}), flush=True)
    client.close()


if __name__ == "__main__":
    member(*sys.argv[1:])
