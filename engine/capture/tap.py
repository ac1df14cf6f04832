"""The tap of one topic and type, which can be replaced by one that requests more, without a gap.

A reader of Cyclone DDS cannot change the durability that it requests. So the tap opens a second one beside
it. For a while there are both: the first captures, and the second accepts everything and keeps nothing. Then
the second begins to keep samples, too; once it has the first one's last sample, the first one ends.

Nothing is lost. A writer discovers the second reader before it learns of the end of the first (discovery is
reliable and ordered), so it always has a reader to which it resends lost samples; and it had `BESIDE_S` to
send everything that only the first one was owed. Every writer that matches the second one matches the first.

Nothing arrives twice: see `TapHandover`. The second reader may be seconds behind, because a writer
sends it its remaining history. If a writer was there all the time, its samples before one that the first
reader got are not new. A writer whose cache is full waits for the second reader and sends nothing to either;
nothing shows how far behind the second reader is, so the tap waits for it.

While the second reader is not yet in step with a writer, which takes some milliseconds, Cyclone DDS drops
samples that a full queue refuses. So the queue must have room at the start. Later, Cyclone DDS offers a
sample that one reader refused to both again, and the other gets it twice in succession: see `_Once`.
"""

from __future__ import annotations

import collections
import time
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from engine.dataset.captured import singly
from engine.dataset.sample import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from engine.dataset.captured import CapturedRun
    from engine.dataset.groups import DurabilityKind
    from engine.dds.capture_reader import CaptureReader
    from engine.dds.qos import EndpointQos
    from engine.dds.topics import Topic


class TapHandover:
    """Passes all samples of the former reader, and those of the present one that the former one did not get.

    Cyclone DDS does not show the number of a sample. But once both readers are in step with a writer, both
    get its samples in the same order, and either may be behind the other. So the seam compares the samples of
    one reader with those of the other.

    Args:
        known: writers with which the former reader has long been in step. Samples of these that the present
            reader gets before one that the former reader got were also received by the former reader.
    """

    def __init__(self, known: Collection[bytes] = ()) -> None:
        self._known = frozenset(known)
        self._given: dict[bytes, dict[Sample, int]] = {}
        self._ahead: dict[bytes, dict[Sample, int]] = {}
        self._last: dict[bytes, Sample] = {}

    def give(self, records: Iterable[Sample], *, both: bool = True) -> None:
        """Take in records of the former reader; `both`: the present one kept samples when they arrived."""
        for record in records:
            if both:
                self._last[record.writer] = record
            ahead = self._ahead.get(record.writer, {})
            if record in ahead:
                if record.writer in self._known:
                    _drop_before(ahead, record)
                _take_one(ahead, record)
            else:
                given = self._given.setdefault(record.writer, {})
                given[record] = given.get(record, 0) + 1

    def hear(self, records: Iterable[Sample]) -> None:
        """Take in records of the present reader, while the former one may still have more."""
        for record in records:
            if not self._was_given(record):
                ahead = self._ahead.setdefault(record.writer, {})
                ahead[record] = ahead.get(record, 0) + 1
            elif record.writer in self._known:
                self._ahead.pop(record.writer, None)

    def is_in_step(self, writers: Collection[bytes], busy: Collection[bytes] = ()) -> bool:
        """Tell whether the present reader has the former one's last record of each of these writers.

        It cannot know that for a writer without a record in both; for such `busy` writers it returns False.
        Call `hear` with all records of the present reader first.
        """
        return self._last.keys() >= set(busy) and all(
            record not in self._given.get(writer, ())
            for writer, record in self._last.items()
            if writer in writers
        )

    def rest(self) -> list[Sample]:
        """Take the records of the present reader that the former one, which has ended, did not get."""
        ahead, self._ahead = self._ahead, {}
        fresh = [record for each in ahead.values() for record in collections.Counter(each).elements()]
        for record in fresh:
            self._given.pop(record.writer, None)
        return fresh

    def fresh(self, records: Iterable[Sample]) -> list[Sample]:
        """Return the records of the present reader, after `rest`, that the former one did not get."""
        found = []
        for record in records:
            if not self._was_given(record):
                self._given.pop(record.writer, None)  # all that follows of this writer is later
                found.append(record)
        return found

    @property
    def is_closed(self) -> bool:
        """Whether all later records are fresh."""
        return not self._given

    def _was_given(self, record: Sample) -> bool:
        """Tell whether the former reader got it; forget its earlier records, which cannot come again."""
        given = self._given.get(record.writer)
        if given is None or record not in given:
            return False
        _drop_before(given, record)
        _take_one(given, record)
        return True


def _drop_before(counts: dict[Sample, int], record: Sample) -> None:
    while (first := next(iter(counts))) != record:
        del counts[first]


def _take_one(counts: dict[Sample, int], record: Sample) -> None:
    counts[record] -= 1
    if not counts[record]:
        del counts[record]


