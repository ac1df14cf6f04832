"""One persistence service among several: what it keeps, from whom it takes, to whom it gives.

What must hold at any time: for each number in `had`, what is kept of its DDS instance is that sample or a
later one, and its writer is in `writers` of that DDS instance. From that follows that instances which have
accounted for the same samples keep the same, and that all end with the same last value once writers stop.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from typing import Final

from engine.redundancy.messages import (
    Announcement,
    Delivery,
    Kept,
    Message,
    Sample,
    Saved,
    Subscription,
    Want,
    WriterState,
)
from engine.redundancy.selection import ORIGINAL, Candidate, Providers, Stability, choose, due
from engine.redundancy.sequences import Sequences
from engine.redundancy.settings import SynchronizationSettings

MAX_WRITERS: Final = 100_000
"""Original writers that are known. Samples of more are refused, and counted."""

BATCH_SAMPLES: Final = 256
"""Samples in one delivery at most."""


@dataclasses.dataclass(slots=True)
class _Entry:
    """The last value of one DDS instance, and every writer that ever wrote it."""

    sample: Sample
    writers: frozenset[str]


@dataclasses.dataclass(slots=True)
class _Writer:
    """What is known of one original writer."""

    stability: Stability
    had: Sequences = dataclasses.field(default_factory=Sequences)
    is_direct: bool = False
    highest_before: int = 0
    keys: set[bytes] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(slots=True)
class _Peer:
    """Another instance while it is connected.

    Attributes:
        known: what it surely has or has been sent, by writer.
        states: its last announcement.
        highest_before: its highest numbers at the last period.
        wants: its subscription to us, by writer.
        number, asked: our subscription to it.
    """

    known: dict[str, Sequences] = dataclasses.field(default_factory=dict)
    states: dict[str, WriterState] = dataclasses.field(default_factory=dict)
    highest_before: dict[str, int] = dataclasses.field(default_factory=dict)
    wants: dict[str, Sequences | None] = dataclasses.field(default_factory=dict)
    number: int = 0
    asked: dict[str, Sequences | None] = dataclasses.field(default_factory=dict)

    def knows(self, sample: Sample) -> bool:
        return sample.sequence in self.known.get(sample.writer, _NOTHING)

    def learn(self, writer: str, numbers: Sequences) -> None:
        self.known[writer] = self.known.get(writer, _NOTHING) | numbers


_NOTHING: Final = Sequences()


class Instance:
    """The decisions of one instance. Links to others keep the order and lose nothing while they are up.

    Args:
        name: its name, different from those of the others.
        settings: how it synchronizes.
        saved: what it had when it last saved; it may be long ago, but all of it is from one moment.

    Attributes:
        counters: `applied` (became the last value), `superseded` (older than the last value), `repeated`
            (came again and was not applied), `changes` (provider sets put into use), `forced` (those at the
            bound), `subscriptions` (readers made), `sent` (samples), `refused` (beyond a bound).
    """

    def __init__(self, name: str, settings: SynchronizationSettings, saved: Saved | None = None) -> None:
        self.name = name
        self.settings = settings
        self.counters: collections.Counter[str] = collections.Counter()
        self._kept: dict[bytes, _Entry] = {}
        self._writers: dict[str, _Writer] = {}
        self._peers: dict[str, _Peer] = {}
        self._outbox: list[tuple[str, Message]] = []
        self._restore(saved or Saved())

    def _restore(self, saved: Saved) -> None:
        for kept in saved.kept:
            self._kept[kept.sample.key] = _Entry(kept.sample, frozenset())
            self._wrote(kept.sample.key, kept.writers)
        for writer, had in saved.had:
            known = self._writer(writer)
            if known is not None:
                known.had = had
                known.highest_before = had.highest

    def saved(self) -> Saved:
        """What it has now, to start again with."""
        kept = (Kept(entry.sample, entry.writers) for _, entry in sorted(self._kept.items()))
        return Saved(tuple(kept), tuple((name, known.had) for name, known in sorted(self._writers.items())))

    # What it shows.

    def values(self) -> dict[bytes, Sample]:
        """The last value of every DDS instance."""
        return {key: entry.sample for key, entry in sorted(self._kept.items())}

    def providers(self, writer: str) -> Providers:
        """The providers in use for a writer."""
        known = self._writers.get(writer)
        return known.stability.applied if known else Providers()

    def stability(self, writer: str) -> tuple[int, int]:
        """Periods for which the choice was the same, and periods for which it has not been stable."""
        known = self._writers[writer].stability
        return known.unchanged, known.unsettled

    def lag(self, writer: str) -> int:
        """How many numbers we are behind the instance that is furthest."""
        highest = max(
            (p.states[writer].had.highest for p in self._peers.values() if writer in p.states), default=0
        )
        return max(0, highest - self._had(writer).highest)

    def messages(self) -> list[tuple[str, Message]]:
        """What is to be sent now, in order: (receiver, message)."""
        outbox, self._outbox = self._outbox, []
        return outbox

    # What happens to it.

    def connected(self, peer: str) -> None:
        """A link to another instance is up, with nothing left over from before."""
        self._peers[peer] = _Peer()
        self._send(peer, self._announcement())

    def disconnected(self, peer: str) -> None:
        """The link is down."""
        self._peers.pop(peer, None)

    def writer_matched(self, writer: str) -> None:
        """An original writer is connected with us."""
        known = self._writer(writer)
        if known is not None:
            known.is_direct = True
            known.highest_before = -1  # what it has written may be on its way: one period of patience

    def writer_lost(self, writer: str) -> None:
        """It no longer is."""
        if writer in self._writers:
            self._writers[writer].is_direct = False

    def sample_arrived(self, sample: Sample) -> None:
        """A sample came from its original writer."""
        self._apply(sample, frozenset((sample.writer,)))

    def receive(self, peer: str, message: Message) -> None:
        """A message came from another instance."""
        state = self._peers.get(peer)
        if state is None:
            return
        if isinstance(message, Announcement):
            state.states = {each.writer: each for each in message.states}
            for each in message.states:
                state.learn(each.writer, each.had)
                self._writer(each.writer)
        elif isinstance(message, Subscription):
            state.wants = {want.writer: want.only for want in message.wants}
            for want in message.wants:
                state.learn(want.writer, want.had)
            for want in message.wants:
                self._catch_up(peer, want.writer)
        else:
            self._take(state, message)

    def period(self) -> None:
        """A remote_provider_selection_period is over: evaluate, change what is stable, tell the others."""
        if not self.settings.enable:
            return
        for writer in sorted(self._writers):
            self._evaluate(writer)
        self._subscribe()
        for peer in sorted(self._peers):
            self._send(peer, self._announcement())

    # Providers.

    def _candidates(self, writer: str) -> dict[str, Candidate]:
        return {
            name: Candidate(
                peer.states[writer].had,
                peer.states[writer].path,
                peer.states[writer].had.highest > peer.highest_before.get(writer, 0),
            )
            for name, peer in sorted(self._peers.items())
            if writer in peer.states
        }

    def _evaluate(self, writer: str) -> None:
        known = self._writers[writer]
        chosen = choose(
            self.name,
            known.had,
            self._candidates(writer),
            is_direct=known.is_direct,
            advanced=known.had.highest > known.highest_before,
            current=known.stability.applied,
        )
        forced = known.stability.forced
        if known.stability.period(chosen):
            self.counters["changes"] += 1
            self.counters["forced"] += known.stability.forced - forced

    def _subscribe(self) -> None:
        """Make the readers anew whose filter must be another one."""
        wanted: dict[str, dict[str, Sequences | None]] = {peer: {} for peer in self._peers}
        for writer, known in sorted(self._writers.items()):
            applied = known.stability.applied
            candidates = self._candidates(writer)
            is_advancing = known.had.highest > known.highest_before
            missing = due(known.had, candidates, advanced=is_advancing)
            for source in applied.filling & self._peers.keys():
                part = missing & candidates[source].had if source in candidates else _NOTHING
                asked = self._peers[source].asked.get(writer, _NOTHING) or _NOTHING
                wanted[source][writer] = asked if not part - asked else part
            if applied.live in wanted:
                wanted[applied.live][writer] = None
            known.highest_before = known.had.highest
        for name, wants in wanted.items():
            peer = self._peers[name]
            peer.highest_before = {each.writer: each.had.highest for each in peer.states.values()}
            if wants != peer.asked:
                peer.asked = wants
                peer.number += 1
                self.counters["subscriptions"] += 1
                filter_ = tuple(
                    Want(writer, self._had(writer), only) for writer, only in sorted(wants.items())
                )
                self._send(name, Subscription(peer.number, filter_))

    def _path(self, writer: str) -> tuple[str, ...] | None:
        known = self._writers[writer]
        live = known.stability.applied.live
        if live == ORIGINAL:
            return (self.name,) if known.is_direct else None
        peer = self._peers.get(live) if live is not None else None
        state = peer.states.get(writer) if peer else None
        return (*state.path, self.name) if state and state.path and self.name not in state.path else None

    def _announcement(self) -> Announcement:
        return Announcement(
            tuple(
                WriterState(writer, known.had, self._path(writer))
                for writer, known in sorted(self._writers.items())
            )
        )

    # Samples.

    def _apply(self, sample: Sample, writers: frozenset[str]) -> None:
        known = self._writer(sample.writer)
        if known is None:
            return
        entry = self._kept.get(sample.key)
        if sample.sequence in known.had:
            self.counters["repeated"] += 1
            self._wrote(sample.key, writers)
            return
        known.had = known.had.with_number(sample.sequence)
        if entry is None or sample.order > entry.sample.order:
            self._kept[sample.key] = _Entry(sample, entry.writers if entry else frozenset())
            self.counters["applied"] += 1
        else:
            self.counters["superseded"] += 1
        self._wrote(sample.key, writers | {sample.writer})
        for peer in sorted(self._peers):
            self._catch_up(peer, sample.writer, sample)

    def _wrote(self, key: bytes, writers: Iterable[str]) -> None:
        entry = self._kept.get(key)
        if entry is None:
            return
        for writer in writers:
            known = self._writer(writer)
            if known is not None:
                known.keys.add(key)
        entry.writers |= frozenset(writers)

    def _take(self, state: _Peer, delivery: Delivery) -> None:
        for kept in delivery.samples:
            state.learn(kept.sample.writer, Sequences(((kept.sample.sequence, kept.sample.sequence),)))
            self._apply(kept.sample, kept.writers)
        for key, writers in delivery.written:
            self._wrote(key, writers)
        for writer, numbers in delivery.superseded:
            state.learn(writer, numbers)
            known = self._writer(writer)
            new = numbers - known.had if known else _NOTHING
            if known is not None and new:
                known.had |= new
                self.counters["superseded"] += len(new)
                for peer in sorted(self._peers):
                    self._catch_up(peer, writer)

    def _catch_up(self, peer: str, writer: str, newest: Sample | None = None) -> None:
        """Send a subscriber what it wants and lacks of a writer; `newest` is what has just arrived."""
        state = self._peers[peer]
        if writer not in state.wants:
            return
        only = state.wants[writer]
        missing = self._had(writer) - state.known.get(writer, _NOTHING)
        if only is not None:
            missing &= only
        if not missing:
            return
        if newest is not None and len(missing) == 1 and self._kept[newest.key].sample is newest:
            self._give(peer, state, [Kept(newest, self._kept[newest.key].writers)])
            return
        entries = [self._kept[key] for key in sorted(self._writers[writer].keys)]
        there = [each for each in entries if each.sample.writer == writer and each.sample.sequence in missing]
        written: list[tuple[bytes, frozenset[str]]] = []
        left = missing - Sequences.of(each.sample.sequence for each in there)
        if left:  # what supersedes them goes with them: it may be anything that is kept of the same instances
            there = [each for each in entries if not state.knows(each.sample)]
            left = missing - Sequences.of(e.sample.sequence for e in there if e.sample.writer == writer)
            written = [
                (each.sample.key, each.writers)
                for each in entries
                if state.knows(each.sample) and each.sample.writer != writer
            ]
        state.learn(writer, missing)
        superseded = ((writer, left),) if left else ()
        self._give(peer, state, [Kept(each.sample, each.writers) for each in there], written, superseded)

    def _give(
        self,
        peer: str,
        state: _Peer,
        samples: list[Kept],
        written: Iterable[tuple[bytes, frozenset[str]]] = (),
        superseded: tuple[tuple[str, Sequences], ...] = (),
    ) -> None:
        """Send samples in batches; what they supersede goes with the last of them."""
        for kept in samples:
            number = kept.sample.sequence
            state.learn(kept.sample.writer, Sequences(((number, number),)))
        self.counters["sent"] += len(samples)
        batches = [tuple(samples[at : at + BATCH_SAMPLES]) for at in range(0, len(samples), BATCH_SAMPLES)]
        for batch in batches[:-1]:
            self._send(peer, Delivery(batch))
        self._send(peer, Delivery(batches[-1] if batches else (), tuple(written), superseded))

    # Odds and ends.

    def _had(self, writer: str) -> Sequences:
        known = self._writers.get(writer)
        return known.had if known else _NOTHING

    def _writer(self, writer: str) -> _Writer | None:
        known = self._writers.get(writer)
        if known is None:
            if len(self._writers) >= MAX_WRITERS:
                self.counters["refused"] += 1
                return None
            stability = Stability(self.settings.stable_periods, self.settings.max_change_periods)
            known = self._writers[writer] = _Writer(stability)
        return known

    def _send(self, peer: str, message: Message) -> None:
        self._outbox.append((peer, message))
