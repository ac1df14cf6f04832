"""Messages between replicas as bytes: a head in JSON, then keys and payloads as they are.

A sender may be broken or hostile. Everything is bounded and checked; a `MessageFault` tells what is wrong.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from engine.core.plain import words_of
from engine.dataset.sample import DATA, DISPOSE
from engine.persistence.core.last_values import PARTS
from engine.persistence.core.provider_selection import MAX_PATH
from engine.persistence.core.replica import MAX_WRITERS
from engine.persistence.core.replica_messages import (
    Announcement,
    Inventory,
    KeptSample,
    Message,
    OriginalSample,
    SampleBatch,
    Subscription,
    Want,
    WriterState,
)
from engine.persistence.core.sequences import Sequences

MAX_MESSAGE_BYTES: Final = 120 << 20
MAX_ENTRIES: Final = 10_000_000
"""Samples, instances or writers in one message at most."""
MAX_NAME_CHARS: Final = 128

_HIGHEST: Final = 1 << 128
_TIME_LIMIT: Final = 1 << 63
_HEAD: Final = struct.Struct(">I")


class MessageFault(ValueError):
    """A replica or reader sent bytes that are not a valid message."""


def encode(message: Message) -> tuple[str, bytes]:
    """Return the kind of a message, and its bytes."""
    kind = _KINDS[type(message)]
    names, blobs = _Names(), _Writing()
    head = _ENCODERS[kind](message, names, blobs)
    text = json.dumps({"names": names.all, **head}, separators=(",", ":")).encode()
    return kind, b"".join((_HEAD.pack(len(text)), text, *blobs.all))


def decode(kind: str, body: bytes) -> Message:
    """Return the message of that kind.

    Raises:
        MessageFault: not a valid message.
    """
    if kind not in _DECODERS:
        raise MessageFault(f"there is no message {kind[:40]!r}")
    if not _HEAD.size <= len(body) <= MAX_MESSAGE_BYTES:
        raise MessageFault(f"{len(body)} bytes")
    (size,) = _HEAD.unpack_from(body)
    start = _HEAD.size + size
    try:
        head = json.loads(body[_HEAD.size : start])
        names = [_name(each) for each in _list(head["names"])]
        blobs = _Reading(body, start)
        message = _DECODERS[kind](head, names, blobs)
    except MessageFault:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise MessageFault(f"damaged {kind}: {words_of(error)}"[:200]) from error
    if blobs.at != len(body):
        raise MessageFault(f"damaged {kind}: {len(body) - blobs.at} bytes too many")
    return message


_KINDS: Final[dict[type[Message], str]] = {
    Announcement: "announcement",
    Subscription: "subscription",
    SampleBatch: "delivery",
    Inventory: "inventory",
}
KINDS: Final = tuple(_KINDS.values())


class _Names:
    """Names of writers, each written once and then replaced by its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def all(self) -> list[str]:
        return list(self._numbers)

    def __call__(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))


class _Writing:
    def __init__(self) -> None:
        self.all: list[bytes] = []

    def __call__(self, blob: bytes) -> int:
        self.all.append(blob)
        return len(blob)


class _Reading:
    def __init__(self, body: bytes, at: int) -> None:
        self._body = body
        self.at = at

    def __call__(self, size: Any) -> bytes:
        end = self.at + _number(size, 0, len(self._body) - self.at)
        blob = self._body[self.at : end]
        self.at = end
        return blob


# What came from outside.


def _list(value: Any, most: int = MAX_ENTRIES) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise MessageFault("no list, or one that is too long")
    return value


def _number(value: Any, lowest: int, highest: int) -> int:
    if type(value) is not int or not lowest <= value <= highest:
        raise MessageFault(f"{str(value)[:40]!r} is no number from {lowest} to {highest}")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARS or not value.isprintable():
        raise MessageFault("a name that is none")
    return value


def _numbers(value: Any) -> Sequences:
    pairs = [(_number(first, 1, _HIGHEST), _number(last, 1, _HIGHEST)) for first, last in _list(value)]
    return Sequences.checked(pairs)


def _named(value: Any, names: list[str]) -> str:
    return names[_number(value, 0, len(names) - 1)]


# Kind by kind.


def _put_announcement(message: Announcement, name: _Names, _: _Writing) -> dict[str, Any]:
    states = [[name(each.writer), each.had.intervals, each.path] for each in message.states]
    return {"states": states, "digests": message.digests}


def _get_announcement(head: Any, names: list[str], _: _Reading) -> Announcement:
    digests = tuple(_number(each, 0, (1 << 64) - 1) for each in _list(head["digests"], PARTS))
    states = tuple(
        WriterState(_named(writer, names), _numbers(had), _path(path))
        for writer, had, path in _list(head["states"], MAX_WRITERS)
    )
    return Announcement(states, digests)


def _path(value: Any) -> tuple[str, ...] | None:
    return None if value is None else tuple(_name(each) for each in _list(value, MAX_PATH + 1))


