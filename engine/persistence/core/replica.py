"""The decisions of one replica: the values it keeps, its providers, the samples it gives to others.

Invariant: for each number in `had`, the last value of its instance is that sample or a later one, and its
writer is in `writers` of that instance. So replicas that have accounted for the same samples keep the same,
and all end with the same last values once writers stop. Where the numbers of a writer are not enough
(`engine.persistence.core.positions`), the audit finds the difference.

A replica remembers two kinds of numbers: those that it accounts for itself (`_KnownWriter.had`), and those
that it knows others to have (`_KnownPeer.known`); it sends a sample only where the second lack it.

"Writer" means a stream of samples here: each writer has one, and another one for its late samples.
"""

from __future__ import annotations

import bisect
import collections
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from engine.persistence.core.messages import (
    LATE,
    PARTS,
    Announcement,
    Inventory,
    KeptSample,
    Message,
    OriginalSample,
    SampleBatch,
    Saved,
    Subscription,
    Want,
    WriterState,
)
from engine.persistence.core.positions import span, time_of
from engine.persistence.core.provider_selection import (
    MAX_LAG_PERIODS,
    ORIGINAL,
    Candidate,
    Providers,
    Stability,
    SynchronizationSettings,
    choose,
    due,
)
from engine.persistence.core.sequences import Sequences

# A sixteenth of the `PARTS`: after a long separation an inventory of everything is spread over 16 periods.
MAX_PARTS_ASKED: Final = 16
"""Inventories to one replica in one period; the others wait."""
# A replica announces once a period, and that of the other may have just gone.
MARGIN_PERIODS: Final = 2
"""Periods that a difference must stay longer than a change of providers may take."""

# Digests of parts add up like those of sets, in 64 bits.
_MASK: Final = (1 << 64) - 1


def part_of(key: bytes) -> int:
    """Return the part of an instance."""
    return hashlib.blake2b(key, digest_size=1).digest()[0]


def _digest(key: bytes, entry: KeptSample | None) -> int:
    if entry is None:
        return 0
    time_ns, writer, sequence = entry.sample.order
    text = b"%d|%d|%s|" % (time_ns, sequence, writer.encode())
    return int.from_bytes(hashlib.blake2b(text + key, digest_size=8).digest(), "big")


