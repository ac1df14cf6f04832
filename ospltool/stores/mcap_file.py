"""Stores as MCAP files: a channel for each group, JSON messages with a JSON Schema.

A message is logged at the source time of its sample. The first sample of a group that can be decoded
describes the fields of its data; groups of an unknown type have their payload only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final, cast

from mcap.writer import CompressionType, Writer

from engine.dataset.sample import Sample
from engine.store.interface import DamageLog
from engine.tracing.version import product_version
from ospltool.output import envelope, progress
from ospltool.stores.describe import fields_of
from ospltool.stores.listing import whole_value
from ospltool.stores.model import GroupFacts, SetFacts, StoreReader

SCHEMA_ENCODING: Final = "jsonschema"
MESSAGE_ENCODING: Final = "json"
# The sequence of an MCAP message is an unsigned number of 32 bits, its time one of 64.
_SEQUENCES: Final = 1 << 32
_LAST_NS: Final = (1 << 64) - 1
# Chosen: a topic of which nothing but disposes is kept has no schema, and these stay in memory.
_MOST_WAITING: Final = 10_000
"""Samples without fields, such as disposes, that are kept until one with fields describes the type."""
_BESIDE: Final[dict[str, Any]] = {
    "key": {"type": "string", "description": "the key's bytes, hexadecimal"},
    "source_time_ns": {"type": "string", "description": "nanoseconds since 1970 UTC"},
    "writer": {"type": "string"},
    "sequence": {"type": "string"},
    "status": {"type": "string", "description": "write, dispose, unregister, or several of them"},
    "digest": {"type": "string"},
    "problem": {"type": "string", "description": "why there are no fields"},
    "payload": {"type": "string", "description": "the bytes of the writer, hexadecimal"},
}


def write_mcap(reader: StoreReader, sets: Sequence[SetFacts], target: IO[bytes], damage: DamageLog) -> int:
    """Write the samples of sets without damaged ones; return their number."""
    writer = Writer(target, compression=CompressionType.NONE)
    writer.start(profile="", library=f"ospltool {product_version()}")
    count = 0
    for one in sets:
        for group, samples in reader.read(one.number, damage):
            count += _write_group(writer, reader, one, group, progress.counted(samples))
    writer.finish()
    return count


def _write_group(
    writer: Writer, reader: StoreReader, one: SetFacts, group: GroupFacts, samples: Iterator[Sample]
) -> int:
    """Write a channel with its schema and messages; the first sample with fields describes the type."""
    waiting: list[tuple[Sample, dict[str, Any]]] = []
    channel: int | None = None
    count = 0
    for sample in samples:
        fields, problem = fields_of(reader, group, sample)
        message = _message(sample, fields, problem)
        count += 1
        if channel is None and fields is None and len(waiting) < _MOST_WAITING:
            waiting.append((sample, message))
            continue
        if channel is None:
            channel = _channel(writer, one, group, message["fields"])
            for earlier, text in waiting:
                _put(writer, channel, earlier, text)
            waiting.clear()
        _put(writer, channel, sample, message)
    if channel is None:
        channel = _channel(writer, one, group, None)
        for earlier, text in waiting:
            _put(writer, channel, earlier, text)
    return count


def _message(sample: Sample, fields: object, problem: str) -> dict[str, Any]:
    values = {**whole_value(sample, fields, problem), "source_time_ns": str(sample.source_time_ns)}
    return cast("dict[str, Any]", envelope.plain(values))


def _channel(writer: Writer, one: SetFacts, group: GroupFacts, fields: Any) -> int:
    described = {"type": ["object", "null"]} if fields is None else _described(fields)
    schema = {"title": group.name.type_name, "type": "object", "properties": {**_BESIDE, "fields": described}}
    schema_id = writer.register_schema(group.name.type_name, SCHEMA_ENCODING, json.dumps(schema).encode())
    about = {
        "set": str(one.number),
        "set_kind": one.kind.value,
        "name_space": one.name_space,
        "partition": group.name.partition,
        "topic": group.name.topic,
    }
    channel: int = writer.register_channel(str(group.name), MESSAGE_ENCODING, schema_id, about)
    return channel


def _described(value: Any) -> dict[str, Any]:
    """Make the JSON Schema of a decoded value."""
    match value:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case float():
            return {"type": "number"}
        case str():
            return {"type": "string"}
        case list():
            return {"type": "array", "items": _described(value[0])} if value else {"type": "array"}
        case dict():
            return {"type": "object", "properties": {name: _described(each) for name, each in value.items()}}
        case _:
            return {}


def _put(writer: Writer, channel: int, sample: Sample, message: dict[str, Any]) -> None:
    time = min(max(sample.source_time_ns, 0), _LAST_NS)
    data = json.dumps(message, separators=(",", ":")).encode()
    writer.add_message(channel, time, data, time, sample.sequence % _SEQUENCES)
