"""An instance as one reader sees it: its state, its generations, and what lies in its history.

Eventual consistency, "Configuring" and "in case of a disconnect/reconnect cycle"; DDS 1.4, 2.2.2.5.1. Three
kinds of things happen to an instance, and they are kept apart because only the first is true for everybody:

- *facts*: what a writer said (write, dispose, unregister), in the order of source timestamps;
- *derived* changes: what this reader concludes from a writer that it cannot hear any more. It acts as if
  that writer had unregistered, and a writer with autodispose had disposed, its instances;
- what the application does: reading and taking.

When a writer comes back, the change that was derived from its absence is reverted. The past cannot be undone
(it may have been taken), so the history known by then is inserted again behind it, with the next generation.
Nothing here knows a clock: all times come with the calls. Nothing derived is ever part of `facts`.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.dataset.history import retained
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine.dataset.sample import Sample

REMEMBERED: Final = 1024
"""Samples taken that are known again under KEEP_ALL (older ones that are repeated count as lost), and writers
that are remembered in all (those that are gone for longest are forgotten first)."""


class InstanceState(enum.StrEnum):
    """The instance states of DDS, and NONE while nothing has been heard of the instance."""

    NONE = "NONE"
    ALIVE = "ALIVE"
    NOT_ALIVE_DISPOSED = "NOT_ALIVE_DISPOSED"
    NOT_ALIVE_NO_WRITERS = "NOT_ALIVE_NO_WRITERS"


class ViewState(enum.StrEnum):
    """Whether the application has looked at this generation of the instance."""

    NEW = "NEW"
    NOT_NEW = "NOT_NEW"


class Change(enum.StrEnum):
    """What moves an instance from state to state."""

    DATA = "a sample is the newest"
    DISPOSED = "a dispose is the newest"
    NO_WRITERS = "the last writer is gone"
    WRITER = "there is a writer again"


class Move(NamedTuple):
    """A state to go to, and how many generations that begins."""

    state: InstanceState
    disposed_generations: int = 0
    no_writers_generations: int = 0


_NONE, _ALIVE, _DISPOSED, _NO_WRITERS = InstanceState

MOVES: Mapping[InstanceState, Mapping[Change, Move]] = MappingProxyType(
    {
        _NONE: {
            Change.DATA: Move(_ALIVE),
            Change.DISPOSED: Move(_DISPOSED),
            Change.NO_WRITERS: Move(_NONE),
            Change.WRITER: Move(_NONE),
        },
        _ALIVE: {
            Change.DATA: Move(_ALIVE),
            Change.DISPOSED: Move(_DISPOSED),
            Change.NO_WRITERS: Move(_NO_WRITERS),
            Change.WRITER: Move(_ALIVE),
        },
        _DISPOSED: {
            Change.DATA: Move(_ALIVE, disposed_generations=1),
            Change.DISPOSED: Move(_DISPOSED),
            Change.NO_WRITERS: Move(_DISPOSED),
            Change.WRITER: Move(_DISPOSED),
        },
        _NO_WRITERS: {
            Change.DATA: Move(_ALIVE, no_writers_generations=1),
            Change.DISPOSED: Move(_DISPOSED),
            Change.NO_WRITERS: Move(_NO_WRITERS),
            Change.WRITER: Move(_ALIVE, no_writers_generations=1),
        },
    }
)
"""Every state with every change: where it leads, and which generation count goes up."""


_VIEWS: Final = MappingProxyType(
    {
        (ViewState.NEW, True): ViewState.NOT_NEW,
        (ViewState.NOT_NEW, True): ViewState.NOT_NEW,
        (ViewState.NEW, False): ViewState.NEW,
        (ViewState.NOT_NEW, False): ViewState.NEW,
    }
)
"""The view after the application has looked (True), or after a generation has begun (False)."""


class Arrival(enum.StrEnum):
    """What became of a fact."""

    INSERTED = "it is the newest"
    BACK_INSERTED = "it has its place before newer ones"
    NOTED = "it changed the writers of the instance only"
    DUPLICATE = "it is known"
    LOST_DEPTH = "older than all that the history depth keeps"
    LOST_CONSUMED = "older than what the application has taken"
    LOST_RESOURCES = "older than all that the resource limits allow"
    REJECTED = "the resource limits allow no more until something is taken"


LOSSES: Final = (Arrival.LOST_DEPTH, Arrival.LOST_CONSUMED, Arrival.LOST_RESOURCES)
"""The three ways in which a fact is dropped for good; each is counted."""


class Kind(enum.StrEnum):
    """What an entry of a timeline is, in the letters of the text: sample, dispose, no writers."""

    SAMPLE = "S"
    DISPOSED = "D"
    NO_WRITERS = "NW"


class Origin(enum.StrEnum):
    """Where an entry comes from: said by a writer, derived here, or said before and inserted again."""

    FACT = "fact"
    DERIVED = "derived"
    AGAIN = "again"


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One thing that the reader shows of an instance.

    `time_ns` is the source timestamp of a fact and the local time of what was derived; `sample` is None for
    an entry that no single fact brought. The generation counts are those at the time of insertion.
    """

    kind: Kind
    origin: Origin
    time_ns: int
    sample: Sample | None
    disposed_generations: int
    no_writers_generations: int
    is_read: bool = False

    def __str__(self) -> str:
        return f"{self.kind}({self.time_ns})"