def _put_subscription(message: Subscription, name: _Names, _: _Writing) -> dict[str, Any]:
    wants = [
        [name(each.writer), each.had.intervals, each.only.intervals if each.only is not None else None]
        for each in message.wants
    ]
    return {"number": message.number, "wants": wants}


def _get_subscription(head: Any, names: list[str], _: _Reading) -> Subscription:
    wants = tuple(
        Want(_named(writer, names), _numbers(had), None if only is None else _numbers(only))
        for writer, had, only in _list(head["wants"], MAX_WRITERS)
    )
    return Subscription(_number(head["number"], 0, _HIGHEST), wants)


def _put_delivery(message: SampleBatch, name: _Names, blob: _Writing) -> dict[str, Any]:
    samples = [
        [
            name(kept.sample.writer),
            kept.sample.sequence,
            kept.sample.source_time_ns,
            kept.sample.status,
            kept.sample.first,
            int(kept.sample.late),
            sorted(map(name, kept.writers)),
            blob(kept.sample.key),
            blob(kept.sample.payload),
        ]
        for kept in message.samples
    ]
    written = [[blob(key), sorted(map(name, writers))] for key, writers in message.written]
    superseded = [[name(writer), numbers.intervals] for writer, numbers in message.superseded]
    return {"samples": samples, "written": written, "superseded": superseded}


def _get_delivery(head: Any, names: list[str], blob: _Reading) -> SampleBatch:
    samples = tuple(_get_kept(each, names, blob) for each in _list(head["samples"]))
    written = tuple((blob(size), _writers(writers, names)) for size, writers in _list(head["written"]))
    superseded = tuple(
        (_named(writer, names), _numbers(numbers)) for writer, numbers in _list(head["superseded"])
    )
    return SampleBatch(samples, written, superseded)


def _get_kept(value: Any, names: list[str], blob: _Reading) -> KeptSample:
    writer, sequence, time_ns, status, first, late, writers, key_size, payload_size = value
    number = _number(sequence, 1, _HIGHEST)
    sample = OriginalSample(
        writer=_named(writer, names),
        sequence=number,
        key=blob(key_size),
        source_time_ns=_number(time_ns, -_TIME_LIMIT, _TIME_LIMIT - 1),
        payload=blob(payload_size),
        status=_number(status, DISPOSE, DATA | DISPOSE),
        first=_number(first, 0, number),
        late=bool(_number(late, 0, 1)),
    )
    return KeptSample(sample, _writers(writers, names))


def _writers(value: Any, names: list[str]) -> frozenset[str]:
    return frozenset(_named(each, names) for each in _list(value, MAX_WRITERS))


def _put_inventory(message: Inventory, name: _Names, blob: _Writing) -> dict[str, Any]:
    entries = [
        [blob(key), time_ns, name(writer), sequence] for key, (time_ns, writer, sequence) in message.entries
    ]
    return {"part": message.part, "entries": entries}


def _get_inventory(head: Any, names: list[str], blob: _Reading) -> Inventory:
    entries = tuple(
        (
            blob(size),
            (
                _number(time_ns, -_TIME_LIMIT, _TIME_LIMIT - 1),
                _named(writer, names),
                _number(sequence, 1, _HIGHEST),
            ),
        )
        for size, time_ns, writer, sequence in _list(head["entries"])
    )
    return Inventory(_number(head["part"], 0, PARTS - 1), entries)


_ENCODERS: Final[dict[str, Callable[[Any, _Names, _Writing], dict[str, Any]]]] = {
    "announcement": _put_announcement,
    "subscription": _put_subscription,
    "delivery": _put_delivery,
    "inventory": _put_inventory,
}
_DECODERS: Final[dict[str, Callable[[Any, list[str], _Reading], Message]]] = {
    "announcement": _get_announcement,
    "subscription": _get_subscription,
    "delivery": _get_delivery,
    "inventory": _get_inventory,
}


def merged(messages: list[tuple[str, Message]], most: int) -> Iterator[tuple[str, Message]]:
    """Yield the same messages, with consecutive batches for a receiver joined.

    Args:
        messages: (receiver, message), in order.
        most: samples in one batch.
    """
    held: dict[str, SampleBatch] = {}
    for receiver, message in messages:
        before = held.pop(receiver, None)
        if before is not None and (
            not isinstance(message, SampleBatch) or len(before.samples) + len(message.samples) > most
        ):
            yield receiver, before
            before = None
        if not isinstance(message, SampleBatch):
            yield receiver, message
        elif message.written or message.superseded:
            yield receiver, message if before is None else _joined(before, message)
        else:
            held[receiver] = message if before is None else _joined(before, message)
    yield from held.items()


def _joined(one: SampleBatch, other: SampleBatch) -> SampleBatch:
    return SampleBatch((*one.samples, *other.samples), other.written, other.superseded)
