"""The twenty records and the digest of SCENARIO.md."""

import hashlib

BASE = 1_700_000_000_000
LATE = BASE + 8000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def twenty(codec):
    """`(key, value, headers, timestamp)` of each."""
    return [
        (
            None if i % 5 == 4 else b"" if i % 7 == 6 else f"key-{i}".encode(),
            None if i % 6 == 5 else b"" if i % 6 == 3 else f"value-{codec}-{i}-{'x' * 100}".encode(),
            [[("h", b"1"), ("h", b"2")], [("n", None), ("e", b"")], []][i % 3],
            LATE if i == 13 else BASE + 1000 * i,
        )
        for i in range(20)
    ]


def digest(messages):
    lines = [
        f"{m.offset()} {m.timestamp()[1]} {encoded(m.key())} {encoded(m.value())} {joined(m.headers() or [])}\n"
        for m in messages
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def joined(headers):
    return ",".join(f"{name}:{encoded(value)}" for name, value in headers)


def encoded(value):
    if value is None:
        return "-"
    return "x" + (value.encode() if isinstance(value, str) else value).hex()
