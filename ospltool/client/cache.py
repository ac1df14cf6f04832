"""Merges history and live samples of a reader: every instance by the DDS model, and no sample twice.

`engine.dataset.instance` decides the effect of a sample on its instance. This module knows the samples that
came before, the living writers, and the limits of the whole reader.

A live sample and one from a service are the same if time, writer, status and bytes are equal. Identities are
remembered while a service may send the sample again: for the newest samples of an instance, as many as its
group keeps.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import hashlib
import itertools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from engine.dataset.instance import REMEMBERED, Arrival, Instance, Origin, ReaderEntry
from engine.dataset.instance_states import InstanceState, ViewState
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, is_end, retained
from ospltool.client.presence import WriterPresence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Set

    from engine.dataset.sample import Sample

# Chosen: a repetition comes within far fewer samples of an instance. Some hundred kilobytes for each.
MAX_REMEMBERED: Final = 10_000
"""Identities remembered for an instance whose group keeps everything or is unknown."""
# Samples of two writers may arrive in another order than by time; chosen.
_MARGIN: Final = 16
# As digests of samples (`engine.dataset.sample.DIGEST_BYTES`).
_HASH_BYTES: Final = 16


class _Identity(NamedTuple):
    """Identity of a sample, ordered like samples; `body` covers status and bytes."""

    source_time_ns: int
    writer: bytes
    body: bytes


class CacheEntry(NamedTuple):
    """An entry of an instance with its sample info (DDS 1.4, 2.2.2.5.1).

    `state` is None if it is unknown. The ranks are among the entries read or taken together.
    """

    entry: ReaderEntry
    key: bytes
    state: InstanceState | None
    view: ViewState
    sample_rank: int
    generation_rank: int
    absolute_generation_rank: int


@dataclasses.dataclass(slots=True)
class _Known:
    """An instance, with samples that services may send again or that must be shown again.

    Samples that a merge took back may come again, and are `withdrawn` until then.
    """

    instance: Instance
    seen: list[_Identity] = dataclasses.field(default_factory=list)
    newest: list[Sample] = dataclasses.field(default_factory=list)
    withdrawn: set[_Identity] = dataclasses.field(default_factory=set)
    is_trimmed: bool = False
    is_inexact: bool = False


@dataclasses.dataclass(slots=True)
class Counters:
    """Counts of samples in a reader since it was made."""

    live: int = 0
    """Samples from writers, put where the application takes them."""
    historical: int = 0
    """Samples from services, put where the application takes them."""
    again: int = 0
    """Samples shown again, because their writer came back or a merge policy replaced the set."""
    repeated: int = 0
    """Samples that came again and were not shown again."""
    outdated: int = 0
    """Historical samples older than those that their group keeps of an instance."""
    pushed_out: int = 0
    """Samples that newer ones replaced before the application took them (KEEP_LAST)."""
    lost_older_than_taken: int = 0
    """Samples older than one of their instance that the application had taken."""
    lost_depth: int = 0
    """Samples older than those that HISTORY depth keeps."""
    lost_limits: int = 0
    """Samples that are not the newest of their instance and exceeded RESOURCE_LIMITS."""
    rejected: int = 0
    """Samples that exceeded RESOURCE_LIMITS; they come after the application takes others."""
    undecodable: int = 0
    """Samples that are not of the reader's type."""
    malformed: int = 0
    """Malformed messages of services."""
    deliveries: int = 0
    """Samples that a node delivered to ordinary readers of this process."""
    missed: int = 0
    """Samples that persistence services could not keep for durable subscriptions of the groups read."""


_LOST: Final = {
    Arrival.LOST_CONSUMED: "lost_older_than_taken",
    Arrival.LOST_DEPTH: "lost_depth",
    Arrival.LOST_RESOURCES: "lost_limits",
}


class ResourceLimits(NamedTuple):
    """RESOURCE_LIMITS of a reader, 0 for no limit. `max_instances` counts instances with waiting samples."""

    max_samples: int = 0
    max_instances: int = 0
    max_samples_per_instance: int = 0


