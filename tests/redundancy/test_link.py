"""Links between replicas: whole and in order, or down; and messages that are none."""

from __future__ import annotations

import itertools
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.persistence.core.messages import (
    PARTS,
    Announcement,
    Inventory,
    KeptSample,
    Message,
    MessageFault,
    OriginalSample,
    SampleBatch,
    Subscription,
    Want,
    WriterState,
    decode,
    encode,
    merged,
)
from engine.persistence.core.replica_link import Arrived, Down, Event, ReplicaLink, Up
from tests.redundancy.laws import numbers_of


class Pair:
    """Two ends and what is on its way between them."""

    def __init__(self) -> None:
        numbers = itertools.count(1)
        self.ends = [ReplicaLink(name, lambda: next(numbers)) for name in (b"a", b"b")]
        self.wires: list[list[bytes]] = [[], []]
        self.events: list[list[Event]] = [[], []]

    def send(self, end: int, frame: bytes) -> None:
        self.wires[1 - end].append(frame)

    def hello(self) -> None:
        for end in (0, 1):
            if not self.ends[end].is_up:
                self.send(end, self.ends[end].hello())

    def run(self, only: int | None = None) -> None:
        """Let arrive what is on its way, to one end or to both."""
        while any(self.wires[end] for end in (0, 1) if only in (None, end)):
            for end in (0, 1):
                if only in (None, end) and self.wires[end]:
                    events, answers = self.ends[end].receive(self.wires[end].pop(0))
                    self.events[end] += events
                    for answer in answers:
                        self.send(end, answer)

    def say(self, end: int, text: bytes) -> None:
        if self.ends[end].is_up:
            self.send(end, self.ends[end].frame(text))


