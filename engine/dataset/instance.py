"""An instance as one reader sees it: its state, its generations, and its history.

Eventual consistency, "Configuring" and "in case of a disconnect/reconnect cycle"; DDS 1.4, 2.2.2.5.1. Three
kinds of events are kept apart, because only the first is true for all readers:

- *facts*: writes, disposes and unregisters of writers, in the order of source timestamps;
- *derived* changes: conclusions of this reader from a writer that it cannot hear any more. It acts as if
  that writer had unregistered, and a writer with autodispose had disposed, its instances;
- reading and taking by the application.

When a writer comes back, the change derived from its absence is reverted. The application may have taken the
past, so the known history is inserted again behind it, with the next generation. All times come with the
calls. `facts` never has anything derived.
"""

from __future__ import annotations

import bisect
import collections
import enum
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from engine.dataset.instance_states import MOVES, VIEWS, InstanceEvent, InstanceState, ViewState
from engine.dataset.sample import DATA, DISPOSE, NO_WRITER, UNREGISTER, Sample, is_lost_end, retained

# Chosen: a repetition comes right after a reader was resent something, within far fewer samples.
REMEMBERED: Final = 1024
"""Taken samples recognised under KEEP_ALL (older repeated ones count as lost), and writers remembered (the
longest absent are forgotten first)."""


class Arrival(enum.StrEnum):
    """Result of a fact."""

    INSERTED = "it is the newest"
    BACK_INSERTED = "it has its place before newer ones"
    NOTED = "it changed the writers of the instance only"
    DUPLICATE = "it is known"
    LOST_DEPTH = "older than all that the history depth keeps"
    LOST_CONSUMED = "older than what the application has taken"
    LOST_RESOURCES = "older than the newest, and the resource limits leave no room"
    REJECTED = "the resource limits allow no more until something is taken"


LOSSES: Final = (Arrival.LOST_DEPTH, Arrival.LOST_CONSUMED, Arrival.LOST_RESOURCES)
"""Results with which a fact is dropped permanently; each is counted."""


class EntryKind(enum.StrEnum):
    """Kind of an entry, in the letters of the text: sample, dispose, no writers."""

    SAMPLE = "S"
    DISPOSED = "D"
    NO_WRITERS = "NW"


class Origin(enum.StrEnum):
    """Source of an entry: a writer, a durability service, this reader, or an insertion of history again."""

    FACT = "fact"
    STORED = "stored"
    DERIVED = "derived"
    AGAIN = "again"


class ReaderEntry(msgspec.Struct, frozen=True):
    """One entry of an instance in a reader.

    `time_ns` is the source timestamp of a fact and the local time of a derived entry; `sample` is None for an
    entry without a fact. The generation counts are those at the time of insertion.
    """

    kind: EntryKind
    origin: Origin
    time_ns: int
    sample: Sample | None
    disposed_generations: int
    no_writers_generations: int
    is_read: bool = False

    @property
    def generation(self) -> int:
        """Times that the instance had become alive again, for either reason."""
        return self.disposed_generations + self.no_writers_generations

    def __str__(self) -> str:
        return f"{self.kind}({self.time_ns})"


class _Place(NamedTuple):
    """Sort key of entries: number of insertions of history, then source time, writer, sequence."""

    round: int
    time_ns: int
    writer: bytes = b""
    sequence: int = 0
    digest: bytes = b""


_LAST: Final = b"\xff" * 17
"""Greater than any writer."""


