"""The messages of the client-durability protocol, from bytes to values."""

from __future__ import annotations

import struct
from typing import Final

from engine.dds.cdr import HEADER, Malformed
from engine.dds.client_protocol.cdrstream import CdrReader
from engine.dds.client_protocol.messages import (
    ID_BYTES,
    Bead,
    GroupState,
    HistoryPart,
    HistoryRequest,
    Link,
    RequestId,
    StateAnswer,
    StateRequest,
    Time,
)

_QUICK: Final = struct.Struct("<4x8x8s8sI4x8s8sIH16s2xiII68x")
"""A message with one sample for one request, from its header to the policies."""


def decode_state_request(payload: bytes) -> StateRequest:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    reader = CdrReader(payload)
    version = _version(reader)
    return StateRequest(
        version=version,
        request=_request(reader),
        topic=reader.text(),
        partitions=_texts(reader),
        servers=_ids(reader),
        timeout=_time(reader),
        extensions=_extensions(reader),
    )


def decode_state(payload: bytes) -> StateAnswer:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    reader = CdrReader(payload)
    _version(reader)
    server, requests = _id(reader), _requests(reader)
    groups = []
    for _ in range(reader.count()):
        groups.append(GroupState(reader.text(), reader.text(), reader.u16()))
        _extensions(reader)
    return StateAnswer(server, requests, tuple(groups), _extensions(reader))


def decode_history_request(payload: bytes) -> HistoryRequest:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    reader = CdrReader(payload)
    version, request, topic = _version(reader), _request(reader), reader.text()
    partitions, wanted, durability = _texts(reader), reader.u16(), _reader_durability(reader)
    start, end = _time(reader), _time(reader)
    sql_filter, sql_parameters = reader.text(), _texts(reader)
    samples, instances, each = reader.take("3i", 4)
    return HistoryRequest(
        version=version,
        request=request,
        topic=topic,
        partitions=partitions,
        format=wanted,
        durability=durability,
        start=start,
        end=end,
        sql_filter=sql_filter,
        sql_parameters=sql_parameters,
        max_samples=samples,
        max_instances=instances,
        max_samples_per_instance=each,
        alignment_partitions=_texts(reader),
        servers=_ids(reader),
        timeout=_time(reader),
        extensions=_extensions(reader),
    )


def decode_history(payload: bytes) -> HistoryPart:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    quick = _quick_bead(payload)
    if quick is not None:
        return quick
    reader = CdrReader(payload)
    _version(reader)
    server, requests, kind = _id(reader), _requests(reader), reader.u16()
    content: Bead | Link
    if kind == 0:
        content = _bead(reader)
    elif kind == 1:
        content = Link(reader.u32(), reader.u16(), reader.u32())
    else:
        raise Malformed(f"content of kind {kind}")
    return HistoryPart(server, requests, content, _extensions(reader))


def _quick_bead(payload: bytes) -> HistoryPart | None:
    """Decode the usual message fast: one sample for one request, little-endian. None for any other."""
    if payload[:2] != HEADER[:2] or len(payload) < _QUICK.size:
        return None
    prefix, suffix, count, client, more, number, kind, writer, seconds, nanoseconds, sequence = (
        _QUICK.unpack_from(payload)
    )
    if count != 1 or kind != 0:
        return None
    reader = CdrReader(payload, _QUICK.size - len(HEADER))
    partitions, what = _texts(reader), reader.u16()
    reader.raw(ID_BYTES)
    bead = Bead(
        writer, Time(seconds, nanoseconds), sequence, partitions, what, reader.u16(), reader.byte_sequence()
    )
    request = RequestId(client[::-1] + more[::-1], number)
    return HistoryPart(prefix[::-1] + suffix[::-1], (request,), bead, _extensions(reader))


def _bead(reader: CdrReader) -> Bead:
    writer, source_time, sequence = reader.raw(ID_BYTES), _time(reader), reader.u32()
    reader.take("3iB3x2iBB2x4I3I2Ii", 4)  # the policies of its writer
    partitions, kind = _texts(reader), reader.u16()
    reader.raw(ID_BYTES)  # key hash
    return Bead(writer, source_time, sequence, partitions, kind, reader.u16(), reader.byte_sequence())


def _version(reader: CdrReader) -> int:
    return reader.take("HHBB", 2)[0]


def _id(reader: CdrReader) -> bytes:
    return b"".join(value.to_bytes(8, signed=True) for value in reader.take("qq", 8))


def _request(reader: CdrReader) -> RequestId:
    return RequestId(_id(reader), reader.u32())


def _requests(reader: CdrReader) -> tuple[RequestId, ...]:
    return tuple(_request(reader) for _ in range(reader.count()))


def _ids(reader: CdrReader) -> tuple[bytes, ...]:
    return tuple(_id(reader) for _ in range(reader.count()))


def _texts(reader: CdrReader) -> tuple[str, ...]:
    return tuple(reader.text() for _ in range(reader.count()))


def _time(reader: CdrReader) -> Time:
    return Time(*reader.take("iI", 4))


def _extensions(reader: CdrReader) -> dict[str, bytes]:
    return {reader.text(): reader.byte_sequence() for _ in range(reader.count())}


def _reader_durability(reader: CdrReader) -> int:
    """Read the reader's policies and return its durability."""
    durability = reader.take("i", 4)[0]
    reader.take("4I3I", 4)
    reader.take("iiIB", 4)
    reader.take("6i", 4)
    reader.byte_sequence()
    reader.take("3I", 4)
    reader.take("4IBB", 4)
    reader.take("iB", 4)
    _texts(reader)
    reader.take("B", 1)
    reader.take("2I", 4)
    reader.text()
    reader.take("B", 1)
    return durability