# Not measured. Writers match both readers meanwhile; shorter, and the new reader begins without a writer
# that discovers slowly; longer only delays the move.
BESIDE_S: Final = 2.0
"""Time with both readers, after the last writer came, before the second one keeps samples."""
# Covers a sample on its way to two readers of one process. Longer costs memory for each sample in that
# time.
REMEMBER_S: Final = 0.2
"""Time before that in which the first reader's samples are remembered: the second may get them, too."""
# A writer faster than 5 Hz gives something to both in this time; for slower ones the move waits by
# `QUIET_S`.
LISTEN_S: Final = 0.2
"""Least time in which both readers keep samples."""
# An application that makes writers without end must not keep the tap on the old reader for ever.
LONGEST_S: Final = 60.0
"""Longest delay by new writers."""
# Not measured: a reader on the same machine is in step after a fraction of a second or stays behind.
BEHIND_S: Final = 10.0
"""A second reader that is not in step after this time is replaced by another one."""
# Chosen. The longest pause of a writer for which the move waits; a slower one is left to the resending by
# Cyclone DDS.
QUIET_S: Final = 3.0
"""A writer that sent something within this time, but nothing to both, may wait for the second reader."""
# Not measured. A writer resends while the second reader asks; what comes later than this would be captured
# twice. Longer keeps the memory of what was captured.
FORGET_S: Final = 30.0
"""Time after the end in which the first reader's samples are remembered: the second may get them late."""
# Two readers keep the same samples for a while: with a fuller queue the second could fill up and hold the
# writers back.
ROOM: Final = 0.1
"""Limit for the filled part of the queue, 0 to 1, at the start, and when the second reader begins to keep."""


class MakeReader(Protocol):
    """Makes a reader of the topic."""

    def __call__(self, durability: DurabilityKind, *, hears: bool) -> CaptureReader:
        """Make a reader that requests this durability; without `hears` it drops samples until `listen`."""


class TapMove(msgspec.Struct, frozen=True):
    """A replaced tap: its topic, its former and present durability, and the duration of the move."""

    topic: str
    before: DurabilityKind
    requested: DurabilityKind
    elapsed_ns: int


class _Move(msgspec.Struct):
    """A second reader beside the first one; times are monotonic."""

    reader: CaptureReader
    """The second reader."""
    began_s: float
    """Time of its creation."""
    writers: frozenset[bytes]
    """Writers that match it."""
    quiet_s: float
    """Time at which the last of them came."""
    remembers_s: float | None = None
    """Time from which the first reader's records are remembered."""
    listens_s: float | None = None
    """Time from which the second reader keeps samples, too."""
    earlier: int = 0
    """Records in the first reader's queue that arrived before that."""
    gave_s: dict[bytes, float] = msgspec.field(default_factory=dict)
    """Time at which each writer's last record was drained from the first reader."""