@given(st.lists(st.tuples(st.sampled_from(["say", "run", "hello", "lose", "gone"]), st.integers(0, 1))))
def test_what_arrives_is_whole_and_in_order_and_a_link_comes_up_again(steps: list[tuple[str, int]]) -> None:
    pair = Pair()
    numbers = itertools.count()
    for kind, end in steps:
        if kind == "say":
            pair.say(end, b"%d" % next(numbers))
        elif kind == "run":
            pair.run(end)
        elif kind == "hello":
            pair.hello()
        elif kind == "gone":
            pair.events[end] += pair.ends[end].restart()
        elif pair.wires[end]:
            del pair.wires[end][len(pair.wires[end]) // 2]
    for _ in range(4):  # each round of hellos can find out one loss
        pair.hello()
        pair.run()
        for end in (0, 1):
            pair.say(end, b"%d" % next(numbers))
        pair.run()
    assert [end.is_up for end in pair.ends] == [True, True]
    for events in pair.events:
        check_events(events)


def check_events(events: list[Event]) -> None:
    """Up and down take turns; what arrives while it is up comes in order, with nothing missing in between."""
    is_up = False
    before: int | None = None
    for event in events:
        if isinstance(event, Arrived):
            assert is_up
            assert before is None or int(event.body) > before
            before = int(event.body)
        else:
            assert is_up == isinstance(event, Down)
            is_up = isinstance(event, Up)


def test_a_missing_message_ends_the_link() -> None:
    pair = Pair()
    pair.hello()
    pair.run()
    for text in (b"1", b"2", b"3"):
        pair.say(0, text)
    del pair.wires[1][1]
    pair.run()
    assert pair.events[1] == [Up(b"a"), Arrived(b"1"), Down(), Up(b"a")]
    assert pair.events[0] == [Up(b"b"), Down(), Up(b"b")]
    assert pair.ends[1].breaks == 1


@given(st.binary(max_size=60))
def test_what_is_no_frame_is_refused_and_changes_nothing(frame: bytes) -> None:
    pair = Pair()
    pair.hello()
    pair.run()
    for text in (frame, b"ospp" + frame):
        with pytest.raises(MessageFault):
            pair.ends[0].receive(text)
    assert pair.ends[0].is_up


NAMES = st.text("abc-.", min_size=1, max_size=4)
NUMBERS = st.sets(st.integers(1, 1 << 128), max_size=4).map(numbers_of)
TIMES = st.integers(-(1 << 63), (1 << 63) - 1)
BLOBS = st.binary(max_size=5)
WRITERS = st.frozensets(NAMES, max_size=3)
SAMPLES = st.builds(
    OriginalSample, NAMES, st.integers(9, 1 << 128), BLOBS, TIMES, BLOBS, st.sampled_from([1, 4, 5]),
    st.integers(0, 9), st.booleans(),
)  # fmt: skip
MESSAGES = st.one_of(
    st.builds(
        Announcement,
        st.lists(
            st.builds(WriterState, NAMES, NUMBERS, st.none() | st.lists(NAMES, max_size=3).map(tuple)),
            max_size=3,
        ).map(tuple),
        st.sampled_from([(), tuple(range(PARTS))]),
    ),
    st.builds(
        Subscription,
        st.integers(0, 99),
        st.lists(st.builds(Want, NAMES, NUMBERS, st.none() | NUMBERS), max_size=3).map(tuple),
    ),
    st.builds(
        SampleBatch,
        st.lists(st.builds(KeptSample, SAMPLES, WRITERS), max_size=3).map(tuple),
        st.lists(st.tuples(BLOBS, WRITERS), max_size=2).map(tuple),
        st.lists(st.tuples(NAMES, NUMBERS), max_size=2).map(tuple),
    ),
    st.builds(
        Inventory,
        st.integers(0, PARTS - 1),
        st.lists(st.tuples(BLOBS, st.tuples(TIMES, NAMES, st.integers(1, 1 << 128))), max_size=3).map(tuple),
    ),
)


@given(MESSAGES)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    arrived = decode(encode(message))
    assert arrived == message
    if isinstance(message, SampleBatch) and isinstance(arrived, SampleBatch):
        sent = [(kept.sample.first, kept.sample.late) for kept in message.samples]
        assert [(kept.sample.first, kept.sample.late) for kept in arrived.samples] == sent


@given(MESSAGES, st.data())
def test_a_damaged_message_is_refused_or_is_another_message(message: Message, data: st.DataObject) -> None:
    body = encode(message)
    at = data.draw(st.integers(0, len(body) - 1))
    damage = data.draw(st.sampled_from(["cut", "flip", "more"]))
    flipped = bytes((body[at] ^ data.draw(st.integers(1, 255)),))
    damaged = {"cut": body[:at], "flip": body[:at] + flipped + body[at + 1 :], "more": body + b"x"}[damage]
    try:
        arrived = decode(damaged)
    except MessageFault:
        return
    assert damage == "flip"
    assert decode(encode(arrived)) == arrived


def framed(head: Any) -> bytes:
    """A message whose head is this, with no payloads."""
    text = json.dumps(head).encode()
    return struct.pack(">BII", 1, 0, len(text)) + text


def announced(*states: Any, digests: Any = ()) -> dict[str, Any]:
    return {"type": "announcement", "states": states, "digests": digests}


HOSTILE = [
    announced(["w", [[[5, 3]]], None]),
    announced(["w", [[[1, 2], [3, 4]]], None]),
    announced(["w", [[[n * 3 + 1, n * 3 + 1] for n in range(2_000)]], None]),
    announced([7, [[]], None]),
    announced(["w", [[[1, 1 << 200]]], None]),
    announced(["w", [[]], ["a"] * 99]),
    announced(["w", [[[True, 2]]], None]),
    announced(digests=[1] * 9_999),
    {"type": "announcement", "states": {}},
    {"type": "unheard of"},
    {"type": "delivery", "samples": [[["w", 5, "a2V5", 1, "cGF5"], []]]},
    {"type": "delivery", "samples": [[["w", 0, "", 1], []]]},
    {"type": "served", "readers": ["no GUID"]},
    {"type": "lifespans", "lifespans": {"a" * 32: -1}},
    [],
    *(announced([name, [[]], None]) for name in ("", "x" * 999, "\x1b[31m", "\u2028", 5, None)),
]


@pytest.mark.parametrize("head", HOSTILE, ids=range(len(HOSTILE)))
def test_what_would_do_harm_is_refused(head: Any) -> None:
    with pytest.raises(MessageFault):
        decode(framed(head))


@given(st.lists(st.tuples(NAMES, MESSAGES), max_size=8), st.integers(1, 5))
def test_deliveries_that_follow_each_other_become_one(sent: list[tuple[str, Message]], most: int) -> None:
    joined = list(merged(sent, most))
    for receiver in {name for name, _ in sent}:
        assert flat(receiver, joined) == flat(receiver, sent)


def flat(receiver: str, messages: list[tuple[str, Message]]) -> list[object]:
    """What one receiver is told, one thing after the other."""
    told: list[object] = []
    for name, message in messages:
        if name == receiver and isinstance(message, SampleBatch):
            told += [*message.samples, *message.written, *message.superseded]
        elif name == receiver:
            told.append(message)
    return told
