"""Messages about durable subscriptions as bytes, and what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from engine.persistence.core.subscription_codec import (
    decode,
    decode_answer,
    decode_state,
    encode,
    encode_answer,
    encode_state,
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
    [SubscriptionUpdate((LEDGER,), NUMBERS), SubscriptionUpdate(), Fetch(NUMBERS), FetchedSamples(SAMPLES)],
)
def test_messages_between_replicas_come_back_as_they_were(message: PeerMessage) -> None:
    assert decode(*encode(GROUP, message)) == (GROUP, message)


def test_states_and_answers_come_back_as_they_were() -> None:
    assert decode_state(encode_state(STATE)) == STATE
    assert decode_answer(encode_answer(ANSWER)) == ANSWER
    assert decode_answer(encode_answer(SubscriberAnswer(1))) == SubscriberAnswer(1)


def check_survives(body: bytes) -> None:
    """Whatever it is, it is a message or a `MessageFault`."""
    for read in (decode_state, decode_answer, lambda given: decode("subscription-books", given)):
        try:
            read(body)
        except MessageFault:
            continue


WHOLE = [encode_state(STATE), encode_answer(ANSWER), encode(GROUP, SubscriptionUpdate((LEDGER,), NUMBERS))[1]]


@given(st.sampled_from(WHOLE), st.integers(0, 10_000), st.binary(max_size=6), st.integers(0, 50))
def test_damaged_messages_are_faults_and_nothing_else(body: bytes, at: int, new: bytes, cut: int) -> None:
    at %= len(body)
    check_survives(body[:at] + new + body[at + cut :])


@given(st.binary(max_size=200))
def test_nonsense_is_a_fault_and_nothing_else(body: bytes) -> None:
    check_survives(body)


@pytest.mark.parametrize("writers", [5, None, {"0": "w"}, "w", [["w"]]])
def test_writers_that_are_no_list_of_names_are_a_fault(writers: object) -> None:
    for body in (*WHOLE, encode(GROUP, FetchedSamples(SAMPLES))[1]):
        size = int.from_bytes(body[1:5])
        head = json.dumps({**json.loads(body[5 : 5 + size]), "writers": writers}).encode()
        check_survives(body[:1] + len(head).to_bytes(4) + head + body[5 + size :])


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


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_state_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    body = encode_state(STATE)
    head = {**json.loads(body[5:]), **wrong}
    text = json.dumps(head).encode()
    with pytest.raises(MessageFault):
        decode_state(body[:1] + len(text).to_bytes(4, "big") + text)


def test_another_version_is_refused() -> None:
    with pytest.raises(MessageFault, match="version 9"):
        decode_state(b"\x09" + encode_state(STATE)[1:])