class _Place(NamedTuple):
    """The order of entries: how often history was inserted again, then source time, writer, sequence."""

    round: int
    time_ns: int
    writer: bytes = b""
    sequence: int = 0
    digest: bytes = b""


_LAST: Final = b"\xff" * 17
"""Behind every writer of the same time."""


class Instance:
    """The state machine of one instance in one reader that orders by source timestamp.

    Attributes:
        depth: HISTORY depth of the reader, `KEEP_ALL` (0) for all.
        max_samples: RESOURCE_LIMITS max_samples_per_instance, which binds under KEEP_ALL; 0 for none.
        state, view: as DDS has them.
        disposed_generations, no_writers_generations: how often the instance became alive again.
        is_derived: the state was not said by any writer but follows from one that is absent.
        arrivals: how many facts had which fate.
    """

    def __init__(self, depth: int = 1, max_samples: int = 0) -> None:
        self.depth = depth
        self.max_samples = max_samples
        self.state = InstanceState.NONE
        self.view = ViewState.NEW
        self.disposed_generations = 0
        self.no_writers_generations = 0
        self.is_derived = False
        self.arrivals: collections.Counter[Arrival] = collections.Counter()
        self._round = 0
        self._places: list[_Place] = []
        self._entries: list[Entry] = []
        self._consumed: _Place | None = None
        self._taken: dict[bytes, None] = {}
        self._newest: dict[bytes, Sample] = {}
        self._absent: dict[bytes, bool] = {}

    # What can be seen.

    @property
    def timeline(self) -> tuple[Entry, ...]:
        """What is in the history, in the order in which the reader shows it."""
        return tuple(self._entries)

    @property
    def facts(self) -> tuple[Sample, ...]:
        """What writers said and is still here, in order and once each; nothing derived."""
        return tuple(sorted({entry.sample for entry in self._entries if entry.sample is not None}))

    @property
    def lost(self) -> int:
        """How many facts were dropped for good (SAMPLE_LOST)."""
        return sum(self.arrivals[loss] for loss in LOSSES)

    @property
    def writers(self) -> frozenset[bytes]:
        """The writers that have the instance registered and are connected."""
        return frozenset(self._registered() - self._absent.keys())

    def _registered(self) -> set[bytes]:
        return {writer for writer, last in self._newest.items() if not last.status & UNREGISTER}

    # What writers say.

    def apply(self, fact: Sample) -> Arrival:
        """A fact has arrived, live or from the durability service."""
        arrival = self._take_in(fact, Origin.FACT)
        self.arrivals[arrival] += 1
        return arrival

    def _take_in(self, fact: Sample, origin: Origin) -> Arrival:
        self._note_writer(fact)
        arrival = self._insert(fact, origin) if fact.status & (DATA | DISPOSE) else Arrival.NOTED
        if fact.writer in self.writers:
            self._change(Change.WRITER)
        is_missed = self._absent.get(fact.writer, False) and arrival is Arrival.INSERTED
        if is_missed and origin is Origin.FACT and fact.writer in self._registered():
            self._derive(Kind.DISPOSED, fact.source_time_ns)
        elif not self.writers and self._registered():
            self._derive(Kind.NO_WRITERS, fact.source_time_ns)
        elif not self.writers and self.state is InstanceState.ALIVE:
            said = self._newest[fact.writer]
            self._change(Change.NO_WRITERS)
            self._append(Kind.NO_WRITERS, origin, said.source_time_ns, said)
        return arrival

    def _note_writer(self, fact: Sample) -> None:
        """Know who has the instance registered, also when facts come out of order."""
        newest = self._newest.get(fact.writer)
        if newest is None or newest < fact:
            self._newest[fact.writer] = fact
        gone = self._newest.keys() - self.writers if len(self._newest) > REMEMBERED else None
        if gone:
            oldest = min(gone, key=self._newest.__getitem__)
            del self._newest[oldest]
            self._absent.pop(oldest, None)

    def _insert(self, fact: Sample, origin: Origin) -> Arrival:
        """Give a write or dispose its place among the entries."""
        place = _Place(self._round, fact.source_time_ns, fact.writer, fact.sequence, fact.digest)
        at = bisect.bisect_left(self._places, place)
        if at < len(self._places) and self._places[at] == place:
            return Arrival.DUPLICATE
        if place == self._consumed or (origin is Origin.FACT and fact.digest in self._taken):
            return Arrival.DUPLICATE
        if self._consumed is not None and place < self._consumed:
            return Arrival.LOST_CONSUMED
        refusal = self._has_no_room(fact, bisect.bisect_right(self._places, place), origin)
        if refusal is not None:
            return refusal
        index = bisect.bisect_right(self._places, place)
        if index == len(self._entries):
            self._append_fact(place, origin, fact)
            return Arrival.INSERTED
        following = self._entries[index]
        kind = Kind.SAMPLE if fact.status & DATA else Kind.DISPOSED
        counts = (following.disposed_generations, following.no_writers_generations)
        self._put(index, place, Entry(kind, origin, fact.source_time_ns, fact, *counts))
        return Arrival.BACK_INSERTED

    def _has_no_room(self, fact: Sample, index: int, origin: Origin) -> Arrival | None:
        """Why a fact cannot be inserted at `index`; what comes again takes the place of its original."""
        newer = sum(1 for entry in self._entries[index:] if entry.kind is Kind.SAMPLE)
        if self.depth:
            return Arrival.LOST_DEPTH if newer >= self.depth else None
        held = [at for at, entry in enumerate(self._entries) if entry.kind is Kind.SAMPLE]
        if not self.max_samples or len(held) < self.max_samples or not fact.status & DATA:
            return None
        originals = [at for at in held if self._entries[at].sample == fact]
        if origin is Origin.AGAIN and originals:
            self._remove(originals[0])
            return None
        return Arrival.REJECTED if index == len(self._entries) else Arrival.LOST_RESOURCES

    def _append_fact(self, place: _Place, origin: Origin, fact: Sample) -> None:
        """The newest fact decides about the state."""
        kind = Kind.SAMPLE if fact.status & DATA else Kind.DISPOSED
        self._change(Change.DATA if kind is Kind.SAMPLE else Change.DISPOSED)
        self._append(kind, origin, fact.source_time_ns, fact, place)
        if fact.status & DISPOSE:
            self._change(Change.DISPOSED)

    # What is derived from absence.

    def writer_lost(self, writer: bytes, time_ns: int, *, autodispose: bool) -> bool:
        """A writer of this instance is not heard any more; True when that changed the state.

        The reader acts as if the writer had unregistered the instance, and disposed it where its
        WRITER_DATA_LIFECYCLE says `autodispose_unregistered_instances`. `time_ns` is when that was noticed.
        """
        if writer not in self._newest or writer in self._absent:
            return False
        was_registered = writer in self._registered()
        self._absent[writer] = autodispose
        before = self.state
        if was_registered and autodispose:
            self._derive(Kind.DISPOSED, time_ns)
        elif was_registered and not self.writers:
            self._derive(Kind.NO_WRITERS, time_ns)
        return self.state is not before

    def _derive(self, kind: Kind, time_ns: int) -> None:
        """Change the state for the sake of an absent writer, where that changes it."""
        change = Change.DISPOSED if kind is Kind.DISPOSED else Change.NO_WRITERS
        if MOVES[self.state][change].state is not self.state:
            self._change(change)
            self.is_derived = True
            self._append(kind, Origin.DERIVED, time_ns, None)

    def writer_returned(self, writer: bytes, history: Iterable[Sample]) -> None:
        """A writer is heard again; `history` is what is known of the instance by now, from all writers.

        Where the state came from that writer's absence, the history is inserted again behind what said so.
        Otherwise only what is new in it is inserted.
        """
        was_absent = self._absent.pop(writer, None) is not None
        facts = sorted(set(history))
        if not (was_absent and self.is_derived and self._is_reverted()):
            for fact in facts:
                self.apply(fact)
            return
        self._round += 1
        fates = collections.Counter(self._take_in(fact, Origin.AGAIN) for fact in retained(facts, self.depth))
        for fate in (Arrival.REJECTED, *LOSSES):
            self.arrivals[fate] += fates[fate]
        if self.writers and not fates[Arrival.INSERTED]:
            self._change(Change.DATA)  # there is nothing to show again, but the instance is alive

    def _is_reverted(self) -> bool:
        """Whether no other absent writer keeps the instance disposed."""
        others = any(self._absent.get(other, False) for other in self._registered())
        return self.state is InstanceState.NOT_ALIVE_NO_WRITERS or not others

    # What the application does.

    def read(self) -> tuple[Entry, ...]:
        """Everything that is there, which stays there and is read from now on."""
        shown = self.timeline
        self._entries = [dataclasses.replace(entry, is_read=True) for entry in shown]
        if shown:
            self.view = _VIEWS[self.view, True]
        return shown

    def take(self) -> tuple[Entry, ...]:
        """Everything that is there, which is gone from now on; nothing older is shown after it."""
        shown = self.timeline
        if shown:
            self.view = _VIEWS[self.view, True]
            self._consumed = self._places[-1]
            self._taken |= {entry.sample.digest: None for entry in shown if entry.sample is not None}
            while len(self._taken) > (2 * self.depth or REMEMBERED):
                del self._taken[next(iter(self._taken))]
        self._entries, self._places = [], []
        return shown

    # The parts.

    def _change(self, change: Change) -> None:
        """Take the transition of the table."""
        move = MOVES[self.state][change]
        if move.state is not self.state or change in (Change.DATA, Change.DISPOSED):
            self.is_derived = False
        self.state = move.state
        self.disposed_generations += move.disposed_generations
        self.no_writers_generations += move.no_writers_generations
        if move.disposed_generations or move.no_writers_generations:
            self.view = _VIEWS[self.view, False]

    def _append(
        self, kind: Kind, origin: Origin, time_ns: int, fact: Sample | None, place: _Place | None = None
    ) -> None:
        """Put an entry behind all others; one that follows another of its kind takes its place."""
        last = self._places[-1] if self._places else self._consumed or _Place(self._round, time_ns)
        if place is None and kind is Kind.NO_WRITERS:
            place = last  # that writers went does not stand in the way of an older sample
        elif place is None:
            place = max(last, _Place(self._round, time_ns, _LAST))
        counts = (self.disposed_generations, self.no_writers_generations)
        if kind is not Kind.SAMPLE and self._entries and self._entries[-1].kind is kind:
            self._remove(len(self._entries) - 1)
        self._put(len(self._entries), place, Entry(kind, origin, time_ns, fact, *counts))

    def _put(self, index: int, place: _Place, entry: Entry) -> None:
        """Insert, and let go what no longer fits: at full depth nothing before the oldest sample is shown."""
        self._places.insert(index, place)
        self._entries.insert(index, entry)
        samples = [at for at, each in enumerate(self._entries) if each.kind is Kind.SAMPLE]
        if self.depth and len(samples) >= self.depth:
            oldest = samples[-self.depth]
            del self._entries[:oldest], self._places[:oldest]

    def _remove(self, index: int) -> None:
        del self._entries[index], self._places[index]
