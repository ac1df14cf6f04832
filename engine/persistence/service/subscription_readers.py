"""Readers with durable subscriptions on Cyclone DDS: their states, and answers to them."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from engine.dataset.sample import DATA
from engine.dds import abi
from engine.dds.bulk import BulkSender
from engine.dds.capture_reader import CaptureReader
from engine.dds.cdr import Malformed
from engine.dds.errors import DdsError
from engine.dds.participant import NodeParticipant
from engine.dds.subscription_endpoints import STATES, answers_to, open_states, unpack_state
from engine.dds.waiting import Signal
from engine.dds.writer_names import WRITER_GONE
from engine.persistence.core.messages import (
    MessageFault,
    SubscriberAnswer,
    SubscriberState,
    decode,
    encode,
)

MATCH_S: Final = 2.0
"""Longest wait for the reader of the answers, which was made before its state was sent."""
SEND_S: Final = 10.0
"""Longest time to send one answer; then the reader gets no more of the batch, and asks again."""
MAX_READERS: Final = 10_000


class _Line(Struct):
    """The answers to one reader; one thread at a time sends them."""

    participant: bytes
    waiting: list[SubscriberAnswer] = []
    sender: BulkSender | None = None
    is_busy: bool = False
    is_gone: bool = False


Submit = Callable[[Callable[[], Any], Callable[[Any], None]], None]


class ConnectedReaders:
    """The connected readers.

    Args:
        participant: of this replica.
        signal: set when states have arrived.
        submit: runs a function on a worker thread, and then one on the service's thread.

    Attributes:
        counters: `malformed`, `refused` (beyond the bound), `unanswered` (a reader was gone or too slow).
    """

    def __init__(self, participant: NodeParticipant, signal: Signal, submit: Submit) -> None:
        self._participant = participant
        self._submit = submit
        self._states: CaptureReader = open_states(participant, signal)
        self._lines: dict[str, _Line] = {}
        self._reader_of: dict[bytes, str] = {}
        self.counters: collections.Counter[str] = collections.Counter()

    def take(self) -> list[Any]:
        """Take the records that have arrived; for the pump."""
        return [*self._states.drain(), *self._participant.proofs.verifiable(STATES)]

    def understand(self, records: Sequence[Any]) -> list[tuple[str, SubscriberState | None]]:
        """Return readers with their new states, in order; None for one that is gone."""
        found: list[tuple[str, SubscriberState | None]] = []
        for record in records:
            if record.status & WRITER_GONE:
                self._participant.proofs.ended(STATES, record.writer)
                reader = self._reader_of.pop(record.writer, None)
                if reader is not None:
                    self._end(self._lines.pop(reader))
                    found.append((reader, None))
            elif record.status & DATA:
                try:
                    reader, body = unpack_state(record.payload, record.writer, self._participant.proofs)
                    state = decode(body, SubscriberState)
                except (Malformed, MessageFault):
                    self.counters["malformed"] += 1
                    continue
                if self._is_known(record.writer, reader):
                    found.append((reader, state))
        return found

    def _is_known(self, writer: bytes, reader: str) -> bool:
        """Whether this writer is the first that speaks for this reader, and speaks for no other."""
        known = self._reader_of.get(writer)
        if known is None and reader not in self._lines and len(self._lines) < MAX_READERS:
            self._lines[reader] = _Line(abi.participant_of(writer))
            self._reader_of[writer] = reader
            return True
        if known != reader:
            self.counters["refused"] += 1
        return known == reader

    def send(self, answers: Sequence[tuple[str, SubscriberAnswer]]) -> None:
        """Send answers, in order for each reader."""
        for reader, answer in answers:
            line = self._lines.get(reader)
            if line is None:
                continue
            if line.waiting and not line.waiting[-1].request and not answer.request:
                line.waiting.pop()  # the later one includes it
            line.waiting.append(answer)
        for reader in dict.fromkeys(reader for reader, _ in answers):
            line = self._lines.get(reader)
            if line is not None and not line.is_busy:
                self._begin(reader, line)

    def _begin(self, reader: str, line: _Line) -> None:
        answers, line.waiting = line.waiting, []
        line.is_busy = True

        def done(is_sent: bool) -> None:
            line.is_busy = False
            if line.is_gone:
                self._end(line)
            elif not is_sent:
                self.counters["unanswered"] += 1
            if line.waiting and not line.is_gone:
                self._begin(reader, line)

        self._submit(lambda: self._send_all(reader, line, answers), done)

    def _send_all(self, reader: str, line: _Line, answers: Sequence[SubscriberAnswer]) -> bool:
        """Send answers on a worker thread; return whether all were sent."""
        try:
            if line.sender is None:
                line.sender = answers_to(self._participant, reader, line.participant)
            if line.sender.missing() and line.sender.wait_targets(MATCH_S):
                return False
            for answer in answers:
                line.sender.send(encode(answer), SEND_S)
        except DdsError:
            return False
        return True

    def _end(self, line: _Line) -> None:
        line.is_gone = True
        if not line.is_busy and line.sender is not None:
            line.sender.close()
            line.sender = None

    def close(self) -> None:
        """Close the reader of states."""
        self._states.close()
