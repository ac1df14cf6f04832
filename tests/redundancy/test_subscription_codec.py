"""Messages about durable subscriptions as bytes, and what is none."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.persistence.core.messages import (
    Fetch,
    FetchedSamples,
    MessageFault,
    OriginalSample,
    PeerMessage,
    SubscriberAnswer,
    SubscriberState,
    SubscriptionUpdate,
    decode,
    encode,
)
from engine.persistence.core.subscription_ledger import LedgerState, SubscriptionTerms

GROUP = bytes(range(8))
HIGH = 1 << 128
SAMPLES = (
    OriginalSample("a" * 32, HIGH, b"key", -5, b"payload" * 100),
    OriginalSample("b" * 32, 7, b"", 9, b"", status=4),
    OriginalSample("a" * 32, 8, b"k", 1 << 62, b"x"),
)
NUMBERS = (("a" * 32, (1, 2, HIGH)), ("b" * 32, (5,)))
LEDGER = LedgerState("logger", SubscriptionTerms(3, True), 2, NUMBERS, (("m", NUMBERS), ("n", ())))
STATE = SubscriberState("Topic", ("p", "q*"), "logger", 2, "m", 9, "ab", 4, True, NUMBERS, NUMBERS, True)
ANSWER = SubscriberAnswer(5, 6, SAMPLES, True, 7)


@pytest.mark.parametrize(
    "message",
    [
        SubscriptionUpdate((LEDGER,), NUMBERS, GROUP),
        SubscriptionUpdate(),
        Fetch(NUMBERS, GROUP),
        FetchedSamples(SAMPLES, GROUP),
    ],
)
def test_messages_between_replicas_come_back_as_they_were(message: PeerMessage) -> None:
    assert decode(encode(message)) == message


def test_states_and_answers_come_back_as_they_were() -> None:
    assert decode(encode(STATE), SubscriberState) == STATE
    for answer in (ANSWER, SubscriberAnswer(1)):
        assert decode(encode(answer), SubscriberAnswer) == answer


def check_survives(body: bytes) -> None:
    """Whatever it is, it is a message or a `MessageFault`."""
    for wanted in ((SubscriberState,), (SubscriberAnswer,), ()):
        try:
            decode(body, *wanted)
        except MessageFault:
            continue


WHOLE = [encode(each) for each in (STATE, ANSWER, SubscriptionUpdate((LEDGER,), NUMBERS, GROUP))]


@given(st.sampled_from(WHOLE), st.integers(0, 10_000), st.binary(max_size=6), st.integers(0, 50))
def test_damaged_messages_are_faults_and_nothing_else(body: bytes, at: int, new: bytes, cut: int) -> None:
    at %= len(body)
    check_survives(body[:at] + new + body[at + cut :])


@given(st.binary(max_size=200))
def test_nonsense_is_a_fault_and_nothing_else(body: bytes) -> None:
    check_survives(body)


WRONG: list[dict[str, Any]] = [
    {"quorum": 0},
    {"quorum": 1 << 40},
    {"number": 0},
    {"request": -1},
    {"name": ""},
    {"name": "\x1b[2J"},
    {"member": "m" * 256},
    {"partitions": ["p"] * 1_001},
    {"had": [["w", [0]]]},
    {"acknowledged": [["w", [1 << 140]]]},
    {"acknowledged": [["", [1]]]},
    {"topic": 5},
]


def head_of(body: bytes) -> dict[str, Any]:
    """The head of a message without samples."""
    head: dict[str, Any] = json.loads(body[9:])
    return head


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_state_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    text = json.dumps({**head_of(encode(STATE)), **wrong}).encode()
    with pytest.raises(MessageFault):
        decode(struct.pack(">BII", 1, 0, len(text)) + text, SubscriberState)


@pytest.mark.parametrize(
    "wrong",
    [{"quorum": 0}, {"name": "n" * 5_000}, {"terms": {"generation": 1 << 63}}, {"done": [["w", [1 << 140]]]}],
    ids=range(4),
)
def test_a_ledger_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    head = head_of(encode(SubscriptionUpdate((LEDGER,), (), GROUP)))
    head["ledgers"][0] |= wrong
    text = json.dumps(head).encode()
    with pytest.raises(MessageFault):
        decode(struct.pack(">BII", 1, 0, len(text)) + text)


def test_another_version_is_refused() -> None:
    with pytest.raises(MessageFault, match="version 9"):
        decode(b"\x09" + encode(STATE)[1:], SubscriberState)
