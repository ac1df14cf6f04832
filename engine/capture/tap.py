"""The tap of one topic and type, which can be replaced by one that requests more, without a gap.

A reader of Cyclone DDS cannot change the durability that it requests. So a second one is made beside it. For
a while both are there: the first one captures, and the second one accepts everything and keeps nothing. Then
the second one begins to keep, too; when it has what the first one gave last, the first one ends.

Nothing is lost. A writer hears of the second reader before it hears of the end of the first one (discovery is
reliable and ordered), so that it always has one to send to again what was lost on the way; and it has had
`BESIDE_S` to get through what it owed to the first one alone. Every writer that matches the second one
matches the first one, too.

Nothing comes twice: see `engine.capture.seam`. The second one may be seconds behind, as a writer sends it
what it still has of its history. What it hears of a writer that was there all the time, before something
that the first one had, is nothing new. A writer whose cache is full waits for the second one, and gives
nothing to either meanwhile: nothing shows how far behind the second one is, so that is waited for.

While the second one is not yet in step with a writer, which takes some milliseconds, Cyclone DDS drops what a
full queue refuses instead of offering it again. So the queue must have room when this begins. Later, what one
of the two refuses is offered to both again, and the other one has it twice at once: `_Once`.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Final, Protocol

from engine.capture.seam import Seam
from engine.dds.captured import CapturedRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.dataset.groups import DurabilityKind
    from engine.dds.captured import Captured
    from engine.dds.qos import EndpointQos
    from engine.dds.tap import CaptureReader
    from engine.dds.topics import Topic

BESIDE_S: Final = 2.0
"""How long both are there after the last writer has come, before the second one keeps anything."""
REMEMBER_S: Final = 0.2
"""How long before that what the first one gives is remembered: the second one may be about to get it, too."""
LISTEN_S: Final = 0.2
"""How long both keep what comes, at least."""
LONGEST_S: Final = 60.0
"""How long writers that come again and again can put it off."""
BEHIND_S: Final = 10.0
"""A second one that is not in step after so long is given up, and another one is made."""
QUIET_S: Final = 3.0
"""A writer that gave something so recently, but nothing to both, may be held up by the second one."""
FORGET_S: Final = 30.0
"""How long after the end what the first one had is remembered, in case the second one gets it later."""
ROOM: Final = 0.1
"""How full the queue may be, 0 to 1, when this begins, and when both keep what comes."""


class MakeReader(Protocol):
    """Makes the reader of the topic."""

    def __call__(self, durability: DurabilityKind, *, hears: bool) -> CaptureReader:
        """One that requests this durability."""


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """A tap has been replaced: the topic, what it requested and requests, and how long it took."""

    topic: str
    before: DurabilityKind
    requested: DurabilityKind
    elapsed_ns: int


@dataclasses.dataclass(slots=True)
class _Move:
    """A second reader is beside the first one.

    Attributes:
        reader: the second one.
        began_s: when it was made.
        writers: those that match it.
        quiet_s: when the last of them came.
        remembers_s: since when it is remembered what the first one gives.
        listens_s: since when the second one keeps what comes, too.
        earlier: records in the queue of the first one that came before that.
        gave_s: when each writer's last record was drained from the first one.
    """

    reader: CaptureReader
    began_s: float
    writers: frozenset[bytes]
    quiet_s: float
    remembers_s: float | None = None
    listens_s: float | None = None
    earlier: int = 0
    gave_s: dict[bytes, float] = dataclasses.field(default_factory=dict)


class Tap:
    """Captures a topic with one reader after the other, as if it were one.

    Args:
        make: makes the readers.
        durability: what the first one requests.
    """

    def __init__(self, make: MakeReader, durability: DurabilityKind) -> None:
        self._make = make
        self._reader = make(durability, hears=True)
        self._wanted = durability
        self._move: _Move | None = None
        self._former: CaptureReader | None = None
        self._seam: Seam | None = None
        self._once = self._once_more = _Once()
        self._forget_s = 0.0
        self._rejected = 0

    @property
    def qos(self) -> EndpointQos:
        """What it requests, or is about to."""
        return dataclasses.replace(self._reader.qos, durability=self._wanted)

    @property
    def topic(self) -> Topic:
        """Of its readers."""
        return self._reader.topic

    @property
    def is_moving(self) -> bool:
        """Whether `turn` has something to do."""
        return self._wanted > self._reader.qos.durability

    @property
    def fill(self) -> float:
        """How full its queue is, 0 to 1."""
        return self._reader.fill

    @property
    def rejected(self) -> int:
        """How often a full queue refused a sample, which Cyclone DDS then offered again."""
        return self._rejected + self._reader.rejected

    def __len__(self) -> int:
        former = self._former
        return len(self._reader) + (len(former) if former else 0)

    def request(self, durability: DurabilityKind) -> bool:
        """Request so much from now on, if it is more than before; whether it is."""
        is_more = durability > self._wanted
        self._wanted = max(self._wanted, durability)
        return is_more

    # Moving.

    def turn(self) -> Moved | None:
        """Go on with what `request` began; when it is done, what it was. The draining thread calls it."""
        if not self.is_moving:
            return None
        now_s = time.monotonic()
        move = self._move
        if move is None:
            self._begin(now_s)
        elif move.reader.qos.durability < self._wanted:
            self._give_up(move)
        elif move.remembers_s is None:
            self._look(move, now_s)
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

    def _give_up(self, move: _Move) -> None:
        """Begin again: nothing has been taken from the second one yet."""
        move.reader.close()
        self._move = self._seam = None

    def _look(self, move: _Move, now_s: float) -> None:
        """Go on if no writer has come for some time."""
        if now_s < move.quiet_s + BESIDE_S:
            return
        writers = frozenset(move.reader.matched_writers())
        if writers <= move.writers or now_s >= move.began_s + LONGEST_S:
            self._seam, move.remembers_s = Seam(move.writers), now_s
        else:
            move.writers, move.quiet_s = writers, now_s

    def _listen(self, move: _Move, remembers_s: float, now_s: float) -> None:
        """Let the second one keep what comes, if there is room for it."""
        if now_s >= remembers_s + REMEMBER_S and self._reader.fill < ROOM:
            move.listens_s = now_s
            move.reader.listen()
            move.earlier = len(self._reader)
        elif now_s >= remembers_s + BEHIND_S:
            self._give_up(move)

    def _try_switch(self, move: _Move, listens_s: float, now_s: float) -> Moved | None:
        """End the first one if the second one is in step with all writers that match it."""
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
        former.end()
        self._former = former
        self._forget_s = now_s + FORGET_S
        self._rejected += former.rejected
        before, requested = former.qos.durability, self._reader.qos.durability
        self._reader.wake()
        return Moved(former.topic.name, before, requested, round((now_s - move.began_s) * 1e9))

    # Draining.

    def drain(self, limit: int) -> list[Captured]:
        """Take up to `limit` records, oldest first; fewer does not mean that it is empty."""
        is_plain = self._seam is None and self._move is None
        return self._reader.drain(limit) if is_plain else _singly(self.drain_runs(limit)[1])

    def drain_runs(self, limit: int) -> tuple[int, list[Captured | CapturedRun]]:
        """The same, but many writes that are alike come as one `CapturedRun`; how many records, and they."""
        if self._move is not None:
            return self._drain_beside(self._move, limit)
        seam = self._seam
        if seam is None:
            return self._reader.drain_runs(limit)
        fresh = self._drain_former(seam, limit) if self._former else self._drain_present(seam, limit)
        self._reader.wake()  # there may be more
        return len(fresh), [*fresh]

    def _drain_beside(self, move: _Move, limit: int) -> tuple[int, list[Captured | CapturedRun]]:
        """What the first one has, while the second one is there, too."""
        seam = self._seam
        if seam is not None:
            # The second one first: so it always has as much room as the first one, and refuses nothing.
            seam.hear(self._once_more(_all_of(move.reader)))
        count, taken = self._reader.drain_runs(limit)
        move.gave_s.update(dict.fromkeys((each.writer for each in taken), time.monotonic()))
        if seam is not None:
            singly = _singly(taken)
            earlier = count if move.listens_s is None else min(move.earlier, count)
            move.earlier = max(0, move.earlier - earlier)
            before, beside = self._once(singly[:earlier]), self._once(singly[earlier:])
            seam.give(before, both=False)
            seam.give(beside)
            taken = [*before, *beside]
        return count, taken

    def _drain_former(self, seam: Seam, limit: int) -> list[Captured]:
        assert self._former is not None
        last = self._once(self._former.drain(limit))
        seam.give(last)
        if not len(self._former):
            self._former.close()
            self._former = None
            last += seam.rest() + self._drain_present(seam, limit)
        return last

    def _drain_present(self, seam: Seam, limit: int) -> list[Captured]:
        fresh = seam.fresh(self._once_more(self._reader.drain(limit)))
        if seam.is_closed or time.monotonic() >= self._forget_s:
            self._seam = None
        return fresh

    def close(self) -> None:
        """Capture nothing any more; what is queued is dropped."""
        for reader in (self._former, self._move.reader if self._move else None, self._reader):
            if reader is not None:
                reader.close()


class _Once:
    """Leaves out what a reader was offered again at once although it had it.

    A sample that its writer wrote twice running, its time included, cannot be told from that and is left out
    too: a set counts it once anyway.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, Captured] = {}

    def __call__(self, records: Iterable[Captured]) -> list[Captured]:
        """The records that do not repeat the one before them of their writer."""
        found = []
        for record in records:
            if self._last.get(record.writer) != record:
                self._last[record.writer] = record
                found.append(record)
        return found


def _all_of(reader: CaptureReader) -> list[Captured]:
    return reader.drain(max(1, len(reader)))


def _singly(records: Sequence[Captured | CapturedRun]) -> list[Captured]:
    found: list[Captured] = []
    for each in records:
        if isinstance(each, CapturedRun):
            found += each.records()
        else:
            found.append(each)
    return found