class SampleCache:
    """The samples of one reader.

    Args:
        depth: most waiting samples of an instance, 0 for all (HISTORY of the reader).
        limits: bounds of all waiting samples; others are kept back until the application takes.
        shows_all: show every sample once, also one older than taken ones, and nothing else (a durable
            subscription).

    Attributes:
        count: samples that wait for the application.
    """

    def __init__(self, depth: int, limits: ResourceLimits | None = None, *, shows_all: bool = False) -> None:
        self._depth = depth
        self._limits = limits or ResourceLimits()
        self._shows_all = shows_all
        self._instances: dict[bytes, _Known] = {}
        self._pending: dict[bytes, None] = {}
        self._kept_back: dict[bytes, list[tuple[Sample, Origin]]] = {}
        self._group_depth: int | None = None
        self._fates: collections.Counter[Arrival] = collections.Counter()
        self.writers = WriterPresence()
        self.count = 0
        self.counters = Counters()

    @property
    def is_full(self) -> bool:
        """Whether samples wait for room under RESOURCE_LIMITS."""
        return bool(self._kept_back)

    def group_depth(self, depth: int) -> None:
        """Note how many samples of an instance a group keeps, 0 for all; the deepest group counts."""
        known = self._group_depth
        self._group_depth = 0 if 0 in (known, depth) else max(depth, known or 0)

    # What arrives.

    def add(
        self, samples: Iterable[Sample], *, is_historical: bool, exact: bool = True, outdates: bool = True
    ) -> int:
        """Add samples to their instances; return how many are new.

        All samples of writers that do not live are added before the instance loses those writers.

        Args:
            samples: samples of any instances.
            is_historical: the samples came from a service.
            exact: the writers' GUIDs equal those of their live samples.
            outdates: leave out historical samples older than all remembered ones of their instance.
        """
        origin = Origin.STORED if is_historical else Origin.FACT
        new = [one for one in samples if self._is_new(one, origin, exact=exact, outdates=outdates)]
        last = {one.key: at for at, one in enumerate(new)}
        for at, sample in enumerate(new):
            fate = self._offer(sample, self._origin(sample, origin), is_last=at == last[sample.key])
            self.counters.rejected += fate is Arrival.REJECTED
        self._settle(new)
        return len(new)

    def add_update(self, samples: Sequence[Sample], *, exact: bool = True) -> None:
        """Add samples that a service sends after the history: missing ones, or the result of a merge.

        A merge policy that replaces or deletes sends disposes without a writer, or unregistrations where an
        instance continues with other samples. These end the former instance; its samples in the same update
        are its whole content from then on, and are shown after the end.
        """
        ends = {one.key: one for one in samples if is_end(one)}
        rest: dict[bytes, list[Sample]] = {}
        for sample in sorted(samples):
            if not is_end(sample):
                rest.setdefault(sample.key, []).append(sample)
        for key in ends.keys() & self._instances.keys():
            self._replace(ends[key], rest.pop(key, []), exact=exact)
        self.add([one for some in rest.values() for one in some], is_historical=True, exact=exact)

    def _replace(self, end: Sample, now: list[Sample], *, exact: bool) -> None:
        """Replace the content of an instance; its former samples may come again as new ones.

        A disposed instance shows its whole new content. One that continues shows its new samples, or its last
        one.
        """
        known = self._instances[end.key]
        new = [one for one in now if self._is_new(one, Origin.STORED, exact=exact, outdates=False)]
        last = next((at for at in reversed(range(len(now))) if now[at].status != UNREGISTER), 0)
        shown = now if end.status & DISPOSE else new or now[last:]
        before, known.seen = known.seen, sorted(map(_identity, now))
        taken_back = {*before, *known.withdrawn}.difference(known.seen)
        known.withdrawn = set(sorted(taken_back)[-self._most_remembered :])
        for sample in now:
            self.writers.writes(sample.writer, end.key)
        self._kept_back.pop(end.key, None)
        self._change(end.key, known.instance.replaced, end, shown)
        known.newest = sorted(set(now))
        self.counters.again += len(set(shown))
        self._settle(now)

    def _is_new(self, sample: Sample, origin: Origin, *, exact: bool, outdates: bool) -> bool:
        """Return whether a sample comes for the first time, and remember it."""
        known = self._instances.get(sample.key)
        if known is None:
            each = self._limits.max_samples_per_instance
            instance = Instance(self._depth, each, self._fates, shows_all=self._shows_all)
            known = self._instances[sample.key] = _Known(instance)
        identity = _identity(sample)
        at = bisect.bisect_left(known.seen, identity)
        twin = _twin(known.seen, at, identity, exact=exact and not known.is_inexact)
        if twin is not None:
            self.counters.repeated += 1
            if exact and twin.writer != sample.writer:  # now the GUID is known
                known.instance.renamed(twin.writer, sample.writer)
                self.writers.writes(sample.writer, sample.key)
            return False
        if origin is Origin.STORED and outdates and known.is_trimmed and at == 0:
            self.counters.outdated += 1
            return False
        if not exact:
            known.is_inexact = True
            self.writers.learn_inexact(sample.writer)
        known.seen.insert(at, identity)
        if len(known.seen) > self._most_remembered:
            del known.seen[: len(known.seen) - self._most_remembered]
            known.is_trimmed = True
        return True

    @property
    def _most_remembered(self) -> int:
        """Most remembered identities of an instance."""
        return 3 * self._group_depth + _MARGIN if self._group_depth else MAX_REMEMBERED

    def _origin(self, sample: Sample, origin: Origin) -> Origin:
        """Return the origin of a new sample: AGAIN for one that a merge had taken back."""
        withdrawn = self._instances[sample.key].withdrawn
        if not withdrawn or _identity(sample) not in withdrawn:
            return origin
        withdrawn.remove(_identity(sample))
        self.counters.again += 1
        return Origin.AGAIN

    def _offer(self, sample: Sample, origin: Origin, *, is_last: bool = True) -> Arrival:
        """Offer a sample to its instance, and count the result."""
        known = self._instances[sample.key]
        instance = known.instance
        held = instance.samples if self._depth else 0
        has_room = self._has_room(instance, held)
        fate: Arrival = self._change(
            sample.key, instance.apply, sample, origin, has_room=has_room, is_last=is_last
        )
        if fate is Arrival.REJECTED:
            bisect.insort(self._kept_back.setdefault(sample.key, []), (sample, origin))
        elif fate in _LOST:
            setattr(self.counters, _LOST[fate], getattr(self.counters, _LOST[fate]) + 1)
        elif fate is not Arrival.DUPLICATE:
            self.counters.historical += origin is Origin.STORED
            self.counters.live += origin is Origin.FACT
            if self._depth and sample.status & DATA:
                self.counters.pushed_out += held + 1 - instance.samples
        if sample.status & (DATA | DISPOSE):
            self._remember(known, sample)
        self.writers.writes(sample.writer, sample.key)
        return fate

    def _has_room(self, instance: Instance, held: int) -> bool:
        """Return whether the reader's limits allow one more sample; at full depth it replaces another one."""
        limits = self._limits
        if limits.max_samples and self.count >= limits.max_samples and not 0 < self._depth <= held:
            return False
        is_first = not instance.held
        return not (limits.max_instances and is_first and len(self._pending) >= limits.max_instances)

    def _remember(self, known: _Known, sample: Sample) -> None:
        """Keep the samples to show again when a writer comes back: as many as a service keeps."""
        at = bisect.bisect_left(known.newest, sample)
        if known.newest[at : at + 1] != [sample]:
            known.newest.insert(at, sample)
        if len(known.newest) > 2 * self._shown_again:
            known.newest = retained(known.newest, self._shown_again)[-2 * self._shown_again :]

    @property
    def _shown_again(self) -> int:
        """Number of samples of an instance that are shown again; 1, the default, if no service tells."""
        return {None: 1, 0: REMEMBERED}.get(self._group_depth, self._group_depth or 0)

    def _change(self, key: bytes, action: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call an action on an instance, and update the counts of waiting samples."""
        instance = self._instances[key].instance
        before = instance.held
        result = action(*args, **named)
        self.count += instance.held - before
        if instance.held:
            self._pending.setdefault(key)
        else:
            self._pending.pop(key, None)
        return result

    # Who writes.

    def found(self, writer: bytes) -> None:
        """Note that a writer lives, perhaps again, and revoke the effects of its absence."""
        for name, keys in self.writers.found(writer):
            for key in keys:
                known = self._instances[key]
                if known.instance.misses(name):
                    again: list[Sample] = []
                    if known.instance.is_reverted_by(name) and not self._shows_all:
                        again = retained(known.newest, self._shown_again)
                    self._change(key, known.instance.writer_returned, name, again)
                    self.counters.again += len(again)

    def lost(self, writer: bytes, time_ns: int, *, autodispose: bool) -> None:
        """Note that a writer is gone, which unregisters or disposes its instances.

        `autodispose` is whether it disposes them.
        """
        for name, keys in self.writers.lost(writer, autodispose=autodispose):
            for key in keys:
                lose = self._instances[key].instance.writer_lost
                self._change(key, lose, name, time_ns, autodispose=self.writers.autodispose(name))

    def _settle(self, samples: Iterable[Sample]) -> None:
        """Remove writers that do not live from the instances of these samples."""
        for sample in samples:
            if not self.writers.is_living(sample.writer):
                lose = self._instances[sample.key].instance.writer_lost
                autodispose = self.writers.autodispose(sample.writer)
                self._change(sample.key, lose, sample.writer, sample.source_time_ns, autodispose=autodispose)

    # What the application does.

    def take(self, limit: int) -> list[CacheEntry]:
        """Take up to `limit` entries, instance by instance, each in order."""
        found = self._look(limit, removes=True)
        if self._kept_back:
            self._retry({look.key for look in found})
        return found

    def read(self, limit: int) -> list[CacheEntry]:
        """Return entries like `take`, but keep them."""
        return self._look(limit, removes=False)

    def _look(self, limit: int, *, removes: bool) -> list[CacheEntry]:
        found: list[CacheEntry] = []
        for key in list(itertools.islice(self._pending, max(0, limit))):
            if len(found) == limit:
                break
            instance = self._instances[key].instance
            view, state = instance.view, self._state(instance)
            count = min(limit - len(found), instance.held)
            count += instance.ends_derived_after(count)
            is_whole = count == instance.held
            shown = self._change(key, instance.take if removes else instance.read, count)
            if is_whole and len(shown) > 1 and shown[-1].origin is Origin.DERIVED:
                shown = shown[:-1]  # the state of the sample before it says the same
            last = shown[-1].generation
            found += [
                CacheEntry(
                    entry,
                    key,
                    state,
                    view,
                    len(shown) - 1 - at,
                    last - entry.generation,
                    instance.generation - entry.generation,
                )
                for at, entry in enumerate(shown)
            ]
        return found

    def _retry(self, keys: Set[bytes]) -> None:
        """Offer samples that were kept back again, since there may be room."""
        is_bounded = self._limits.max_samples or self._limits.max_instances
        for key in list(self._kept_back) if is_bounded else keys & self._kept_back.keys():
            waiting = self._kept_back.pop(key)
            done: list[Sample] = []
            for sample, origin in waiting:
                if key in self._kept_back:
                    self._kept_back[key].append((sample, origin))
                elif self._offer(sample, origin) is not Arrival.REJECTED:
                    done.append(sample)
            self._settle(done)
            if self._limits.max_samples and self.count >= self._limits.max_samples:
                return

    def state_of(self, key: bytes) -> InstanceState | None:
        """Return the state of an instance; None if the instance or the state is unknown."""
        known = self._instances.get(key)
        return self._state(known.instance) if known else None

    def _state(self, instance: Instance) -> InstanceState | None:
        if instance.state is InstanceState.ALIVE and all(map(self.writers.is_inexact, instance.writers)):
            return None
        return None if instance.state is InstanceState.NONE else instance.state


def _identity(sample: Sample) -> _Identity:
    digest = hashlib.blake2b(sample.payload, digest_size=_HASH_BYTES).digest()
    return _Identity(sample.source_time_ns, sample.writer, bytes((sample.status,)) + digest)


def _twin(seen: list[_Identity], at: int, identity: _Identity, *, exact: bool) -> _Identity | None:
    """Return the identity of the same sample if it is known, under another writer's name if not `exact`."""
    if at < len(seen) and seen[at] == identity:
        return seen[at]
    if exact:
        return None
    start = bisect.bisect_left(seen, (identity.source_time_ns, b"", b""))
    same_time = itertools.takewhile(
        lambda one: one.source_time_ns == identity.source_time_ns, itertools.islice(seen, start, None)
    )
    return next((one for one in same_time if one.body == identity.body), None)
