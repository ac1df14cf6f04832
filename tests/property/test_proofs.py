"""A proof holds for one message of one writer, once; nothing else passes, and refusing costs little."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dds import cdr, proofs
from engine.dds.proofs import DomainSecret, ProofFault, Proofs, SecretError

WRITER, OTHER = b"w" * 12 + b"\0\0\1\3", b"v" * 12 + b"\0\0\1\3"
FIRST, SECOND = "first" * 8, "second" * 8


def secret_in(path: Path, *lines: str, mode: int = 0o600) -> str:
    file = path / "secret"
    file.write_text("\n".join(lines), encoding="ascii")
    file.chmod(mode)
    return str(file)


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> DomainSecret:
    return DomainSecret(secret_in(tmp_path_factory.mktemp("secret"), "# of tests", FIRST))


TEXTS = st.text(max_size=20)
PARTS = st.tuples(TEXTS, st.sampled_from([WRITER, OTHER]), st.binary(max_size=40), st.binary(max_size=4_000))


@given(PARTS, PARTS, st.integers(0, 10_000), st.integers(1, 255))
def test_a_message_passes_as_it_was_sent_and_once(
    secret: DomainSecret, sent: tuple[str, bytes, bytes, bytes], other: tuple[str, bytes, bytes, bytes],
    at: int, change: int,
) -> None:  # fmt: skip
    topic, writer, sender, payload = sent
    sending, receiving = Proofs(secret), Proofs(secret)
    message = sending.prove(*sent) + payload
    if other[:3] != sent[:3]:
        assert receiving.verify(*other[:3], message) is None
    damaged = bytearray(message)
    damaged[at % len(message)] ^= change
    assert receiving.verify(topic, writer, sender, bytes(damaged)) is None
    assert receiving.verify(topic, writer, sender, message[: at % len(message)]) is None
    assert receiving.verify(topic, writer, sender, message) == payload
    assert receiving.verify(topic, writer, sender, message) is None
    assert receiving.verify(topic, writer, sender, message, is_state=True) == payload
    assert receiving.verify(topic, writer, sender, sending.prove(*sent) + payload) == payload
    assert receiving.verify(topic, writer, sender, message, is_state=True) is None
    assert Proofs(None).verify(topic, writer, sender, message) is None


@given(st.binary(max_size=100), st.binary(max_size=100), st.binary(max_size=60))
def test_a_proof_within_a_message(secret: DomainSecret, before: bytes, after: bytes, made_up: bytes) -> None:
    sending, receiving = Proofs(secret), Proofs(secret)
    message = sending.filled("topic", WRITER, before + sending.place() + after)
    proof = message[len(before) :][: proofs.SIZE]
    assert not receiving.is_proved("topic", OTHER, message, proof)
    assert not receiving.is_proved("topic", WRITER, message + b"!", proof)
    assert not receiving.is_proved("topic", WRITER, before + made_up + after, made_up)
    assert receiving.is_proved("topic", WRITER, message, proof)
    assert not receiving.is_proved("topic", WRITER, message, proof)
    assert Proofs(None).filled("topic", WRITER, message) == message
    assert not Proofs(None).is_proved("topic", WRITER, message, proof)


def test_a_secret_is_replaced_while_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "LOOK_S", 0.0)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = (DomainSecret(secret_in(tmp_path / name, FIRST)) for name in "ab")
    here, there = Proofs(one), Proofs(two)

    def passes() -> bool:
        forth = there.verify("t", WRITER, b"", here.prove("t", WRITER, b"", b"x") + b"x")
        back = here.verify("t", OTHER, b"", there.prove("t", OTHER, b"", b"x") + b"x")
        return forth == back == b"x"

    for lines in ((FIRST, SECOND), (SECOND, FIRST), (SECOND,)):
        for name in "ab":
            secret_in(tmp_path / name, *lines)
            assert passes()
    secret_in(tmp_path / "a", FIRST)
    assert not passes()
    assert ProofFault.OTHER in there.refused[WRITER[:12] + b"\0\0\1\xc1"].counts
    secret_in(tmp_path / "a", SECOND, mode=0o640)
    assert not passes()
    assert "0640" in one.problem
    secret_in(tmp_path / "a", SECOND)
    assert passes()
    assert not one.problem
    # A state that is refused for its secret waits until that is known; of many, the newest ones do.
    secret_in(tmp_path / "a", FIRST)
    payload, many = bytes(60_000), 2 * proofs.LATER_BYTES // 60_000
    writers = [number.to_bytes(12) + WRITER[12:] for number in range(many)]
    for writer in (*writers, writers[-2]):
        message = here.prove("t", writer, b"n", payload) + payload
        assert there.verify("t", writer, b"n", message, is_state=True) is None
    assert not there.verifiable("t")
    secret_in(tmp_path / "b", SECOND, FIRST)
    there.ended("t", writers[-1])
    assert not there.verifiable("another")
    waiting = there.verifiable("t")
    assert many / 2 - 5 < len(waiting) < many / 2 + 1
    assert [each.writer for each in waiting[-2:]] == [writers[-3], writers[-2]]
    for each in waiting:
        sender, message = cdr.unpack_named(each.payload)
        assert there.verify("t", each.writer, sender, message, is_state=True) == payload
    assert not there.verifiable("t")


@pytest.mark.parametrize(
    ("lines", "mode", "words"),
    [
        ([], 0o600, "has no secret"),
        (["# only words"], 0o600, "has no secret"),
        (["short"], 0o600, "5 characters"),
        ([FIRST, "short"], 0o600, "5 characters"),
        ([FIRST] * 9, 0o600, "9 secrets"),
        ([FIRST], 0o644, "chmod 600"),
        ([FIRST], 0o620, "chmod 600"),
    ],
)
def test_a_file_that_is_no_secret(tmp_path: Path, lines: list[str], mode: int, words: str) -> None:
    with pytest.raises(SecretError, match=words):
        DomainSecret(secret_in(tmp_path, *lines, mode=mode))


def test_what_is_no_file_of_ours(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path, words in (
        (tmp_path, "is not a file"),
        (tmp_path / "pipe", "is not a file"),
        (tmp_path / "none", "No such file"),
        ("a\0b", "null"),
    ):
        with pytest.raises(SecretError, match=words):
            DomainSecret(str(path))


def test_wrong_proofs_cost_little_and_a_right_one_is_never_held_up(secret: DomainSecret) -> None:
    """Of one who has proved nothing, so many bytes are hashed in a second; others are not concerned."""
    receiving, sending = Proofs(secret), Proofs(secret)
    right = sending.prove("t", WRITER, b"", b"x") + b"x"
    wrong = right[:12] + b"\xff" * 8 + bytes(32) + bytes(1 << 20)
    began = time.process_time()
    for _ in range(2_000):
        assert receiving.verify("t", OTHER, b"", wrong) is None
    spent = time.process_time() - began
    began = time.process_time()
    for _ in range(20):
        proofs._proof(bytes(64), "t", OTHER, b"", 1, wrong)
    assert spent < 20 * (time.process_time() - began), "of 2,000 MiB, few were hashed"
    assert receiving.verify("t", WRITER, b"", right) == b"x"
