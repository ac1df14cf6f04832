"""Messages about durable subscriptions as bytes: a head in JSON, then samples as they are.

A sender may be broken or hostile. Everything is bounded and checked; a `MessageFault` tells what is wrong.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, Final

from engine.core import plain
from engine.dataset.sample import DATA, DISPOSE
from engine.persistence.core.replica_codec import MessageFault
from engine.persistence.core.replica_messages import (
    Fetch,
    FetchedSamples,
    OriginalSample,
    PeerMessage,
    SubscriberAnswer,
    SubscriberState,
    SubscriptionUpdate,
)
from engine.persistence.core.subscription_ledger import Numbers

VERSION: Final = 1
MAX_BYTES: Final = 120 << 20
MAX_NAME_CHARS: Final = 255
MAX_KEY_CHARS: Final = 4096
"""Name of a durable subscription with its topic and partitions, as replicas register it."""
MAX_QUORUM: Final = 1_000_000
MAX_PARTITIONS_CHARS: Final = 2_000
NUMBER_BYTES: Final = 17

_HIGHEST: Final = 1 << (8 * NUMBER_BYTES - 1)
_HEAD: Final = struct.Struct(">BI")
_SAMPLE: Final = struct.Struct(f">I{NUMBER_BYTES}sqBII")

_PEER_MESSAGES: Final[dict[str, type]] = {
    "subscription-books": SubscriptionUpdate,
    "subscription-fetch": Fetch,
}
_HANDED: Final = "subscription-handed"
KINDS: Final = frozenset((*_PEER_MESSAGES, _HANDED))
"""The kinds of messages between replicas."""


def encode(group: bytes, message: PeerMessage) -> tuple[str, bytes]:
    """Return the kind of a message between replicas about one group, and its bytes."""
    if isinstance(message, FetchedSamples):
        return _HANDED, _packed({"group": group.hex()}, message.samples)
    kind = next(kind for kind, each in _PEER_MESSAGES.items() if type(message) is each)
    return kind, _packed({"group": group.hex(), "message": plain.to_plain(message)}, ())


def decode(kind: str, body: bytes) -> tuple[bytes, PeerMessage]:
    """Return the group and the message of that kind.

    Raises:
        MessageFault: not a valid message.
    """
    head, samples = _unpacked(body)
    try:
        group = bytes.fromhex(head["group"])
        if kind == _HANDED:
            return group, FetchedSamples(samples)
        message: PeerMessage = plain.from_plain(_PEER_MESSAGES[kind], head["message"])
    except (plain.PlainFault, ValueError, KeyError, TypeError) as error:
        raise MessageFault(f"damaged {kind[:40]}: {plain.words_of(error)}"[:200]) from error
    if isinstance(message, Fetch):
        _check_numbers(message.numbers)
    elif isinstance(message, SubscriptionUpdate):
        _check_numbers(message.held)
        for ledger in message.ledgers:
            _check_name(ledger.name, MAX_KEY_CHARS)
            _check(1 <= ledger.quorum <= MAX_QUORUM and 1 <= ledger.terms.generation < 1 << 63, "terms")
            for member, numbers in (("-", ledger.done), *ledger.members):
                _check_name(member)
                _check_numbers(numbers)
    return group, message


def encode_state(state: SubscriberState) -> bytes:
    """Return the bytes of a reader's state."""
    return _packed(plain.to_plain(state), ())


def decode_state(body: bytes) -> SubscriberState:
    """Return the state of a reader.

    Raises:
        MessageFault: not a valid state.
    """
    head, _ = _unpacked(body)
    try:
        state: SubscriberState = plain.from_plain(SubscriberState, head)
    except plain.PlainFault as error:
        raise MessageFault(f"not a state of a reader: {error}"[:200]) from error
    for name in (state.name, state.member, state.topic):
        _check_name(name)
    _check(sum(map(len, state.partitions)) + 4 * len(state.partitions) <= MAX_PARTITIONS_CHARS, "partitions")
    _check(1 <= state.quorum <= MAX_QUORUM and min(state.number, state.request + 1) >= 1, "numbers")
    _check_numbers(state.had)
    _check_numbers(state.acknowledged)
    return state


def encode_answer(answer: SubscriberAnswer) -> bytes:
    """Return the bytes of a replica's answer to a reader."""
    head = {name: getattr(answer, name) for name in ("stored", "request", "is_last", "missed")}
    return _packed(head, answer.samples)


def decode_answer(body: bytes) -> SubscriberAnswer:
    """Return the answer of a replica.

    Raises:
        MessageFault: not a valid answer.
    """
    head, samples = _unpacked(body)
    try:
        answer: SubscriberAnswer = plain.from_plain(SubscriberAnswer, {**head, "samples": []})
    except (plain.PlainFault, TypeError) as error:
        raise MessageFault(f"not an answer: {plain.words_of(error)}"[:200]) from error
    return SubscriberAnswer(answer.stored, answer.request, samples, answer.is_last, answer.missed)


def _packed(head: dict[str, Any], samples: Sequence[OriginalSample]) -> bytes:
    writers = {name: at for at, name in enumerate(dict.fromkeys(each.writer for each in samples))}
    text = json.dumps({**head, "writers": list(writers)}, separators=(",", ":")).encode()
    parts = [_HEAD.pack(VERSION, len(text)), text]
    for each in samples:
        number = each.sequence.to_bytes(NUMBER_BYTES, "big")
        sizes = len(each.key), len(each.payload)
        parts += (
            _SAMPLE.pack(writers[each.writer], number, each.source_time_ns, each.status, *sizes),
            each.key,
            each.payload,
        )
    return b"".join(parts)


def _unpacked(body: bytes) -> tuple[dict[str, Any], tuple[OriginalSample, ...]]:
    if not _HEAD.size <= len(body) <= MAX_BYTES:
        raise MessageFault(f"{len(body)} bytes")
    version, size = _HEAD.unpack_from(body)
    if version != VERSION:
        raise MessageFault(f"version {version} is not known")
    at = _HEAD.size + size
    try:
        head: dict[str, Any] = json.loads(body[_HEAD.size : at])
        writers: list[str] = head.pop("writers")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MessageFault(f"no head: {plain.words_of(error)}"[:200]) from error
    _check(isinstance(writers, list), "list of writers")
    for name in writers:
        _check_name(name)
    samples: list[OriginalSample] = []
    while at < len(body):
        _check(at + _SAMPLE.size <= len(body), "end of a sample")
        index, number, time_ns, status, key_size, size = _SAMPLE.unpack_from(body, at)
        start = at + _SAMPLE.size
        at = start + key_size + size
        sequence = int.from_bytes(number, "big")
        _check(index < len(writers) and at <= len(body) and 0 < sequence < _HIGHEST, "sample")
        _check(bool(status) and not status & ~(DATA | DISPOSE), "status")
        payload = body[start + key_size : at]
        samples.append(
            OriginalSample(writers[index], sequence, body[start : start + key_size], time_ns, payload, status)
        )
    return head, tuple(samples)


def _check(is_right: bool, what: str) -> None:
    if not is_right:
        raise MessageFault(f"the {what} of a message cannot be right")


def _check_name(name: Any, most: int = MAX_NAME_CHARS) -> None:
    _check(isinstance(name, str) and 0 < len(name) <= most and name.isprintable(), "name")


def _check_numbers(numbers: Numbers) -> None:
    for writer, each in numbers:
        _check_name(writer)
        _check(all(0 < number < _HIGHEST for number in each), "numbers")
