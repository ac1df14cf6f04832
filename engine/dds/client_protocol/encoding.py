"""The messages of the client-durability protocol, from values to bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.dds.client_protocol.cdrstream import CdrWriter
from engine.dds.client_protocol.messages import ID_BYTES, INFINITE, MAJOR_VERSION, ZERO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.dds.client_protocol.messages import HistoryRequest, Link, RequestId, StateAnswer, StateRequest

_VENDOR: Final = (1, 16)


def encode_state_request(message: StateRequest) -> bytes:
    """The message as a sample of its topic."""
    writer = CdrWriter()
    _put_version(writer, message.version)
    _put_request(writer, message.request)
    writer.text(message.topic)
    _put_texts(writer, message.partitions)
    _put_ids(writer, message.servers)
    writer.put("iI", 4, *message.timeout)
    _put_extensions(writer, message.extensions)
    return writer.message()


def encode_state(message: StateAnswer) -> bytes:
    """The message as a sample of its topic."""
    writer = CdrWriter()
    put_answer_head(writer, message.server, message.requests)
    writer.u32(len(message.groups))
    for group in message.groups:
        writer.text(group.partition)
        writer.text(group.topic)
        writer.u16(group.completeness)
        _put_extensions(writer, {})
    _put_extensions(writer, message.extensions)
    return writer.message()


def encode_history_request(message: HistoryRequest) -> bytes:
    """The message as a sample of its topic."""
    writer = CdrWriter()
    _put_version(writer, message.version)
    _put_request(writer, message.request)
    writer.text(message.topic)
    _put_texts(writer, message.partitions)
    writer.u16(message.format)
    _put_reader_qos(writer, message.durability)
    writer.put("iI", 4, *message.start)
    writer.put("iI", 4, *message.end)
    writer.text(message.sql_filter)
    _put_texts(writer, message.sql_parameters)
    writer.put("3i", 4, message.max_samples, message.max_instances, message.max_samples_per_instance)
    _put_texts(writer, message.alignment_partitions)
    _put_ids(writer, message.servers)
    writer.put("iI", 4, *message.timeout)
    _put_extensions(writer, message.extensions)
    return writer.message()


def encode_link(server: bytes, request: RequestId, link: Link, extensions: Mapping[str, bytes]) -> bytes:
    """Encode the end of an answer as a sample of its topic.

    `server` is the id of the server that answers; `extensions` go behind the defined content, by name.
    """
    writer = CdrWriter()
    put_answer_head(writer, server, (request,))
    writer.u16(1)
    writer.u32(link.count)
    writer.u16(link.completeness)
    writer.u32(link.error)
    _put_extensions(writer, extensions)
    return writer.message()


def put_answer_head(writer: CdrWriter, server: bytes, requests: tuple[RequestId, ...]) -> None:
    """Write version, server and requests."""
    _put_version(writer, MAJOR_VERSION)
    _put_id(writer, server)
    writer.u32(len(requests))
    for request in requests:
        _put_request(writer, request)


def _put_extensions(writer: CdrWriter, extensions: Mapping[str, bytes]) -> None:
    """Write names and values."""
    writer.u32(len(extensions))
    for name, value in extensions.items():
        writer.text(name)
        writer.byte_sequence(value)


def _put_version(writer: CdrWriter, major: int) -> None:
    writer.put("HHBB", 2, major, 0, *_VENDOR)


def _put_id(writer: CdrWriter, id_: bytes) -> None:
    prefix = int.from_bytes(id_[:8], signed=True)
    writer.put("qq", 8, prefix, int.from_bytes(id_[8:ID_BYTES], signed=True))


def _put_request(writer: CdrWriter, request: RequestId) -> None:
    _put_id(writer, request.client)
    writer.u32(request.number)


def _put_ids(writer: CdrWriter, ids: tuple[bytes, ...]) -> None:
    writer.u32(len(ids))
    for id_ in ids:
        _put_id(writer, id_)


def _put_texts(writer: CdrWriter, texts: tuple[str, ...]) -> None:
    writer.u32(len(texts))
    for text in texts:
        writer.text(text)


def _put_reader_qos(writer: CdrWriter, durability: int) -> None:
    """Write the policies that all our readers have; servers use only the durability."""
    writer.put("i", 4, durability)
    writer.put("iIiI", 4, *INFINITE, *ZERO)  # deadline, latency budget
    writer.put("iiI", 4, 0, *INFINITE)  # liveliness
    writer.put("iiIB", 4, 1, 0, 100_000_000, 0)  # reliable
    writer.put("6i", 4, 1, 1, 1, -1, -1, -1)  # by source timestamp, KEEP_ALL, no limits
    writer.byte_sequence(b"")
    writer.put("iiI", 4, 0, *ZERO)  # shared ownership, no separation
    writer.put("iIiIBB", 4, *INFINITE, *INFINITE, 0, 1)  # life cycle
    writer.put("iB", 4, 1, 0)  # minimum invalid samples, no keys of its own
    writer.u32(0)
    writer.put("B", 1, 0)
    writer.put("iI", 4, *INFINITE)  # lifespan
    writer.text("")
    writer.put("B", 1, 0)