class Comparison:
    """The parts that differ at one other replica, and for how many periods."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[tuple[int, int], int]] = {}

    def period(self, ours: Sequence[int], theirs: Sequence[int], patience: int) -> Iterator[int]:
        """Compare digests at the end of a period; yield parts that differed unchanged for over `patience`.

        Args:
            ours: digests of this replica, by part.
            theirs: digests of the other replica, by part; empty if it sent none.
            patience: periods.
        """
        seen, self._seen = self._seen, {}
        if len(theirs) != PARTS or ours == theirs:
            return
        asked = 0
        for part, pair in enumerate(zip(ours, theirs, strict=True)):
            if pair[0] == pair[1]:
                continue
            before, count = seen.get(part, (pair, 0))
            count = count + 1 if before == pair else 1
            if count > patience and asked < MAX_PARTS_ASKED:
                asked += 1
                count = 0
                yield part
            self._seen[part] = (pair, count)


Room = Callable[[bytes], tuple[bytes, int]]
"""Returns the group of an instance, and how many instances of it are kept at most; 0 for no limit."""


def no_limits(key: bytes) -> tuple[bytes, int]:
    """Keep every instance."""
    return key, 0


class LastValues:
    """The last values. A group with a limit keeps the instances whose keys come first in byte order.

    The choice does not depend on the order in which samples come, so all replicas make the same one.

    Args:
        room: tells how many instances of a group are kept.

    Attributes:
        entries: by instance.
        changed: instances that have changed since the owner cleared this set.
    """

    def __init__(self, room: Room = no_limits) -> None:
        self._room = room
        self._limited: dict[bytes, list[bytes]] = {}
        self.entries: dict[bytes, KeptSample] = {}
        self.changed: set[bytes] = set()
        self._sums = [0] * PARTS
        self._keys_of_part: list[set[bytes]] = [set() for _ in range(PARTS)]

    def put(self, sample: OriginalSample) -> KeptSample | None:
        """Make a sample the last value of its instance; return a value that the limit left no room for."""
        entry = self.entries.get(sample.key)
        pushed: KeptSample | None = None
        if entry is None:
            group, most = self._room(sample.key)
            if most:
                keys = self._limited.setdefault(group, [])
                if len(keys) >= most:
                    if sample.key > keys[-1]:
                        return KeptSample(sample, frozenset())
                    pushed = self.entries[keys[-1]]
                    self._replace(keys.pop(), None)
                bisect.insort(keys, sample.key)
                assert len(keys) <= most
        self._replace(sample.key, KeptSample(sample, entry.writers if entry else frozenset()))
        return pushed

    def _replace(self, key: bytes, new: KeptSample | None) -> None:
        """Put another entry of an instance, or none, in the place of its present one."""
        part = part_of(key)
        change = _digest(key, new) - _digest(key, self.entries.get(key))
        self._sums[part] = (self._sums[part] + change) & _MASK
        if new is None:
            del self.entries[key]
            self._keys_of_part[part].discard(key)
        else:
            self.entries[key] = new
            self._keys_of_part[part].add(key)
        self.changed.add(key)

    def digests(self) -> tuple[int, ...]:
        """Return a number for each part: the sum of the digests of its last values."""
        return tuple(self._sums)

    def of_part(self, part: int) -> list[KeptSample]:
        """Return the last values of one part, in order of their keys."""
        return [self.entries[key] for key in sorted(self._keys_of_part[part])]


_NOTHING: Final = Sequences()


def numbers_of(samples: Iterable[OriginalSample]) -> Sequences:
    """Return the numbers for which samples of one stream account."""
    return Sequences.joined((sample.first or sample.sequence, sample.sequence) for sample in samples)


class _KnownWriter(Struct):
    """One original writer, as a replica knows it.

    Attributes:
        stability: the choice of its providers.
        had: its samples that are accounted for.
        is_direct: whether it is connected to this replica.
        highest_before: its highest number at the last period; -1 to wait one period before others are asked.
        keys: the instances that it ever wrote.
    """

    stability: Stability
    had: Sequences = _NOTHING
    is_direct: bool = False
    highest_before: int = 0
    keys: set[bytes] = set()


class _KnownPeer(Struct):
    """Another replica while it is connected."""

    known: dict[str, Sequences] = {}
    """Numbers that it has or was sent, by writer."""
    states: dict[str, WriterState] = {}
    """Its last announcement, by writer."""
    highest_before: dict[str, int] = {}
    """Its highest numbers at the last period, by writer."""
    wants: dict[str, Sequences | None] = {}
    """Its subscription to this replica, by writer; None for all numbers."""
    number: int = 0
    """How often this replica has replaced its subscription to it."""
    asked: dict[str, Sequences | None] = {}
    """The subscription of this replica to it, by writer; None for all numbers."""
    digests: tuple[int, ...] = ()
    """Digests of its last values, by part."""
    comparison: Comparison = msgspec.field(default_factory=Comparison)
    """How long its digests have differed from those of this replica."""

    def knows(self, sample: OriginalSample) -> bool:
        """Whether it has a sample, or was sent it."""
        return sample.sequence in self.known.get(sample.stream, _NOTHING)

    def learn(self, writer: str, numbers: Sequences) -> None:
        """Note numbers that it has, or was sent."""
        self.known[writer] = self.known.get(writer, _NOTHING) | numbers

    def learn_samples(self, samples: Iterable[OriginalSample]) -> None:
        """Note samples that it has, or was sent."""
        streams: dict[str, list[OriginalSample]] = {}
        for sample in samples:
            streams.setdefault(sample.stream, []).append(sample)
        for stream, some in streams.items():
            self.learn(stream, numbers_of(some))


# Chosen: each has intervals, and anybody in the domain can be a writer.
MAX_WRITERS: Final = 100_000
"""Original writers that a replica knows. It keeps samples of more, but does not account for them; counted."""

# Chosen: small samples fill a message of some hundred kilobytes.
BATCH_SAMPLES: Final = 256
"""Samples in one delivery at most."""
# The largest batch that is among the fastest (`engine.dds.bulk`).
BATCH_BYTES: Final = 1 << 20
"""Payload bytes at which a delivery is full."""


class Replica:
    """The decisions of one replica. Links to others keep the order and lose nothing while they are up.

    Args:
        name: its name, which no other replica has.
        settings: of data synchronization.
        saved: its last save, of any age but all from one moment.
        room: tells how many instances of a group are kept.

    Attributes:
        counters: `applied` (became the last value), `superseded` (older than the last value), `repeated`
            (came again and was not applied), `changes` (provider sets put into use), `forced` (those at the
            bound), `subscriptions` (readers made), `sent` (samples), `audited` (parts compared one by one),
            `refused` (beyond a bound), `limited` (values that limits left no room for).
    """

    def __init__(
        self,
        name: str,
        settings: SynchronizationSettings,
        saved: Saved | None = None,
        room: Room = no_limits,
    ) -> None:
        self.name = name
        self.settings = settings
        self.counters: collections.Counter[str] = collections.Counter()
        self._kept = LastValues(room)
        self._writers: dict[str, _KnownWriter] = {}
        self._peers: dict[str, _KnownPeer] = {}
        self._outbox: list[tuple[str, Message]] = []
        self._changed_writers: set[str] = set()
        self._ended: set[str] = set()  # their ends are not announced yet
        self._lacking: set[str] = set()  # of these, another replica may have what this one lacks
        self._restore(saved or Saved())

    def _restore(self, saved: Saved) -> None:
        for kept in saved.kept:
            self._put(kept.sample)
            self._wrote(kept.sample.key, kept.writers)
        for writer, had in saved.had:
            known = self._writer(writer)
            if known is not None:
                known.had = had
                known.highest_before = had.highest
        self._kept.changed.intersection_update(self._kept.changed - self._kept.entries.keys())
        self._changed_writers.clear()

    def saved(self) -> Saved:
        """Return everything that it has."""
        return self._saved(self._kept.entries, self._writers)

    def changes(self) -> Saved:
        """Return the part of `saved` that has changed since the last call, or since the start."""
        changed = self._saved(self._kept.changed, self._changed_writers)
        self._kept.changed.clear()
        self._changed_writers.clear()
        return changed

    def _saved(self, keys: Iterable[bytes], writers: Iterable[str]) -> Saved:
        entries = [self._kept.entries[key] for key in sorted(keys) if key in self._kept.entries]
        return Saved(
            tuple(entry.alone for entry in entries),
            tuple((name, self._writers[name].had) for name in sorted(writers)),
            tuple(sorted(set(keys) - self._kept.entries.keys())),
        )

    # State.

    def values(self) -> dict[bytes, OriginalSample]:
        """Return the last value of every instance."""
        return {key: entry.sample for key, entry in sorted(self._kept.entries.items())}

    def value(self, key: bytes) -> OriginalSample | None:
        """Return the last value of one instance."""
        entry = self._kept.entries.get(key)
        return entry.sample if entry else None

    def of_group(self, prefix: bytes) -> list[OriginalSample]:
        """Return the last values of the instances whose keys have this prefix, in order of source time."""
        found = [entry.sample for key, entry in self._kept.entries.items() if key.startswith(prefix)]
        # Late joiners get the samples as they were written, by source time.
        return sorted(found, key=lambda sample: sample.order)

    def instances(self) -> Iterable[bytes]:
        """Return the keys of all instances."""
        return self._kept.entries.keys()

    def digest(self) -> int:
        """Return a number below 2**64 for all last values: replicas with equal values have the same."""
        return sum(self._kept.digests()) & _MASK

    def writers(self) -> list[str]:
        """Return all known writers and streams of late samples."""
        return sorted(self._writers)

    def providers(self, writer: str) -> Providers:
        """Return the providers in use for a writer."""
        known = self._writers.get(writer)
        return known.stability.applied if known else Providers()

    def stability(self, writer: str) -> Stability:
        """Return the choice of the providers of a known writer."""
        return self._writers[writer].stability

    def is_direct(self, writer: str) -> bool:
        """Whether the original writer is connected to this replica."""
        return self._writers[writer].is_direct

    def path(self, writer: str) -> tuple[str, ...] | None:
        """Return the replicas through which its samples come now, this one last; None if none come."""
        known = self._writers[writer]
        live = known.stability.applied.live
        if live == ORIGINAL:
            return (self.name,) if known.is_direct else None
        peer = self._peers.get(live) if live is not None else None
        state = peer.states.get(writer) if peer else None
        return (*state.path, self.name) if state and state.path and self.name not in state.path else None

    def lag_ns(self, writer: str) -> int:
        """Return the source time by which this replica is behind the furthest one, in nanoseconds."""
        theirs = [p.states[writer].had for p in self._peers.values() if writer in p.states]
        highest = max((had.highest for had in theirs), default=0)
        own = self._had(writer).highest or min((had.lowest for had in theirs if had), default=0)
        return time_of(highest) - time_of(own) if highest > own else 0

    def messages(self) -> list[tuple[str, Message]]:
        """Take the messages to send, in order: (receiver, message).

        Call it when everything that has arrived is taken in: what is lacking then will not come by itself.
        """
        if self.settings.enable:
            self._announce_ends()
            self._fetch_lacking()
        outbox, self._outbox = self._outbox, []
        return outbox

    # Input.

    def connected(self, peer: str) -> None:
        """Begin to synchronize with a replica, whose link is new."""
        self._peers[peer] = _KnownPeer()
        self._send(peer, self._announcement())

    def disconnected(self, peer: str) -> None:
        """Forget a replica, whose link is down."""
        lost = self._peers.pop(peer, None)
        if lost is not None:
            self._lacking.update(lost.asked)

    def writer_matched(self, writer: str) -> None:
        """Note that an original writer is connected to this replica."""
        known = self._writer(writer)
        if known is not None:
            known.is_direct = True
            known.highest_before = -1  # its samples may be on their way: wait one period

    def writer_lost(self, writer: str) -> None:
        """Note that an original writer is no longer connected to this replica."""
        if writer in self._writers:
            self._writers[writer].is_direct = False
            streams = self._writers.keys() & {writer, writer + LATE}
            self._ended |= streams
            self._lacking |= streams

    def samples_arrived(self, samples: Iterable[OriginalSample]) -> None:
        """Take samples that came from their original writers, in this order."""
        self._apply([(sample, frozenset((sample.stream,))) for sample in samples])

    def receive(self, peer: str, message: Message) -> None:
        """Take a message of another replica."""
        state = self._peers.get(peer)
        if state is None:
            return
        if isinstance(message, Announcement):
            state.states |= {each.writer: each for each in message.states}
            state.digests = message.digests or state.digests
            for each in message.states:
                state.learn(each.writer, each.had)
                self._writer(each.writer)
                if each.had != self._had(each.writer):
                    self._lacking.add(each.writer)
        elif isinstance(message, Subscription):
            state.wants = {want.writer: want.only for want in message.wants}
            for want in message.wants:
                state.learn(want.writer, want.had)
            for want in message.wants:
                self._catch_up(peer, want.writer)
        elif isinstance(message, Inventory):
            self._give_newer(peer, state, message)
        else:
            state.learn_samples([kept.sample for kept in message.samples])
            self._apply([(kept.sample, kept.writers) for kept in message.samples])
            # Behind the samples: these numbers are accounted for only with what supersedes them.
            for key, writers in message.written:
                self._wrote(key, writers)
            for writer, numbers in message.superseded:
                state.learn(writer, numbers)
                self._account(writer, numbers)

    def period(self) -> None:
        """End a remote_provider_selection_period: evaluate, use stable choices, announce to others."""
        if not self.settings.enable:
            return
        for writer in sorted(self._writers):
            self._evaluate(writer)
        self._subscribe()
        for peer in sorted(self._peers):
            self._audit(peer)
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
            max_lag=span(MAX_LAG_PERIODS * self.settings.period_ms * 1_000_000),
        )
        forced = known.stability.forced
        if known.stability.period(chosen):
            self.counters["changes"] += 1
            self.counters["forced"] += known.stability.forced - forced

    def _subscribe(self) -> None:
        """Replace the readers whose content filter must change."""
        wanted: dict[str, dict[str, Sequences | None]] = {peer: {} for peer in self._peers}
        for writer, known in sorted(self._writers.items()):
            applied = known.stability.applied
            candidates = self._candidates(writer)
            is_advancing = known.had.highest > known.highest_before
            missing = due(known.had, candidates, advanced=is_advancing)
            # Those that were asked before come first: what they will send is asked of nobody else.
            filling = sorted(
                applied.filling & self._peers.keys(), key=lambda each: (not self._asked(each, writer), each)
            )
            for source in filling:
                part = (missing & candidates[source].had).bounded if source in candidates else _NOTHING
                asked = self._asked(source, writer)
                wanted[source][writer] = part if part - asked else asked
                missing -= part
            if applied.live in wanted:
                wanted[applied.live][writer] = None
            known.highest_before = known.had.highest
        for name, wants in wanted.items():
            peer = self._peers[name]
            peer.highest_before = {each.writer: each.had.highest for each in peer.states.values()}
            self._replace_reader(name, wants)

    def _asked(self, peer: str, writer: str) -> Sequences:
        """Return the numbers that a peer is asked to fill in."""
        return self._peers[peer].asked.get(writer) or _NOTHING

    def _replace_reader(self, name: str, wants: dict[str, Sequences | None]) -> None:
        peer = self._peers[name]
        if wants != peer.asked:
            peer.asked = wants
            peer.number += 1
            self.counters["subscriptions"] += 1
            filter_ = tuple(Want(writer, self._had(writer), only) for writer, only in sorted(wants.items()))
            self._send(name, Subscription(peer.number, filter_))

    # Writers that have ended.

    def _announce_ends(self) -> None:
        """Tell the others at once which writers have ended: they fetch what they lack of them."""
        ended, self._ended = sorted(self._ended), set()
        if ended:
            states = tuple(WriterState(each, self._had(each), self.path(each)) for each in ended)
            for peer in sorted(self._peers):
                self._send(peer, Announcement(states))

    def _is_alive(self, writer: str) -> bool:
        """Whether this replica, or one that it is linked to, is connected to a writer."""
        known = self._writers.get(writer)
        states = (peer.states.get(writer) for peer in self._peers.values())
        return (known is not None and known.is_direct) or any(
            state is not None and state.path is not None and self.name not in state.path for state in states
        )

    def _fetch_lacking(self) -> None:
        """Ask others for what this replica lacks of writers that nobody is connected to any more.

        It does not wait for a period: nothing else will bring these samples, and who has them may be lost
        before the period ends. Periods govern the choice between providers.
        """
        lacking, self._lacking = sorted(self._lacking), set()
        wanted: dict[str, dict[str, Sequences | None]] = {}
        for writer in lacking:
            known = self._writers.get(writer)
            if known is None or self._is_alive(writer.removesuffix(LATE)):
                continue
            applied, candidates = known.stability.applied, self._candidates(writer)
            coming = known.had
            for source in sorted(applied.filling & self._peers.keys()):
                coming |= self._asked(source, writer)
            chosen = choose(self.name, coming, candidates, is_direct=False, advanced=False, current=applied)
            if not chosen.filling:
                continue
            assert chosen.live is None, "nobody passes on the samples of a writer that has ended"
            missing = due(coming, candidates, advanced=False)
            for source in sorted(chosen.filling):
                part = (missing & candidates[source].had).bounded
                wants = wanted.setdefault(source, dict(self._peers[source].asked))
                wants[writer] = (self._asked(source, writer) | part).bounded
                missing -= part
            known.stability.use(Providers(None, applied.filling & self._peers.keys() | chosen.filling))
            self.counters["changes"] += 1
        for name, wants in sorted(wanted.items()):
            self._replace_reader(name, wants)

    def _announcement(self) -> Announcement:
        return Announcement(
            tuple(
                WriterState(writer, known.had, self.path(writer))
                for writer, known in sorted(self._writers.items())
            ),
            self._kept.digests() if self.settings.enable else (),
        )

    # Samples.

    def _apply(self, arrived: Sequence[tuple[OriginalSample, frozenset[str]]]) -> None:
        """Take samples, each with writers of its instance, and then account for them."""
        streams: dict[str, list[OriginalSample]] = {}
        for sample, writers in arrived:
            self._offer(sample, writers)
            streams.setdefault(sample.stream, []).append(sample)
        for stream, samples in streams.items():
            self._account(stream, numbers_of(samples), samples)

    def _offer(self, sample: OriginalSample, writers: frozenset[str]) -> None:
        """Keep a newer sample, whatever is accounted for: this costs nothing and loses nothing."""
        entry = self._kept.entries.get(sample.key)
        if entry is None or sample.order > entry.sample.order:
            self._put(sample)
            self.counters["applied"] += sample.key in self._kept.entries
        elif sample.order == entry.sample.order or sample.sequence in self._had(sample.stream):
            self.counters["repeated"] += 1
        else:
            self.counters["superseded"] += 1
        self._wrote(sample.key, writers | {sample.stream})

    def _put(self, sample: OriginalSample) -> None:
        """Keep a last value if the limits of its group leave room for it."""
        pushed = self._kept.put(sample)
        if pushed is not None:
            self.counters["limited"] += 1
            for writer in pushed.writers & self._writers.keys():
                self._writers[writer].keys.discard(pushed.sample.key)

    def _account(self, stream: str, numbers: Sequences, newest: Sequence[OriginalSample] = ()) -> None:
        """Account for numbers, and give them to subscribers; `newest` are the samples that brought them."""
        known = self._writer(stream)
        new = numbers - known.had if known is not None else _NOTHING
        if known is not None and new:
            known.had |= new
            self._changed_writers.add(stream)
            for peer in sorted(self._peers):
                self._catch_up(peer, stream, newest)

    def _wrote(self, key: bytes, writers: Iterable[str]) -> None:
        entry = self._kept.entries.get(key)
        if entry is None or entry.writers.issuperset(writers):
            return
        for writer in writers:
            known = self._writer(writer)
            if known is not None:
                known.keys.add(key)
        self._kept.entries[key] = KeptSample(entry.sample, entry.writers.union(writers))
        self._kept.changed.add(key)

    def _catch_up(self, peer: str, writer: str, newest: Sequence[OriginalSample] = ()) -> None:
        """Send a subscriber the numbers of a writer that it wants and lacks; `newest` has just arrived."""
        # Step 1: the numbers that are missing there, within its content filter.
        state = self._peers[peer]
        if writer not in state.wants:
            return
        only = state.wants[writer]
        missing = self._had(writer) - state.known.get(writer, _NOTHING)
        if only is not None:
            missing &= only
        missing = missing.bounded
        if not missing:
            return
        # Step 2: if only new samples are missing, pass them on without a search.
        if newest and not missing - numbers_of(newest):
            self._pass_on(peer, state, newest, missing)
            return
        # Step 3: otherwise send the last values that have these numbers or supersede samples that had them.
        entries = [self._kept.entries[key] for key in sorted(self._writers[writer].keys)]
        there = [each for each in entries if each.sample.stream == writer and each.sample.sequence in missing]
        written: list[tuple[bytes, frozenset[str]]] = []
        are_all = missing.count == len({each.sample.sequence for each in there})
        if not are_all:  # some were superseded: every last value of an instance of this writer goes, too
            there = [each for each in entries if not state.knows(each.sample)]
            written = [
                (each.sample.key, each.writers)
                for each in entries
                if state.knows(each.sample) and each.sample.stream != writer
            ]
        state.learn(writer, missing)
        superseded = () if are_all else ((writer, missing),)
        self._give(peer, state, [each.alone for each in there], written, superseded)

    def _pass_on(
        self, peer: str, state: _KnownPeer, newest: Sequence[OriginalSample], missing: Sequences
    ) -> None:
        """Send samples that have just arrived, or newer ones of their instances."""
        given: list[KeptSample] = []
        written: list[tuple[bytes, frozenset[str]]] = []
        arrived = set(map(id, newest))
        are_all = len(newest) == 1
        for key in dict.fromkeys(sample.key for sample in newest):
            entry = self._kept.entries.get(key)
            if entry is None:  # the limits leave no room for it, here or at the peer
                are_all = False
                continue
            if id(entry.sample) in arrived:
                given.append(entry)
                continue
            are_all = False
            if state.knows(entry.sample):
                written.append((key, entry.writers))
            else:
                given.append(entry.alone)
        stream = newest[0].stream
        state.learn(stream, missing)
        self._give(peer, state, given, written, () if are_all else ((stream, missing),))

    def _give(
        self,
        peer: str,
        state: _KnownPeer,
        samples: list[KeptSample],
        written: Iterable[tuple[bytes, frozenset[str]]] = (),
        superseded: tuple[tuple[str, Sequences], ...] = (),
    ) -> None:
        """Send samples in batches; `written` and `superseded` go with the last one."""
        state.learn_samples([kept.sample for kept in samples])
        batch: list[KeptSample] = []
        size = 0
        for kept in samples:
            if batch and (len(batch) >= BATCH_SAMPLES or size >= BATCH_BYTES):
                self._send(peer, SampleBatch(tuple(batch)))
                batch, size = [], 0
            batch.append(kept)
            size += len(kept.sample.payload)
        self.counters["sent"] += len(samples)
        self._send(peer, SampleBatch(tuple(batch), tuple(written), superseded))

    # The audit.

    def _audit(self, peer: str) -> None:
        """Send a peer an inventory of each part that does not become equal by itself.

        Not while this replica knows of samples that it lacks: they may be on their way.
        """
        state = self._peers[peer]
        if any(each.had - self._had(each.writer) for each in state.states.values()):
            return
        patience = self.settings.max_change_periods + MARGIN_PERIODS
        for part in state.comparison.period(self._kept.digests(), state.digests, patience):
            self.counters["audited"] += 1
            entries = tuple((each.sample.key, each.sample.order) for each in self._kept.of_part(part))
            self._send(peer, Inventory(part, entries))

    def _give_newer(self, peer: str, state: _KnownPeer, inventory: Inventory) -> None:
        theirs = dict(inventory.entries)
        newer = [
            each.alone
            for each in self._kept.of_part(inventory.part)
            if each.sample.key not in theirs or each.sample.order > theirs[each.sample.key]
        ]
        if newer:
            self._give(peer, state, newer)

    # Odds and ends.

    def _had(self, writer: str) -> Sequences:
        known = self._writers.get(writer)
        return known.had if known else _NOTHING

    def _writer(self, writer: str) -> _KnownWriter | None:
        known = self._writers.get(writer)
        if known is None:
            if len(self._writers) >= MAX_WRITERS:
                self.counters["refused"] += 1
                return None
            stability = Stability(self.settings.stable_periods, self.settings.max_change_periods)
            known = self._writers[writer] = _KnownWriter(stability)
        return known

    def _send(self, peer: str, message: Message) -> None:
        self._outbox.append((peer, message))
