"""The intake of a persistence service: captures original writers, and gives their samples positions."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, Final

from engine.capture.matching import MatchWatch
from engine.capture.neighbourhood import DiscoveryChanges, Neighbourhood, Offer
from engine.capture.tap import Tap
from engine.capture.tap_registry import TapRegistry, UnroutedSamples
from engine.capture.unkept import Unkept, UnkeptReason
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample
from engine.dds import abi
from engine.dds.native_topics import Refusals
from engine.dds.participant import NodeParticipant
from engine.dds.typeinfo import Resolution, TypeRef
from engine.dds.waiting import Signal
from engine.dds.writer_names import WRITER_GONE
from engine.persistence.core.messages import OriginalSample
from engine.persistence.core.positions import Positions
from engine.persistence.service.kept_groups import KnownGroups, group_id, writer_name
from engine.persistence.service.lifespans import Lifespans
from engine.persistence.service.synchronization import Synchronization

MAX_INSTANCES: Final = 1_000_000
"""Instances whose owner is remembered; beyond, the oldest is forgotten, and its next writer owns it."""


class Owners:
    """The owners of the instances of exclusive topics, among the writers that this process sees."""

    def __init__(self) -> None:
        self._owners: dict[bytes, tuple[bytes, int]] = {}
        self._owned: collections.defaultdict[bytes, set[bytes]] = collections.defaultdict(set)

    def admits(self, instance: bytes, writer: bytes, strength: int) -> bool:
        """Note that a writer wrote or disposed an instance; return whether that counts.

        Args:
            instance: its key, with its group.
            writer: GUID.
            strength: of the writer.
        """
        owner = self._owners.get(instance)
        if owner is not None and owner[0] != writer and (-owner[1], owner[0]) < (-strength, writer):
            return False
        if owner is None or owner[0] != writer:
            self._release(instance)
            self._owned[writer].add(instance)
        self._owners[instance] = (writer, strength)
        if len(self._owners) > MAX_INSTANCES:
            self._release(next(iter(self._owners)))
        return True

    def unregistered(self, instance: bytes, writer: bytes) -> None:
        """Release an instance that its writer unregistered."""
        if self._owners.get(instance, (b"", 0))[0] == writer:
            self._release(instance)

    def gone(self, writer: bytes) -> None:
        """Release the instances of a writer that is gone."""
        for instance in list(self._owned.get(writer, ())):
            self._release(instance)

    def _release(self, instance: bytes) -> None:
        owner = self._owners.pop(instance, None)
        if owner is not None:
            owned = self._owned[owner[0]]
            owned.discard(instance)
            if not owned:
                del self._owned[owner[0]]


DRAIN: Final = 20_000
MAX_NEWS: Final = 100


class Intake:
    """Captures the writers of the groups that the service keeps.

    Args:
        participant: of the taps.
        signal: set by the taps.
        groups: the topics to capture.
        synchronization: learns which writers are connected.
        lifespans: learns the lifespans of writers.

    Attributes:
        neighbourhood: the endpoints in the domain.
        taps: the readers of captured topics.
        counters: `captured`, `unregistered` (not kept), `unrouted` (dropped), `refused_writers` (their QoS
            does not satisfy the tap's), `not_owner` (written by another writer than the exclusive owner).
    """

    def __init__(
        self,
        participant: NodeParticipant,
        signal: Signal,
        groups: KnownGroups,
        synchronization: Synchronization,
        lifespans: Lifespans,
    ) -> None:
        self._groups = groups
        self._synchronization = synchronization
        self._lifespans = lifespans
        self._owners = Owners()
        self._strengths: dict[bytes, int] = {}
        self._lost: list[bytes] = []
        self.taps = TapRegistry(participant, signal)
        self._positions = Positions()
        self._names: dict[bytes, tuple[tuple[bytes, str], ...]] = {}
        self._unrouted_samples = UnroutedSamples()
        self._news: collections.deque[str] = collections.deque(maxlen=MAX_NEWS)
        self.neighbourhood = Neighbourhood()
        self._refusals = Refusals()
        self._watch = MatchWatch(self.taps, self.neighbourhood)
        self.counters: collections.Counter[str] = collections.Counter()

    def discovered(self, batch: Sequence[Any]) -> DiscoveryChanges:
        """Take changes of discovery; the result names types that must be looked up."""
        changes = self.neighbourhood.take(batch)
        self.changed(changes)
        return changes

    def topics_seen(self, batch: Sequence[Any]) -> None:
        """Take changes of topic discovery."""
        self.changed(self.neighbourhood.topics_seen(batch))

    def resolved(self, reference: TypeRef, resolution: Resolution) -> None:
        """Take what the look-up of a type gave."""
        self.changed(self.neighbourhood.resolved(reference, resolution.type, resolution.reason))

    def changed(self, changes: DiscoveryChanges) -> None:
        """Open taps for new groups, and tell synchronization which writers came and went."""
        for description in changes.groups:
            if self._groups.covers(description.group.topic):
                self._synchronization.group_seen(description)
                self.taps.open(self._groups.get(group_id(description.group)) or description)
        offers = {offer.endpoint.guid: offer for offer in changes.offers}
        for writer, groups in changes.writers:
            if groups:
                self._writer_seen(offers[writer])
                self._watch.watch((offers[writer],))
            else:
                self._writer_gone(writer)
        for unkept in changes.unkept:
            if self._groups.covers(unkept.topic):
                self._not_kept(unkept)
        for kept in self.neighbourhood.unkept.take_kept():
            if self._groups.covers(kept.topic):
                said = f"writer {kept.writer} of topic {kept.topic!r} is kept from now on; it was not"
                self._news.append(f"{said}: {kept.text}")

    def _not_kept(self, unkept: Unkept) -> None:
        self.counters["unkept_writers"] += 1
        self._news.append(f"writer {unkept.writer} of topic {unkept.topic!r} is not kept: {unkept.text}")

    def _writer_seen(self, offer: Offer) -> None:
        if not self._groups.covers(offer.endpoint.topic):
            self._names[offer.endpoint.guid] = ()
            return
        writer, qos = offer.endpoint.guid, offer.endpoint.endpoint_qos
        ids = [group_id(group) for group in offer.groups]
        self._names[writer] = tuple((id_, writer_name(writer, id_)) for id_ in ids)
        if qos.lifespan_ns != abi.INFINITE_NS:
            self._lifespans.learn(writer, qos.lifespan_ns)
        if qos.exclusive:
            self._strengths[writer] = qos.strength
        if not self._is_refused(offer):
            for _, name in self._names[writer]:
                self._synchronization.replica.writer_matched(name)

    def _is_refused(self, offer: Offer) -> bool:
        """Whether a writer does not match its tap; then its samples are ignored, which is said once."""
        writer = offer.endpoint.guid
        if problem := self.taps.problem(offer.groups[0]):
            unkept = self.neighbourhood.refuse(offer, UnkeptReason.TYPE_UNKNOWN, problem)
            if unkept is not None:
                self._names[writer] = ()
                self._not_kept(unkept)
            return True
        policies = self.taps.refusals(offer.groups, offer.endpoint.endpoint_qos)
        if policies and self.neighbourhood.refuse(offer, UnkeptReason.QOS, ", ".join(policies)) is not None:
            self._writer_gone(writer)
            self._names[writer] = ()
            self.counters["refused_writers"] += len(offer.groups)
            self._news += (
                f"writer {writer.hex()} of topic {group.topic!r} in partition {group.partition!r} is not "
                f"captured: it and the built-in reader do not match, {', '.join(policies)}"
                for group in offer.groups
            )
        return bool(policies)

    def turn(self, now_s: float) -> list[str]:
        """Look at taps and adapt them to the known QoS of topics; return sentences for operators.

        Of many sentences the last are returned; `now_s` is monotonic.
        """
        for unkept in self._watch.turn(now_s):
            self._not_kept(unkept)
        for refusal, count in self._refusals.news(lambda writer: bool(self._names.get(writer))):
            self.counters["refused_samples"] += count
            if (news := self.neighbourhood.refused(refusal.writer, refusal.text)) is not None:
                self._not_kept(news)
        for description in self._groups.take_raised():
            self.taps.request(description)
        for topic, type_id in self.taps.take_raised():
            for offer in self.neighbourhood.offers(topic, type_id):
                self._is_refused(offer)
        for moved in self.taps.turn():
            self._news.append(
                f"topic {moved.topic!r} is {moved.requested.name}, which was not known before: another "
                f"built-in reader has taken the place of the one that requested {moved.before.name}"
            )
        found = list(self._news)
        self._news.clear()
        return found

    def _writer_gone(self, writer: bytes) -> None:
        if writer in self._strengths:
            self._lost.append(writer)  # it owns its instances until its samples have been taken
        for _, name in self._names.get(writer, ()):
            self._synchronization.replica.writer_lost(name)
            self._positions.unmatched(name)

    def drain(self) -> list[OriginalSample]:
        """Take the samples of all taps, in order for each writer."""
        found: list[OriginalSample] = []
        for tap in self.taps:
            drained = [*self._unrouted_samples.before(tap), *tap.drain(DRAIN)]
            taken = self.taps.once(tap, drained, self.neighbourhood.routes)
            self._watch.heard(taken)
            for captured in taken:
                self._take(tap, captured, found)
        self.counters["unrouted"] += self._unrouted_samples.drop_surplus()
        if self._lost and not self.taps.has_news():
            for writer in self._lost:
                self._owners.gone(writer)
            self._lost = []
        self.counters["captured"] += len(found)
        return found

    def _take(self, tap: Tap, captured: Sample, found: list[OriginalSample]) -> None:
        names = self._names.get(captured.writer)
        if names is None:
            if captured.writer not in self.neighbourhood.routes:
                self._unrouted_samples.wait(tap, (captured,))
            return
        if captured.status & WRITER_GONE:
            self._owners.gone(captured.writer)
            for _, name in names:
                self._positions.unmatched(name)
            return
        is_kept = captured.status & (DATA | DISPOSE)
        self.counters["unregistered"] += not is_kept
        for id_, name in names:
            instance = id_ + captured.key
            if is_kept and self._counts(instance, captured.writer):
                found.append(
                    self._positions.sample(
                        name, instance, captured.source_time_ns, captured.status, captured.payload
                    )
                )
            if captured.status & UNREGISTER:
                self._owners.unregistered(instance, captured.writer)

    def _counts(self, instance: bytes, writer: bytes) -> bool:
        """Whether a sample of this writer counts: yes unless another writer owns the instance."""
        strength = self._strengths.get(writer)
        if strength is None or self._owners.admits(instance, writer, strength):
            return True
        self.counters["not_owner"] += 1
        return False

    @property
    def rejected(self) -> int:
        """How often a full queue refused a sample, which DDS then sent again."""
        return sum(tap.rejected for tap in self.taps)
