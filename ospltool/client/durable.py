"""A writer that keeps its samples until enough nodes have stored them."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from cyclonedds.qos import Policy

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, make_sample
from engine.dds import abi
from engine.dds.client_protocol import naming
from engine.dds.client_protocol.extensions import StateRequestAddition
from engine.dds.client_protocol.naming import SampleName, SampleVerdict
from engine.dds.errors import TIMEOUT, DdsError
from ospltool.client import asking, errors
from ospltool.client.asking import JOURNAL_WAIT_S, MEMORY_WAIT_S, PendingNotice, added, ask, name_of
from ospltool.client.errors import MissingSamples, Reason, counted
from ospltool.client.journal import Journal, Recovery
from ospltool.client.ledger import DurableCounters, NodeVerdicts, PendingQueue, PendingSample
from ospltool.client.surveys import NamedQuestion, given_up, is_kept, may_count, partitions_of, uncounted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cyclonedds.pub import DataWriter

    from ospltool.client.asking import Answers
    from ospltool.client.client import DurabilityClient

# As the limits for a reader (`DEFAULT_MAX_SAMPLES`): what waits for nodes, in the application's memory. At
# either limit `write` blocks.
MAX_SAMPLES: Final = 100_000
# As for `MAX_SAMPLES`: memory of the application.
MAX_BYTES: Final = 64 << 20
# Shorter than `asking.HOLD_S`: nodes capture by themselves as a rule, and handing over twice does no harm.
HOLD_S: Final = 0.25
"""Seconds that a node may wait for samples on the way; those that it misses then are handed over."""
# After a round that handed over nothing: longer delays the next attempt, shorter asks nodes that have just
# refused.
PAUSE_S: Final = 0.1
# As the ServiceTerminatePeriod of services. An application that ends cannot wait for a node that is down.
CLOSE_S: Final = 10.0
_WRITES: Final[dict[int, Callable[..., int]]] = {
    DATA: abi.write_at,
    DATA | DISPOSE: abi.writedispose_at,
    DISPOSE: abi.dispose_at,
    UNREGISTER: abi.unregister_at,
}

_log = logging.getLogger("ospltool.client")
_T = TypeVar("_T")


class DurableWriter(Generic[_T]):
    """A writer on top of one of `cyclonedds`, which keeps samples until enough nodes have stored them.

    Readers get each sample in the ordinary way. The nodes are asked about each sample by name. A node that
    missed one, because it started later or was cut off, is given it with its original source time and writer
    identity, so that it counts once, even if it also arrives otherwise. Several threads may write.

    With a journal, pending samples survive the application: a later DurableWriter with the same file hands
    them over, under the identity of the original writer.

    A write returns when the sample is kept: in memory, or in the journal. From then on it is lost only if
    this process (without a journal), or the journal's disk, is lost before enough nodes have stored it.

    When the bound is reached, a write blocks: of a RELIABLE writer at most for its max_blocking_time, of a
    BEST_EFFORT one not at all. It then raises `WriterFull`, and nothing is written.

    Args:
        client: talks to the nodes. It must stay open.
        writer: a TRANSIENT or PERSISTENT writer; only samples written through this object are kept.
        nodes: number of nodes that must store a sample, by default one, or more than half of `expected`.
            `DurabilityClient.wait_for_durable` tells which nodes do not count.
        expected: names of the nodes that count; empty for all.
        max_samples, max_bytes: bounds of the pending samples; a single sample may be larger.
        journal: the file, in an existing directory; None keeps samples in memory only.
        sync: wait for the journal's disk with each write, so that samples survive the loss of power, too.

    Raises:
        PreconditionNotMet: the writer is VOLATILE or TRANSIENT_LOCAL, or a number is out of range.
        JournalInUse, JournalMismatch, JournalError: see `recovery` for damage that is survived.
    """

    def __init__(
        self,
        client: DurabilityClient,
        writer: DataWriter[_T],
        *,
        nodes: int | None = None,
        expected: Sequence[str] = (),
        max_samples: int = MAX_SAMPLES,
        max_bytes: int = MAX_BYTES,
        journal: Path | None = None,
        sync: bool = True,
    ) -> None:
        if not is_kept(writer):
            raise errors.PreconditionNotMet(
                "the writer is neither TRANSIENT nor PERSISTENT, so nothing is kept"
            )
        wanted = nodes if nodes is not None else len(expected) // 2 + 1
        if wanted < 1 or (expected and wanted > len(set(expected))):
            raise errors.PreconditionNotMet(f"nodes is 1 to the number of expected nodes, not {wanted}")
        if min(max_samples, max_bytes) < 1:
            raise errors.PreconditionNotMet("max_samples and max_bytes are at least 1")
        self.writer = writer
        self._session = client.session
        self._topic = writer.topic.name
        self._partitions = tuple(sorted(set(partitions_of(writer)))) or ("",)
        self._expected = frozenset(expected)
        self._nodes = wanted
        self._blocking_s = _blocking_s(writer.get_qos())
        self._guid = abi.guid_of(writer._ref)
        # One for the order: the ledger and DDS must get the samples in the same one. `_changed` is taken
        # inside it, never the other way round.
        self._write_lock = threading.Lock()
        self._changed = threading.Condition()
        self._last_ns = self._handed_over = self._blocked = 0
        self._answers: Answers = {}
        self._question: NamedQuestion | None = None
        self._is_closing = False
        self._fault: BaseException | None = None
        self._journal = None
        if journal is not None:
            type_name = writer.topic.typename
            owner = {"topic": self._topic, "type": type_name, "partitions": list(self._partitions)}
            self._journal = Journal(journal, owner, sync=sync)
        self.recovery = self._journal.found if self._journal else Recovery()
        """The contents of the journal when it was opened."""
        if self.recovery.damaged_bytes or self.recovery.torn_bytes:
            _log.warning("journal %r: %s", str(journal), self.recovery)
        self._ledger = PendingQueue(self._partitions, wanted, max_samples, max_bytes, self._journal)
        self._notice = PendingNotice(
            client.session,
            self._topic,
            self._partitions,
            self._journal.identity if self._journal else self._guid.hex(),
            JOURNAL_WAIT_S if self._journal else MEMORY_WAIT_S,
        )
        self._thread = threading.Thread(target=self._run, name="ospltool.durable", daemon=True)
        self._thread.start()

    # What the application calls.

    def write(self, sample: _T, timestamp: int | None = None) -> SampleName:
        """Write a sample; return its name, which `wait_for_durable` accepts in any process.

        Args:
            sample: a sample of the writer's type.
            timestamp: source time in nanoseconds since 1970 UTC; now by default.

        Raises:
            WriterFull: the bound of pending samples was reached, and no room came in time.
            DurabilityTimeout: readers blocked the writer for longer than its max_blocking_time.
            JournalError: the journal cannot be written, or another file or writer is in its place.
            Closed: the writer or its client has been closed, or its thread has ended.
        """
        return self._put(DATA, sample, timestamp)

    def write_dispose(self, sample: _T, timestamp: int | None = None) -> SampleName:
        """Write a sample and dispose its instance, like `write`."""
        return self._put(DATA | DISPOSE, sample, timestamp)

    def dispose(self, sample: _T, timestamp: int | None = None) -> SampleName:
        """Dispose the instance of a sample, like `write`."""
        return self._put(DISPOSE, sample, timestamp)

    def unregister(self, sample: _T, timestamp: int | None = None) -> SampleName:
        """Unregister the instance of a sample, like `write`."""
        return self._put(UNREGISTER, sample, timestamp)

    def flush(self, timeout_s: float) -> None:
        """Wait until enough nodes have stored everything written before this call.

        Raises:
            NotStored: not in time; `missing` says which samples, where and why. They stay pending. Or samples
                had to be given up, and are not pending any more; each is told by one call only. The reason
                is DELETED if `delete_historical_data` deleted their group up to a later source time, REFUSED
                if limits of DURABILITY_SERVICE leave no room for them or they are too large.
            JournalError, Closed: as for `write`.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            self._ledger.secure()
            last = self._ledger.last
            while not self._ledger.is_settled_until(last):
                self._check()
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise self._not_stored()
                self._changed.wait(left_s)
            since_ns = self._since_ns()
        self._notice.send(since_ns, is_idle=True)  # the application may end now, without closing this
        with self._changed:
            self._tell_given_up()

    @property
    def counters(self) -> DurableCounters:
        """Counts up to now."""
        with self._changed:
            ledger, journal = self._ledger, self._journal
            return DurableCounters(
                ledger.written,
                ledger.settled,
                len(ledger),
                ledger.bytes,
                self._handed_over,
                self.recovery.samples,
                self._blocked,
                journal.size if journal else 0,
                ledger.deleted,
                ledger.refused,
            )

    def close(self) -> int:
        """End the thread and close the journal; return how many samples are still pending. Idempotent.

        They stay in the journal; without one they are abandoned. The writer of `cyclonedds` stays open.

        Raises:
            JournalError: they are not in the journal and are abandoned: it was removed and cannot be written
                again, or another file or writer is in its place. Everything is closed.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(asking.HOLD_S + asking.GRACE_S)
        with self._write_lock, self._changed:
            try:
                if self._ledger:
                    self._ledger.secure()
            finally:
                if self._journal:
                    self._journal.close()
            return len(self._ledger)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Flush, for at most 10 s, and close.

        Raises:
            NotStored: samples are still pending; not raised during another exception.
            JournalError: as for `flush` and `close`.
        """
        try:
            if kind is None:
                self.flush(CLOSE_S)
        finally:
            self.close()

    # Writing.

    def _put(self, status: int, value: _T, timestamp: int | None) -> SampleName:
        payload, key = self._serialized(status, value)
        with self._write_lock:
            with self._changed:
                self._check()
                self._wait_for_room(len(payload) + len(key))
                self._last_ns = max(time.time_ns(), self._last_ns + 1) if timestamp is None else self._last_ns
                time_ns = self._last_ns if timestamp is None else timestamp
                sample = make_sample(time_ns, self._guid, status, key, payload)
                entry = self._ledger.add(sample)
            container = abi.SampleBytes(payload, len(payload))
            code = _WRITES[status](self.writer._ref, ctypes.byref(container), time_ns)
            with self._changed:
                if code >= 0 and entry is not None:
                    entry.is_written = True
                elif entry is not None:
                    self._ledger.withdraw(entry)
                self._changed.notify_all()
        if code < 0:  # Cyclone DDS did not write it
            kind = errors.DurabilityTimeout if code == TIMEOUT else errors.DurabilityError
            raise kind(str(DdsError(code, f"write to topic '{self._topic}'")))
        return SampleName.from_sample(sample)

    def _serialized(self, status: int, value: Any) -> tuple[bytes, bytes]:
        """Return the serialized sample, and the key of its instance."""
        version_2 = self.writer._use_version_2
        if not isinstance(value, self.writer.data_type):
            raise TypeError(f"{value!r} is not of type {self.writer.data_type!r}")
        is_key = not status & DATA
        made = value.serialize_key if is_key else value.serialize
        serialized = _padded(made(use_version_2=version_2))
        content = abi.as_written(self.writer._ref, serialized, is_key=is_key)
        if content is None:
            raise errors.DurabilityError(f"topic '{self._topic}': the sample cannot be serialized")
        key, payload = content
        return payload, key

    def _wait_for_room(self, size: int) -> None:
        if self._ledger.has_room(size):
            return
        self._blocked += 1
        deadline_s = time.monotonic() + self._blocking_s
        while not self._ledger.has_room(size):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise errors.WriterFull(
                    f"topic '{self._topic}': {len(self._ledger)} samples of {self._ledger.bytes} bytes are "
                    f"not stored yet, which is the limit"
                )
            self._changed.wait(left_s)
            self._check()

    def _check(self) -> None:
        if self._fault is not None:
            raise errors.Closed("the thread of the durable writer has ended") from self._fault
        if self._is_closing:
            raise errors.Closed("the durable writer has been closed")

    def _given_up(self) -> list[MissingSamples]:
        told = self._ledger.tell_given_up()
        return [given_up(self._topic, why, count, names) for why, count, names in told]

    def _tell_given_up(self) -> None:
        missing = self._given_up()
        if missing:
            text = f"topic '{self._topic}': samples are not stored and never will be: "
            raise errors.NotStored(f"{text}{'; '.join(map(str, missing))}", tuple(missing))

    def _not_stored(self) -> errors.NotStored:
        missing = self._given_up()
        if self._question is not None:
            required = {one: state for one, state in self._answers.items() if added(state).required}
            current = {one: state for one, state in required.items() if _is_current(state)}
            missing += [each for found in self._question.missing(current).values() for each in found]
            outdated = [name_of(state) for one, state in required.items() if one not in current]
            missing += [
                MissingSamples(self._topic, name, Reason.NO_ANSWER, 0, detail="it is of another version")
                for name in outdated
            ]
            missing += [each for state in current.values() for each in uncounted(self._topic, state)]
            able = len(self._counting(current))
            if able < self._nodes:
                verb = "answers and counts" if able == 1 else "answer and count"
                said = f"{counted(able, 'node')} {verb}, {self._nodes} must store it"
                missing.append(
                    MissingSamples(self._topic, "", Reason.TOO_FEW_NODES, len(self._ledger), detail=said)
                )
        else:
            said = "no durability service that serves clients has been found"
            missing.append(MissingSamples(self._topic, "", Reason.NO_ANSWER, len(self._ledger), detail=said))
        if not missing:
            said = "the nodes have not been asked about them yet"
            missing.append(MissingSamples(self._topic, "", Reason.NO_ANSWER, len(self._ledger), detail=said))
        count = len(self._ledger)
        are = f"{counted(count, 'sample')} {'is' if count == 1 else 'are'}"
        text = f"topic '{self._topic}': {are} not stored by {counted(self._nodes, 'node')}"
        return errors.NotStored(f"{text}: {'; '.join(map(str, missing))}", tuple(missing))

    # The thread.

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    while not ((entries := self._ledger.first()) or self._is_closing or self._notice.is_due):
                        self._changed.wait(self._notice.left_s)
                    if self._is_closing:
                        break
                    with contextlib.suppress(errors.JournalError):  # the next write or flush raises it
                        self._ledger.secure()
                    since_ns = self._since_ns()
                if self._notice.is_due:
                    self._notice.send(since_ns, is_idle=not entries)
                if entries and not self._round(entries):
                    with self._changed:
                        if not self._is_closing:
                            self._changed.wait(PAUSE_S)
            if not self._journal or not self._ledger:
                self._notice.end()
        except Exception as error:  # callers of `write` must hear of it
            with self._changed:
                self._fault = error
                self._changed.notify_all()

    def _since_ns(self) -> int:
        """Return the source time of the earliest sample that is pending, or will be."""
        now_ns = time.time_ns()  # what is written next may be older than a pending sample of a later time
        return min(self._ledger.earliest_ns or now_ns, now_ns)

    def _round(self, entries: Sequence[PendingSample]) -> bool:
        """Ask about the oldest samples and hand over missing ones; return whether that had any effect."""
        deadline_s = time.monotonic() + HOLD_S + asking.GRACE_S
        if not self._session.wait_until(lambda: bool(self._session.state_services()), deadline_s):
            with self._changed:
                self._answers, self._question = {}, None
            return False
        question = NamedQuestion(self._topic, self._partitions, [entry.name for entry in entries])

        def is_enough(answers: Answers) -> bool:
            said = [question.verdicts(answers[one]) for one in self._counting(answers)]
            return len(said) >= self._nodes and all(
                sum(each[at].is_kept for each in said) >= self._nodes for at in range(len(entries))
            )

        answers = ask(
            self._session,
            self._topic,
            self._partitions,
            deadline_s,
            hold_s=HOLD_S,
            enough=is_enough,
            blocks=question.blocks(),
            addition=StateRequestAddition(stored=question.asked()),
        )
        verdicts = {one: question.verdicts(state) for one, state in answers.items() if _is_current(state)}
        counting = self._counting(answers)
        with self._changed:
            self._answers, self._question = answers, question
            settled = self._ledger.judge(
                entries,
                [
                    NodeVerdicts(
                        name_of(answers[one]),
                        added(answers[one]).partitions if one in counting else (),
                        added(answers[one]).on_disk,
                        said,
                        answers[one].server.hex(),
                    )
                    for one, said in verdicts.items()
                ],
            )
            if settled:
                self._changed.notify_all()
            left = [entry for entry in entries if self._ledger.holds(entry)]
        handed = 0
        for one, said in verdicts.items():
            state = answers[one]
            missed = {entry.name for entry, verdict in zip(entries, said, strict=True)
                      if verdict is SampleVerdict.MISSING}  # fmt: skip
            lacks = [entry for entry in left if entry.name in missed]
            if lacks and added(state).complete and added(state).required:
                handed += self._hand_over(state.server, self._ledger.following(lacks, left))
        return bool(settled or handed)

    def _counts(self, state: Any) -> bool:
        """Return whether a node is one of those that must store samples."""
        return (
            _is_current(state)
            and added(state).required
            and may_count(state)
            and (not self._expected or name_of(state) in self._expected)
        )

    def _counting(self, answers: Answers) -> set[bytes]:
        """Return the services that must store samples; of equal names in `expected` one counts."""
        able = [(one, name_of(state)) for one, state in answers.items() if self._counts(state)]
        return set({name if self._expected else one: one for one, name in able}.values())

    def _hand_over(self, server: bytes, entries: Sequence[PendingSample]) -> int:
        """Give a node the samples that it missed; return how many it took."""
        taken = 0
        for samples in naming.pieces([entry.sample for entry in entries]):
            answers = ask(
                self._session,
                self._topic,
                self._partitions,
                time.monotonic() + asking.GRACE_S,
                servers=(server,),
                blocks={naming.SAMPLES: naming.pack_samples(samples)},
                addition=StateRequestAddition(keep=self._guid),
            )
            kept = sum(added(state).kept for state in answers.values())
            with self._changed:
                self._handed_over += kept
            taken += kept
            if kept < len(samples):
                break
        return taken


def _is_current(state: Any) -> bool:
    return added(state).answers == naming.ANSWERS


def _padded(serialized: bytes) -> bytes:
    """Pad a sample as `cyclonedds` does."""
    return serialized + bytes(-len(serialized) % 4)


def _blocking_s(qos: Any) -> float:
    if Policy.Reliability not in qos:
        return 0.0
    reliability = qos[Policy.Reliability]
    is_reliable = isinstance(reliability, Policy.Reliability.Reliable)
    return float(reliability.max_blocking_time) / 1e9 if is_reliable else 0.0
