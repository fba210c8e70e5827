"""Writes values.jsonl: values as Confluent's Python client serializes them, for a check by another hand.

    pip install "confluent-kafka[avro,protobuf,json]==2.16.1" grpcio-tools==1.85.1 httpx authlib cachetools attrs
    python make.py

Each line has the schema as the client registered it, the value in hex, and the JSON that is expected.
"""

import datetime
import decimal
import importlib
import json
import pathlib
import subprocess
import sys
import tempfile
import uuid

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

HERE = pathlib.Path(__file__).parent
PROTO = """syntax = "proto3";
package t;
import "google/protobuf/timestamp.proto";
message First { string text = 1; google.protobuf.Timestamp at = 2; }
message Outer {
  message Inner { repeated int64 numbers = 1; }
  message Second { bool yes = 1; }
}
"""
AVRO = {
    "type": "record",
    "name": "Event",
    "namespace": "t",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {"name": "list", "type": {"type": "array", "items": ["null", "string", "double"]}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 3}},
        {"name": "next", "type": ["null", "Event"], "default": None},
    ],
}


def protobuf_module():
    folder = tempfile.mkdtemp()
    path = pathlib.Path(folder, "sample.proto")
    path.write_text(PROTO)
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--python_out={folder}", str(path)], check=True
    )
    sys.path.insert(0, folder)
    return importlib.import_module("sample_pb2")


def main():
    client = SchemaRegistryClient.new_client({"url": "mock://fixtures"})
    lines = []

    def add(subject, serializer, value, expected):
        data = serializer(value, SerializationContext(subject, MessageField.VALUE))
        registered = client.get_latest_version(f"{subject}-value")
        schema = registered.schema
        lines.append(
            {
                "kind": schema.schema_type,
                "schema": schema.schema_str,
                "value": data.hex(),
                "json": expected,
            }
        )

    sample = protobuf_module()
    settings = {"use.deprecated.format": False}
    first = sample.First(text="hi")
    first.at.FromDatetime(datetime.datetime(2013, 2, 1, 10, 15, tzinfo=datetime.timezone.utc))
    for message, expected in [
        (first, {"text": "hi", "at": "2013-02-01T10:15:00Z"}),
        (sample.Outer.Inner(numbers=[1, -1]), {"numbers": ["1", "-1"]}),
        (sample.Outer.Second(yes=True), {"yes": True}),
    ]:
        name = type(message).__name__
        add(f"protobuf-{name}", ProtobufSerializer(type(message), client, settings), message, expected)

    event = {
        "id": uuid.UUID("89791762-2336-4186-9674-299b90a802e2"),
        "price": decimal.Decimal("-12.50"),
        "day": datetime.date(2013, 2, 1),
        "clock": datetime.time(10, 15, 0, 250000),
        "at": datetime.datetime(2013, 2, 1, 10, 15, 0, 250, tzinfo=datetime.timezone.utc),
        "kind": "B",
        "tags": {"x": 9007199254740993, "y": -1},
        "list": [None, "a", 0.25],
        "raw": b"\xff\x00\x01",
        "next": None,
    }
    expected = {
        "id": "89791762-2336-4186-9674-299b90a802e2",
        "price": "-12.50",
        "day": "2013-02-01",
        "clock": "10:15:00.250",
        "at": "2013-02-01T10:15:00.000250Z",
        "kind": "B",
        "tags": {"x": 9007199254740993, "y": -1},
        "list": [None, "a", 0.25],
        "raw": "/wAB",
        "next": None,
    }
    avro = AvroSerializer(client, json.dumps(AVRO))
    add("avro", avro, dict(event, next=dict(event)), dict(expected, next=expected))
    add("avro-string", AvroSerializer(client, '"string"'), "hi", "hi")

    document = {"a": [1, "x", None]}
    schema = json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "title": "D", "type": "object"})
    add("json", JSONSerializer(schema, client), document, document)

    text = "".join(json.dumps(line) + "\n" for line in lines)
    (HERE / "values.jsonl").write_text(text)


main()
