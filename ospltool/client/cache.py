"""Where history and live samples become one: every instance by the specified model, and nothing twice.

What a sample does to its instance is decided in `engine.dataset.instance`. This module knows what came
already, which writers live, and what the limits of the whole reader allow.

What a writer sends and what services send of it are the same sample when time, writer, status and bytes are
the same. Identities are remembered as long as a service may send the sample again: for the newest samples of
an instance, as many as its group keeps.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import hashlib
import itertools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from engine.dataset.history import retained
from engine.dataset.instance import REMEMBERED, Arrival, Entry, Instance, Origin
from engine.dataset.instance_states import InstanceState, ViewState
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, is_end
from ospltool.client.presence import Presence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Set

    from engine.dataset.sample import Sample

MAX_REMEMBERED: Final = 10_000
"""Identities of an instance whose group keeps everything, or of which nothing is known."""
_MARGIN: Final = 16
_HASH_BYTES: Final = 16


class _Identity(NamedTuple):
    """Ordered as samples are; `body` covers status and bytes."""

    source_time_ns: int
    writer: bytes
    body: bytes


class Look(NamedTuple):
    """An entry of an instance as the application sees it, with what DDS tells of it (DDS 1.4, 2.2.2.5.1).

    `state` is None where nobody can tell. The ranks are those among the entries that are looked at.
    """

    entry: Entry
    key: bytes
    state: InstanceState | None
    view: ViewState
    sample_rank: int
    generation_rank: int
    absolute_generation_rank: int


@dataclasses.dataclass(slots=True)
class _Known:
    """An instance, and what services may send of it again or must be shown again.

    What a merge took back may come again, and is `withdrawn` until then.
    """

    instance: Instance
    seen: list[_Identity] = dataclasses.field(default_factory=list)
    newest: list[Sample] = dataclasses.field(default_factory=list)
    withdrawn: set[_Identity] = dataclasses.field(default_factory=set)
    is_trimmed: bool = False
    is_inexact: bool = False


@dataclasses.dataclass(slots=True)
class Counters:
    """What happened in a reader since it was made."""

    live: int = 0
    historical: int = 0
    again: int = 0
    """Samples shown again, because their writer came back or a merge policy replaced the set."""
    repeated: int = 0
    """Samples that came again and were not given again."""
    outdated: int = 0
    """Historical samples older than what their group keeps of an instance that has newer ones."""
    pushed_out: int = 0
    """Samples that newer ones pushed out before the application took them (KEEP_LAST)."""
    lost_older_than_taken: int = 0
    """Samples older than one of their instance that the application had taken."""
    lost_depth: int = 0
    """Samples older than all that HISTORY depth keeps."""
    lost_limits: int = 0
    """Samples older than the newest of their instance, for which RESOURCE_LIMITS had no room."""
    rejected: int = 0
    """Samples for which RESOURCE_LIMITS had no room; they come when the application takes."""
    undecodable: int = 0
    """Samples that are not of the reader's type."""
    malformed: int = 0
    """Messages of services that are none."""
    deliveries: int = 0
    """History that a node gave to ordinary readers of this process, and that is not for us."""
    missed: int = 0
    """Samples that persistence services could not keep for durable subscriptions of the groups read."""


_LOST: Final = {
    Arrival.LOST_CONSUMED: "lost_older_than_taken",
    Arrival.LOST_DEPTH: "lost_depth",
    Arrival.LOST_RESOURCES: "lost_limits",
}


class ResourceLimits(NamedTuple):
    """RESOURCE_LIMITS of a reader, 0 for none. `max_instances` bounds the instances of which samples wait."""

    max_samples: int = 0
    max_instances: int = 0
    max_samples_per_instance: int = 0


