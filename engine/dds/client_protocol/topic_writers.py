"""The writers of one topic of the protocol: one for each partition in which a client reads.

Each has a queue of its own, and the messages are made and written on other threads than the caller's, so
that a slow client holds up no other.
"""

from __future__ import annotations

import collections
import threading
import time
from typing import TYPE_CHECKING, Final

from engine.dds.activity import Workers, moved
from engine.dds.client_protocol.endpoints import open_writer
from engine.dds.errors import DdsError, DdsTimeout
from engine.dds.writer import stamp_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.dds.activity import ThreadActivities
    from engine.dds.channel import Announced
    from engine.dds.participant import NodeParticipant
    from engine.dds.topics import Topic
    from engine.dds.writer import RawWriter

# Chosen. Fewer lets one slow client delay the next; each more is a thread that does nothing most of the
# time.
WORKERS: Final = 4
"""Limit for clients served at once; a slow client blocks one thread."""
# The client made its reader before it asked, so discovery is on its way: seconds on a loaded machine. A
# client that has gone holds a thread this long.
MATCH_TIMEOUT_S: Final = 10.0
"""Limit for discovering a client's reader; then the answer is given up."""
# Three times the 10 s after which Cyclone DDS by default gives up a dead process: who is silent for longer
# lives and takes nothing.
SEND_TIMEOUT_S: Final = 30.0
"""Limit for a client that takes nothing; then the answer is given up."""
ANSWER_S: Final = MATCH_TIMEOUT_S + SEND_TIMEOUT_S + 10.0
"""Limit for one message of an answer, with a margin for the deadlock watch."""
# A client asks for its topics one after the other, and a new writer has to be matched first. Longer only
# keeps an entity.
IDLE_S: Final = 10.0
# A thread is in the middle of a message for seconds at most; the node's own ServiceTerminatePeriod is of
# the same size by default.
CLOSE_S: Final = 10.0
"""Time that the end of the node waits for threads that are in the middle of a message."""
# One for each client that is served or waits. It bounds writers, which cost Cyclone DDS far more than
# memory.
MAX_LINES: Final = 1_000
PREFIX_BYTES: Final = 12
"""The first bytes of a GUID, the same for all entities of a participant."""


class _Job:
    """Messages for one client (None: for all), and the callback for their end."""

    __slots__ = ("done", "messages", "participant")

    def __init__(
        self, participant: bytes | None, messages: Iterable[bytes], done: Callable[[str], None]
    ) -> None:
        self.participant = participant
        self.messages = messages
        self.done = done


class _Line:
    """One writer with its queue. One thread at a time works on it."""

    def __init__(self) -> None:
        # Between the node's thread, which adds jobs, and the one worker that carries them out: a job must
        # not be added just as the worker goes idle.
        self.lock = threading.Lock()
        self.jobs: collections.deque[_Job] = collections.deque()
        self.busy = False
        self.used_s = time.monotonic()
        self.writer: RawWriter | None = None


class TopicWriters:
    """The writers of one topic.

    Args:
        participant: the node's.
        topic: the topic of the answers.
        announced: name and TRANSPORT_PRIORITY of the writers.
        activities: registers the work of its threads for the deadlock watch.
        is_proved: the messages have a place for their proof.
    """

    def __init__(
        self,
        participant: NodeParticipant,
        topic: Topic,
        announced: Announced,
        activities: ThreadActivities,
        *,
        is_proved: bool = False,
    ) -> None:
        self._participant = participant
        self._is_proved = is_proved
        self._announced = announced
        self._topic = topic
        self._activities = activities
        self._lines: dict[tuple[str, ...], _Line] = {}
        self._workers = Workers(activities, WORKERS, "historicalData")
        self._closing = threading.Event()

    def send(
        self,
        partitions: tuple[str, ...],
        participant: bytes | None,
        messages: Iterable[bytes],
        done: Callable[[str], None],
    ) -> None:
        """Write messages in a client's partitions, after earlier messages there.

        Args:
            partitions: the partitions of the client's reader.
            participant: GUID prefix of the client whose reader must match first. None writes to all matched.
            messages: the messages, iterated on another thread.
            done: called on another thread with the problem, "" for none.
        """
        line = self._lines.get(partitions)
        if line is None:
            if len(self._lines) >= MAX_LINES:
                done(f"{MAX_LINES} clients are being answered already")
                return
            line = self._lines[partitions] = _Line()
        with line.lock:
            line.jobs.append(_Job(participant, messages, done))
            line.used_s = time.monotonic()
            if line.busy:
                return
            line.busy = True
        self._workers.submit(lambda: self._work(partitions, line))

    def close_idle(self, kept: set[tuple[str, ...]]) -> None:
        """Close the writers unused for `IDLE_S`, except those of `kept` partitions."""
        now = time.monotonic()
        for partitions, line in list(self._lines.items()):
            with line.lock:
                idle = not line.busy and not line.jobs and now - line.used_s > IDLE_S
            if idle and partitions not in kept:
                del self._lines[partitions]
                if line.writer is not None:
                    line.writer.close()

    def _work(self, partitions: tuple[str, ...], line: _Line) -> None:
        while True:
            with line.lock:
                if not line.jobs:
                    line.busy = False
                    line.used_s = time.monotonic()
                    return
                job = line.jobs.popleft()
            problem = ""
            try:
                if line.writer is None:
                    line.writer = self._open(partitions)
                with self._activities.job("historicalDataRequestHandler (answer to a client)", ANSWER_S):
                    problem = self._carry_out(line.writer, job)
            except DdsError as error:
                problem = str(error)
            job.done(problem)

    def _open(self, partitions: tuple[str, ...]) -> RawWriter:
        announced = self._announced
        return open_writer(
            self._participant,
            self._topic,
            partitions,
            batching=True,
            name=announced.writer,
            priority=announced.priorities.get(self._topic.name, announced.priority),
        )

    def _carry_out(self, writer: RawWriter, job: _Job) -> str:
        def is_there() -> bool:
            if self._closing.is_set():
                return True
            prefixes = {guid[:PREFIX_BYTES] for guid in writer.matched_readers().values()}
            return job.participant is None or job.participant in prefixes

        if not writer.wait_until(is_there, MATCH_TIMEOUT_S):
            return "READER_NOT_KNOWN: its reader of historical data was not discovered"
        for message in job.messages:
            problem = self._write(writer, message, is_there)
            moved()
            if problem:
                return problem
        writer.flush()
        return ""

    def _write(self, writer: RawWriter, message: bytes, is_there: Callable[[], bool]) -> str:
        deadline = time.monotonic() + SEND_TIMEOUT_S
        while not self._closing.is_set():
            try:
                writer.write(self._proved(writer, message), stamp_ns())
            except DdsTimeout:
                if not is_there():
                    return "the client is gone"
                if time.monotonic() > deadline:
                    return f"the client took nothing for {SEND_TIMEOUT_S} s"
            else:
                return ""
        return "the node ends"

    def _proved(self, writer: RawWriter, message: bytes) -> bytes:
        if not self._is_proved:
            return message
        return self._participant.proofs.filled(self._topic.name, writer.guid, message)

    def close(self) -> None:
        """End the threads; unwritten messages are given up."""
        self._closing.set()
        self._workers.close(CLOSE_S)
        for line in self._lines.values():
            if line.writer is not None:
                line.writer.close()