class Instance:
    """The state machine of one instance in one reader that orders by source timestamp.

    Args:
        depth: HISTORY depth of the reader, `KEEP_ALL` (0) for all.
        max_samples: RESOURCE_LIMITS max_samples_per_instance, which binds under KEEP_ALL; 0 for none.
        arrivals: counter of results; by default one for this instance.
        shows_all: show every fact once, even if older facts were taken, and no derived entries (a durable
            subscription).

    Attributes:
        state, view: instance and view state of DDS.
        disposed_generations, no_writers_generations: times that the instance became alive again.
        is_derived: the state follows from the absence of a writer.
        arrivals: number of facts by result.
    """

    __slots__ = (
        "_absent",
        "_consumed",
        "_entries",
        "_is_open",
        "_newest",
        "_places",
        "_round",
        "_superseded",
        "_taken",
        "arrivals",
        "depth",
        "disposed_generations",
        "is_derived",
        "max_samples",
        "no_writers_generations",
        "shows_all",
        "state",
        "view",
    )

    def __init__(
        self,
        depth: int = 1,
        max_samples: int = 0,
        arrivals: collections.Counter[Arrival] | None = None,
        *,
        shows_all: bool = False,
    ) -> None:
        self.depth = depth
        self.max_samples = max_samples
        self.shows_all = shows_all
        self.state = InstanceState.NONE
        self.view = ViewState.NEW
        self.disposed_generations = 0
        self.no_writers_generations = 0
        self.is_derived = False
        self.arrivals = collections.Counter[Arrival]() if arrivals is None else arrivals
        self._round = 0
        self._is_open = False
        self._places: list[_Place] = []
        self._entries: list[ReaderEntry] = []
        self._consumed: _Place | None = None
        self._taken: dict[bytes, None] = {}
        self._newest: dict[bytes, Sample] = {}
        self._absent: dict[bytes, bool] = {}
        self._superseded: set[bytes] = set()

    # Its state.

    @property
    def timeline(self) -> tuple[ReaderEntry, ...]:
        """Entries of the history, in the order in which the reader shows them."""
        return tuple(self._entries)

    @property
    def held(self) -> int:
        """Number of entries in the history."""
        return len(self._entries)

    @property
    def samples(self) -> int:
        """Number of samples in the history."""
        return sum(entry.kind is EntryKind.SAMPLE for entry in self._entries)

    def ends_derived_after(self, count: int) -> bool:
        """Whether exactly one entry follows the first `count`, and it is derived."""
        return len(self._entries) == count + 1 and self._entries[-1].origin is Origin.DERIVED

    @property
    def generation(self) -> int:
        """Times that the instance became alive again, for either reason."""
        return self.disposed_generations + self.no_writers_generations

    @property
    def facts(self) -> tuple[Sample, ...]:
        """Facts in the history, in order and once each."""
        return tuple(sorted({entry.sample for entry in self._entries if entry.sample is not None}))

    @property
    def lost(self) -> int:
        """Number of facts that were dropped permanently (SAMPLE_LOST)."""
        return sum(self.arrivals[loss] for loss in LOSSES)

    @property
    def writers(self) -> frozenset[bytes]:
        """Writers that have the instance registered and are connected."""
        return frozenset(self._registered() - self._absent.keys())

    def misses(self, writer: bytes) -> bool:
        """Whether the writer was lost and has not come back."""
        return writer in self._absent

    def _registered(self) -> set[bytes]:
        return {writer for writer, last in self._newest.items() if not last.status & UNREGISTER}

    # Facts.

    def apply(
        self, fact: Sample, origin: Origin = Origin.FACT, *, has_room: bool = True, is_last: bool = True
    ) -> Arrival:
        """Apply a fact, live or from the durability service (`STORED`).

        Args:
            fact: the sample.
            origin: its source.
            has_room: False if limits of the whole reader leave no room for another sample.
            is_last: False if more facts follow at once; absent writers are considered after the last.
        """
        arrival = self._take_in(fact, origin, has_room=has_room, is_last=is_last)
        self.arrivals[arrival] += 1
        return arrival

    def _take_in(self, fact: Sample, origin: Origin, *, has_room: bool = True, is_last: bool) -> Arrival:
        if self._is_known_end(fact):
            return Arrival.DUPLICATE
        self._note_writer(fact)
        arrival = Arrival.NOTED
        if fact.status & (DATA | DISPOSE):
            arrival = self._insert(fact, origin, has_room=has_room)
        if fact.writer in self.writers:
            self._change(InstanceEvent.WRITER)
        self._is_open = self._is_open or arrival is Arrival.INSERTED
        if is_last:
            self._conclude(fact, origin)
        return arrival

    def _is_known_end(self, fact: Sample) -> bool:
        """Whether a fact is the end of a lost writer that this reader has derived, and shows, already.

        It stays a derived change: if the writer comes back here, that change is reverted.
        """
        return (
            fact.status == DISPOSE | UNREGISTER
            and not self.shows_all
            and self.is_derived
            and self.state is InstanceState.NOT_ALIVE_DISPOSED
            and self._absent.get(fact.writer, False)
        )

    def _conclude(self, fact: Sample, origin: Origin) -> None:
        """Derive changes from the absence of writers, after the facts up to this one."""
        is_missed = self._absent.get(fact.writer, False) and self._is_open
        self._is_open = False
        if is_missed and origin is not Origin.AGAIN and fact.writer in self._registered():
            self._superseded.discard(fact.writer)
            self._derive(EntryKind.DISPOSED, fact.source_time_ns)
        elif not self.writers and self._registered():
            self._derive(EntryKind.NO_WRITERS, fact.source_time_ns)
        elif not self.writers and self.state is InstanceState.ALIVE:
            said = self._newest.get(fact.writer, fact)
            self._change(InstanceEvent.NO_WRITERS)
            self._append(EntryKind.NO_WRITERS, origin, said.source_time_ns, said)

    def _note_writer(self, fact: Sample) -> None:
        """Note the registration of the writer, also if facts come out of order."""
        if fact.writer == NO_WRITER:
            return
        newest = self._newest.get(fact.writer)
        if newest is None or newest < fact:
            self._newest[fact.writer] = fact
        gone = self._newest.keys() - self.writers if len(self._newest) > REMEMBERED else None
        if gone:
            oldest = min(gone, key=self._newest.__getitem__)
            del self._newest[oldest]
            self._absent.pop(oldest, None)
            self._superseded.discard(oldest)

    def _place(self, fact: Sample) -> _Place:
        return _Place(self._round, fact.source_time_ns, fact.writer, fact.sequence, fact.digest)

    def _insert(self, fact: Sample, origin: Origin, *, has_room: bool) -> Arrival:
        """Give a write or dispose its place among the entries."""
        place = self._place(fact)
        at = bisect.bisect_left(self._places, place)
        if at < len(self._places) and self._places[at] == place:
            return Arrival.DUPLICATE
        if place == self._consumed or (origin is not Origin.AGAIN and fact.digest in self._taken):
            return Arrival.DUPLICATE
        is_late = self._consumed is not None and place < self._consumed
        if is_late and not self.shows_all:
            return Arrival.LOST_CONSUMED
        index = bisect.bisect_right(self._places, place)
        refusal = self._has_no_room(fact, index, origin, has_room=has_room)
        if refusal is not None:
            return refusal
        index = bisect.bisect_right(self._places, place)
        if index == len(self._entries) and not is_late:
            self._append_fact(place, origin, fact)
            return Arrival.INSERTED
        following = self._entries[index] if index < len(self._entries) else self
        kind = EntryKind.SAMPLE if fact.status & DATA else EntryKind.DISPOSED
        counts = (following.disposed_generations, following.no_writers_generations)
        self._put(index, place, ReaderEntry(kind, origin, fact.source_time_ns, fact, *counts))
        return Arrival.BACK_INSERTED

    def _has_no_room(self, fact: Sample, index: int, origin: Origin, *, has_room: bool) -> Arrival | None:
        """Return why a fact cannot be inserted at `index`; a repeated one replaces its original."""
        if self.depth:
            newer = sum(1 for entry in self._entries[index:] if entry.kind is EntryKind.SAMPLE)
            if newer >= self.depth:
                return Arrival.LOST_DEPTH
        if not fact.status & DATA or (has_room and (self.depth or not self.max_samples)):
            return None
        held = [at for at, entry in enumerate(self._entries) if entry.kind is EntryKind.SAMPLE]
        if has_room and len(held) < self.max_samples:
            return None
        originals = [at for at in held if self._entries[at].sample == fact]
        if origin is Origin.AGAIN and originals:
            self._remove(originals[0])
            return None
        return Arrival.REJECTED if index == len(self._entries) else Arrival.LOST_RESOURCES

    def _append_fact(self, place: _Place, origin: Origin, fact: Sample) -> None:
        """Append the newest fact, which decides the state."""
        kind = EntryKind.SAMPLE if fact.status & DATA else EntryKind.DISPOSED
        self._change(InstanceEvent.DATA if kind is EntryKind.SAMPLE else InstanceEvent.DISPOSED)
        self._append(kind, origin, fact.source_time_ns, fact, place)
        if fact.status & DISPOSE:
            self._change(InstanceEvent.DISPOSED)

    # Derived changes.

    def writer_lost(self, writer: bytes, time_ns: int, *, autodispose: bool) -> bool:
        """Note the loss of a writer; True if that changed the state.

        The reader acts as if the writer had unregistered the instance, and had disposed it if its
        WRITER_DATA_LIFECYCLE has `autodispose_unregistered_instances`. `time_ns` is the time of the loss.
        `autodispose` is that setting of the writer.
        """
        if writer not in self._newest or writer in self._absent:
            return False
        was_registered = writer in self._registered()
        self._absent[writer] = autodispose
        self._superseded.discard(writer)
        before = self.state
        if was_registered and autodispose:
            self._derive(EntryKind.DISPOSED, time_ns)
        elif was_registered and not self.writers:
            self._derive(EntryKind.NO_WRITERS, time_ns)
        return self.state is not before

    def _derive(self, kind: EntryKind, time_ns: int) -> None:
        """Change the state because of an absent writer."""
        change = InstanceEvent.DISPOSED if kind is EntryKind.DISPOSED else InstanceEvent.NO_WRITERS
        if MOVES[self.state][change].state is not self.state:
            self._change(change)
            self.is_derived = True
            if not self.shows_all:
                self._append(kind, Origin.DERIVED, time_ns, None)

    def writer_returned(self, writer: bytes, history: Iterable[Sample]) -> None:
        """Note a returned writer; `history` has the known facts of all writers.

        If the state came from the writer's absence, the history is inserted again behind that change.
        Otherwise only its new facts are inserted.
        """
        is_reverted = self.is_reverted_by(writer)
        self._absent.pop(writer, None)
        self._superseded.discard(writer)
        # What nodes said of its end is taken back; they may not have done so yet.
        facts = sorted({fact for fact in history if not (fact.writer == writer and is_lost_end(fact))})
        if not is_reverted:
            for fact in facts:
                self.apply(fact)
            return
        fates = self._begin_round(facts)
        if self.writers and not fates[Arrival.INSERTED]:
            self._change(InstanceEvent.DATA)  # without a history to show, the instance is alive

    def replaced(self, end: Sample, history: Iterable[Sample]) -> None:
        """Replace the known facts by `history`, as a merge policy did; `end` is its sample.

        It disposes the instance, or only withdraws the known facts. As with the return of a writer, the
        history follows whatever its source times.
        """
        if end.status & DISPOSE:
            self._change(InstanceEvent.DISPOSED)
            self._append(EntryKind.DISPOSED, Origin.STORED, end.source_time_ns, end)
        self._taken.clear()
        self._begin_round(sorted(set(history)))

    def _begin_round(self, facts: list[Sample]) -> collections.Counter[Arrival]:
        """Insert history again behind all entries."""
        self._round += 1
        again = retained(facts, self.depth)
        fates = collections.Counter(
            self._take_in(fact, Origin.AGAIN, is_last=fact is again[-1]) for fact in again
        )
        for fate in (Arrival.REJECTED, *LOSSES):
            self.arrivals[fate] += fates[fate]
        return fates

    def renamed(self, old: bytes, new: bytes) -> None:
        """Replace the GUID that a service gave for a writer by the true one."""
        if old in self._newest:
            newest = self._newest.pop(old)
            self._newest.setdefault(new, newest)
        if old in self._absent:
            self._absent.setdefault(new, self._absent.pop(old))

    def is_reverted_by(self, writer: bytes) -> bool:
        """Whether the state came from the absence of writers and ends when this one is back."""
        if writer not in self._absent or not self.is_derived:
            return False
        registered = self._registered()
        if self.state is InstanceState.NOT_ALIVE_NO_WRITERS:
            return writer in registered
        others = registered - {writer} - self._superseded
        return not any(self._absent.get(other, False) for other in others)

    # Reading.

    def read(self, limit: int | None = None) -> tuple[ReaderEntry, ...]:
        """Return all entries, or the first `limit`, and mark them as read."""
        shown = tuple(self._entries[:limit])
        read = [entry if entry.is_read else msgspec.structs.replace(entry, is_read=True) for entry in shown]
        self._entries[: len(shown)] = read
        if shown:
            self.view = VIEWS[self.view, True]
        return shown

    def take(self, limit: int | None = None) -> tuple[ReaderEntry, ...]:
        """Take all entries, or the first `limit`; no older ones are shown afterwards."""
        shown = tuple(self._entries[:limit])
        if shown:
            self.view = VIEWS[self.view, True]
            last = self._places[len(shown) - 1]
            self._consumed = last if self._consumed is None else max(last, self._consumed)
            most = 2 * self.depth or REMEMBERED
            self._taken |= {each.sample.digest: None for each in shown[-most:] if each.sample is not None}
            while len(self._taken) > most:
                del self._taken[next(iter(self._taken))]
        del self._entries[: len(shown)], self._places[: len(shown)]
        return shown

    # The parts.

    def _change(self, change: InstanceEvent) -> None:
        """Change the state as the table of transitions says."""
        move = MOVES[self.state][change]
        if move.state is not self.state or change in (InstanceEvent.DATA, InstanceEvent.DISPOSED):
            self.is_derived = False
        if change is InstanceEvent.DATA:
            self._superseded.update(self._absent)  # a write ends what their absence implied
        self.state = move.state
        self.disposed_generations += move.disposed_generations
        self.no_writers_generations += move.no_writers_generations
        if move.disposed_generations or move.no_writers_generations:
            self.view = VIEWS[self.view, False]

    def _append(
        self,
        kind: EntryKind,
        origin: Origin,
        time_ns: int,
        fact: Sample | None,
        place: _Place | None = None,
    ) -> None:
        """Append an entry; one that follows another of its kind replaces it."""
        last = self._places[-1] if self._places else self._consumed or _Place(self._round, time_ns)
        if place is None and kind is EntryKind.NO_WRITERS:
            place = last  # the loss of writers does not exclude an older sample
        elif place is None:
            place = max(last, _Place(self._round, time_ns, _LAST))
        counts = (self.disposed_generations, self.no_writers_generations)
        if (
            kind is not EntryKind.SAMPLE
            and self._entries
            and self._entries[-1].kind is kind
            and not self.shows_all
        ):
            self._remove(len(self._entries) - 1)
        self._put(len(self._entries), place, ReaderEntry(kind, origin, time_ns, fact, *counts))

    def _put(self, index: int, place: _Place, entry: ReaderEntry) -> None:
        """Insert an entry; at full depth, drop the entries before the oldest sample."""
        self._places.insert(index, place)
        self._entries.insert(index, entry)
        if not self.depth:
            return
        samples = [at for at, each in enumerate(self._entries) if each.kind is EntryKind.SAMPLE]
        if len(samples) >= self.depth:
            oldest = samples[-self.depth]
            del self._entries[:oldest], self._places[:oldest]

    def _remove(self, index: int) -> None:
        del self._entries[index], self._places[index]