class SampleCache:
    """The samples of one reader.

    Args:
        depth: samples of an instance that wait for the application, 0 for all (HISTORY of the reader).
        limits: what may wait in all; what finds no room is kept back until the application takes.
        shows_all: every sample is shown once, also one that is older than what was taken, and nothing else
            (a durable subscription).

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
        self.writers = Presence()
        self.count = 0
        self.counters = Counters()

    @property
    def is_full(self) -> bool:
        """Whether something waits for room under RESOURCE_LIMITS."""
        return bool(self._kept_back)

    def group_depth(self, depth: int) -> None:
        """A group of the reader keeps so many samples of an instance, 0 for all; the deepest counts."""
        known = self._group_depth
        self._group_depth = 0 if 0 in (known, depth) else max(depth, known or 0)

    # What arrives.

    def add(
        self, samples: Iterable[Sample], *, is_historical: bool, exact: bool = True, outdates: bool = True
    ) -> int:
        """Put samples where they belong; returns how many are new.

        Of writers that do not live, all of them are put in before the instance counts as left.

        Args:
            samples: what.
            is_historical: it came from a service.
            exact: the writers' GUIDs are those that their live samples have.
            outdates: a historical sample before everything that is remembered of its instance is left out.
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
        """Put in what a service sends after the history: samples that were missing, or a merge.

        A merge policy that replaces or deletes sends disposes without a writer, or unregistrations where an
        instance goes on as another one. They end an instance as it was; samples of it in the same update are
        all that it is from then on, and are shown behind that.
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
        """What was known of an instance counts no longer, and may come again as something new.

        An instance that is disposed shows all that it is now. One that goes on shows what is new in it, or
        the last of it.
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
        """Whether a sample comes for the first time; it is remembered from now on."""
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
            if exact and twin.writer != sample.writer:  # now we know who that is
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
        """Identities of an instance that are remembered."""
        return 3 * self._group_depth + _MARGIN if self._group_depth else MAX_REMEMBERED

    def _origin(self, sample: Sample, origin: Origin) -> Origin:
        """Where a new sample comes from: one that a merge took back, and that holds after all, was shown."""
        withdrawn = self._instances[sample.key].withdrawn
        if not withdrawn or _identity(sample) not in withdrawn:
            return origin
        withdrawn.remove(_identity(sample))
        self.counters.again += 1
        return Origin.AGAIN

    def _offer(self, sample: Sample, origin: Origin, *, is_last: bool = True) -> Arrival:
        """Give a sample to its instance, and count what becomes of it."""
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
        """Whether limits of the whole reader allow one more; at full depth it takes another's place."""
        limits = self._limits
        if limits.max_samples and self.count >= limits.max_samples and not 0 < self._depth <= held:
            return False
        is_first = not instance.held
        return not (limits.max_instances and is_first and len(self._pending) >= limits.max_instances)

    def _remember(self, known: _Known, sample: Sample) -> None:
        """Keep what is shown again when a writer comes back: as much as a service would."""
        at = bisect.bisect_left(known.newest, sample)
        if known.newest[at : at + 1] != [sample]:
            known.newest.insert(at, sample)
        if len(known.newest) > 2 * self._shown_again:
            known.newest = retained(known.newest, self._shown_again)[-2 * self._shown_again :]

    @property
    def _shown_again(self) -> int:
        """How many samples of an instance are shown again; what no service tells is 1, as its default is."""
        return {None: 1, 0: REMEMBERED}.get(self._group_depth, self._group_depth or 0)

    def _change(self, key: bytes, action: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Do something to an instance, and know how much waits of it then."""
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
        """A writer lives, perhaps again: what was concluded from its absence ends."""
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
        """A writer is gone: it counts as having unregistered its instances, or disposed them."""
        for name, keys in self.writers.lost(writer, autodispose=autodispose):
            for key in keys:
                lose = self._instances[key].instance.writer_lost
                self._change(key, lose, name, time_ns, autodispose=self.writers.autodispose(name))

    def _settle(self, samples: Iterable[Sample]) -> None:
        """Writers of samples that do not live are lost to those instances."""
        for sample in samples:
            if not self.writers.is_living(sample.writer):
                lose = self._instances[sample.key].instance.writer_lost
                autodispose = self.writers.autodispose(sample.writer)
                self._change(sample.key, lose, sample.writer, sample.source_time_ns, autodispose=autodispose)

    # What the application does.

    def take(self, limit: int) -> list[Look]:
        """Take up to `limit` entries, instance by instance, each in order."""
        found = self._look(limit, removes=True)
        if self._kept_back:
            self._retry({look.key for look in found})
        return found

    def read(self, limit: int) -> list[Look]:
        """As `take`, but they stay."""
        return self._look(limit, removes=False)

    def _look(self, limit: int, *, removes: bool) -> list[Look]:
        found: list[Look] = []
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
                shown = shown[:-1]  # the state of the sample before it tells as much
            last = shown[-1].generation
            found += [
                Look(
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
        """There may be room again for what was kept back."""
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
        """The state of an instance, None for one never heard of, and where nobody can tell."""
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
    """The same sample, where it is known already; by another writer's name, where names are not exact."""
    if at < len(seen) and seen[at] == identity:
        return seen[at]
    if exact:
        return None
    start = bisect.bisect_left(seen, (identity.source_time_ns, b"", b""))
    same_time = itertools.takewhile(
        lambda one: one.source_time_ns == identity.source_time_ns, itertools.islice(seen, start, None)
    )
    return next((one for one in same_time if one.body == identity.body), None)