class Tap:
    """Captures a topic with successive readers, as if they were one.

    Args:
        make: makes the readers.
        durability: durability that the first reader requests.
    """

    def __init__(self, make: MakeReader, durability: DurabilityKind) -> None:
        self._make = make
        self._reader = make(durability, hears=True)
        self.drain_runs: Callable[[int], tuple[int, list[Sample | CapturedRun]]] = self._reader.drain_runs
        """Drain like `drain`, but with runs (`CaptureReader.drain_runs`); a move replaces the function."""
        self._wanted = durability
        self._move: _Move | None = None
        self._former: CaptureReader | None = None
        self._seam: TapHandover | None = None
        self._once = self._once_more = _Once()
        self._forget_s = 0.0
        self._rejected = 0

    @property
    def qos(self) -> EndpointQos:
        """QoS that it requests, or will request after the move."""
        return msgspec.structs.replace(self._reader.qos, durability=self._wanted)

    @property
    def topic(self) -> Topic:
        """Topic of its readers."""
        return self._reader.topic

    @property
    def is_moving(self) -> bool:
        """Whether a move is wanted or under way."""
        return self._wanted > self._reader.qos.durability

    @property
    def fill(self) -> float:
        """Filled part of its queue, 0 to 1."""
        return self._reader.fill

    @property
    def rejected(self) -> int:
        """Number of times that a full queue refused a sample, which Cyclone DDS then offered again."""
        return self._rejected + self._reader.rejected

    def __len__(self) -> int:
        former = self._former
        return len(self._reader) + (len(former) if former else 0)

    def is_matched(self, writer: int) -> bool:
        """Tell whether the reader that captures matches the writer with this handle."""
        return self._reader.is_matched(writer)

    def request(self, durability: DurabilityKind) -> bool:
        """Request at least this durability from now on; return whether it is more than before."""
        is_more = durability > self._wanted
        self._wanted = max(self._wanted, durability)
        return is_more

    # Moving.

    def turn(self) -> TapMove | None:
        """Continue a move; return it once it is complete. The draining thread calls this."""
        if not self.is_moving:
            return None
        now_s = time.monotonic()
        move = self._move
        if move is None:
            self._begin(now_s)
        elif move.reader.qos.durability < self._wanted:
            self._give_up(move)
        elif move.remembers_s is None:
            self._remember_if_quiet(move, now_s)
        elif move.listens_s is None:
            self._listen(move, move.remembers_s, now_s)
        else:
            return self._try_switch(move, move.listens_s, now_s)
        return None

    def _begin(self, now_s: float) -> None:
        if self._reader.fill < ROOM and self._seam is None:
            reader = self._make(self._wanted, hears=False)
            self._once, self._once_more = _Once(), _Once()
            self._move = _Move(reader, now_s, frozenset(reader.matched_writers()), now_s)
            self.drain_runs = self._drain_beside

    def _give_up(self, move: _Move) -> None:
        """Abandon the move; no record of the second reader was passed on yet."""
        move.reader.close()
        self._move = self._seam = None
        self.drain_runs = self._reader.drain_runs

    def _remember_if_quiet(self, move: _Move, now_s: float) -> None:
        """Start to remember records if no writer came for `BESIDE_S`."""
        if now_s < move.quiet_s + BESIDE_S:
            return
        writers = frozenset(move.reader.matched_writers())
        if writers <= move.writers or now_s >= move.began_s + LONGEST_S:
            self._seam, move.remembers_s = TapHandover(move.writers), now_s
        else:
            move.writers, move.quiet_s = writers, now_s

    def _listen(self, move: _Move, remembers_s: float, now_s: float) -> None:
        """Let the second reader keep samples, if there is room for them."""
        if now_s >= remembers_s + REMEMBER_S and self._reader.fill < ROOM:
            move.listens_s = now_s
            move.reader.listen()
            move.earlier = len(self._reader)
        elif now_s >= remembers_s + BEHIND_S:
            self._give_up(move)

    def _try_switch(self, move: _Move, listens_s: float, now_s: float) -> TapMove | None:
        """End the first reader if the second one is in step with all writers that match it."""
        assert self._seam is not None
        self._seam.hear(self._once_more(_all_of(move.reader)))
        if now_s < listens_s + LISTEN_S:
            return None
        writers = move.reader.matched_writers()
        busy = {writer for writer, at_s in move.gave_s.items() if now_s < at_s + QUIET_S}
        if not self._seam.is_in_step(writers, busy & writers.keys()):
            if now_s >= listens_s + BEHIND_S:
                self._give_up(move)
            return None
        former, self._reader, self._move = self._reader, move.reader, None
        self.drain_runs = self._drain_after
        former.end()
        self._former = former
        self._forget_s = now_s + FORGET_S
        self._rejected += former.rejected
        before, requested = former.qos.durability, self._reader.qos.durability
        self._reader.wake()
        return TapMove(former.topic.name, before, requested, round((now_s - move.began_s) * 1e9))

    # Draining.

    def drain(self, limit: int) -> list[Sample]:
        """Take up to `limit` records, oldest first; fewer does not mean that it is empty."""
        return singly(self.drain_runs(limit)[1])

    def _drain_beside(self, limit: int) -> tuple[int, list[Sample | CapturedRun]]:
        """Drain the first reader, while the second one is there, too."""
        move, seam = self._move, self._seam
        assert move is not None, "a move is under way"
        if seam is not None:
            # Drain the second one first, so that it always has as much room as the first and refuses nothing.
            seam.hear(self._once_more(_all_of(move.reader)))
        count, taken = self._reader.drain_runs(limit)
        move.gave_s.update(dict.fromkeys((each.writer for each in taken), time.monotonic()))
        if seam is not None:
            records = singly(taken)
            earlier = count if move.listens_s is None else min(move.earlier, count)
            move.earlier = max(0, move.earlier - earlier)
            before, beside = self._once(records[:earlier]), self._once(records[earlier:])
            seam.give(before, both=False)
            seam.give(beside)
            taken = [*before, *beside]
        return count, taken

    def _drain_after(self, limit: int) -> tuple[int, list[Sample | CapturedRun]]:
        """Drain what the first reader, which has ended, has left, and then what it did not get."""
        seam = self._seam
        taken: list[Sample | CapturedRun] = []
        assert seam is not None, "the former reader's samples are remembered"
        if self._former is not None:
            last = self._once(self._former.drain(limit))
            seam.give(last)
            taken += last
            if not len(self._former):
                self._former.close()
                self._former = None
                taken += seam.rest()
        if self._former is None:
            taken += seam.fresh(self._once_more(self._reader.drain(limit)))
            if seam.is_closed or time.monotonic() >= self._forget_s:
                self._seam, self.drain_runs = None, self._reader.drain_runs
        self._reader.wake()  # there may be more
        return len(taken), taken

    def close(self) -> None:
        """Stop capturing; queued records are dropped."""
        for reader in (self._former, self._move.reader if self._move else None, self._reader):
            if reader is not None:
                reader.close()


class _Once:
    """Skips samples that a reader got twice in succession.

    It also skips a sample that its writer wrote twice in succession with the same time: a set counts such
    samples once anyway.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, Sample] = {}

    def __call__(self, records: Iterable[Sample]) -> list[Sample]:
        """Return the records that do not repeat their writer's previous record."""
        found = []
        for record in records:
            if self._last.get(record.writer) != record:
                self._last[record.writer] = record
                found.append(record)
        return found


def _all_of(reader: CaptureReader) -> list[Sample]:
    return reader.drain(max(1, len(reader)))
