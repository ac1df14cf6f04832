"""Where history and live samples become one: nothing twice, and each instance in order.

What a writer sends and what services send of it are the same sample when time, writer, status and bytes are
the same. Identities are remembered as long as a service may send the sample again: for the newest samples of
an instance, as many as its group keeps.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER
from ospltool.client.samples import InstanceState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.dataset.sample import Sample

MAX_REMEMBERED: Final = 10_000
"""Identities of an instance whose group keeps everything, or of which nothing is known."""
_MARGIN: Final = 16
_BEFORE_ALL_NS: Final = -(1 << 63)
_HASH_BYTES: Final = 16
NO_WRITER: Final = bytes(16)
"""The writer of a dispose that a merge policy made."""


class _Identity(NamedTuple):
    """Ordered as samples are; `body` covers status and bytes."""

    source_time_ns: int
    writer: bytes
    body: bytes


class Waiting(NamedTuple):
    """A sample that the application has not taken; ordered within its instance."""

    generation: int
    source_time_ns: int
    writer: bytes
    body: bytes
    sample: Sample
    is_historical: bool


@dataclasses.dataclass(slots=True)
class _Instance:
    seen: list[_Identity] = dataclasses.field(default_factory=list)
    waiting: list[Waiting] = dataclasses.field(default_factory=list)
    writers: set[bytes] = dataclasses.field(default_factory=set)
    generation: int = 0
    newest: _Identity | None = None
    is_disposed: bool = False
    is_trimmed: bool = False


@dataclasses.dataclass(slots=True)
class Counters:
    """What happened in a reader since it was made.

    Attributes:
        live, historical: samples put where the application takes them.
        repeated: samples that came again and were not given again.
        outdated: historical samples older than what their group keeps of an instance that has newer ones.
        pushed_out: samples that newer ones pushed out before the application took them (KEEP_LAST).
        undecodable: samples that are not of the reader's type.
        late: historical samples that came after newer ones had been taken.
        malformed: messages of services that are none.
        deliveries: history that a node gave to ordinary readers of this process, and that is not for us.
        missed: samples that persistence services could not keep for durable subscriptions of the groups read.
    """

    live: int = 0
    historical: int = 0
    repeated: int = 0
    outdated: int = 0
    pushed_out: int = 0
    undecodable: int = 0
    late: int = 0
    malformed: int = 0
    deliveries: int = 0
    missed: int = 0


class SampleCache:
    """The samples of one reader.

    Args:
        depth: samples of an instance that wait for the application, 0 for all (HISTORY of the reader).
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._instances: dict[bytes, _Instance] = {}
        self._pending: dict[bytes, None] = {}
        self._group_depth: int | None = None
        self._autodisposed: dict[bytes, None] = {}
        self.count = 0
        self.counters = Counters()

    def autodisposed(self, writer: bytes) -> None:
        """A writer is gone whose instances count as disposed then."""
        self._autodisposed[writer] = None
        if len(self._autodisposed) > MAX_REMEMBERED:
            del self._autodisposed[next(iter(self._autodisposed))]

    def group_depth(self, depth: int) -> None:
        """A group of the reader keeps so many samples of an instance, 0 for all; the deepest counts."""
        known = self._group_depth
        self._group_depth = 0 if 0 in (known, depth) else max(depth, known or 0)

    def add(self, sample: Sample, *, is_historical: bool, exact: bool = True, outdates: bool = True) -> bool:
        """Put a sample where it belongs; False when it is not new.

        Args:
            sample: what.
            is_historical: it came from a service.
            exact: the writer's GUID is the one that its live samples have.
            outdates: a historical sample before everything that is remembered of its instance is left out.
        """
        instance = self._instances.get(sample.key)
        if instance is None:
            instance = self._instances[sample.key] = _Instance()
        identity = _identity(sample)
        at = bisect.bisect_left(instance.seen, identity)
        if _is_known(instance.seen, at, identity, exact=exact):
            self.counters.repeated += 1
            return False
        if is_historical and outdates and instance.is_trimmed and at == 0:
            self.counters.outdated += 1
            return False
        is_newest = instance.newest is None or identity > instance.newest
        instance.seen.insert(at, identity)
        self._trim(instance)
        self._note(instance, sample, is_newest=is_newest)
        if is_newest:
            instance.newest = identity
        elif is_historical and not instance.waiting:
            self.counters.late += 1
        self._put(instance, sample, identity, is_historical=is_historical)
        return True

    def add_update(self, samples: list[Sample], *, exact: bool = True) -> None:
        """Put in what a service sends after the history: samples that were missing, or a merge.

        A merge policy that replaces or deletes sends disposes without a writer. They end an instance as it
        was; samples of it in the same update come after that, and decide what it is then.
        """
        replaced = {s.key for s in samples if s.writer == NO_WRITER and s.status == DISPOSE}
        for sample in samples:
            if sample.writer == NO_WRITER and sample.status == DISPOSE and sample.key in self._instances:
                instance = self._instances[sample.key]
                instance.generation += 1
                instance.is_disposed = True
                instance.newest = None
                first = _identity(sample)._replace(source_time_ns=_BEFORE_ALL_NS)
                self._put(instance, sample, first, is_historical=True)
        for sample in sorted(samples):
            if sample.writer == NO_WRITER and sample.status == DISPOSE:
                continue
            is_new = self.add(sample, is_historical=True, exact=exact)
            if not is_new and sample.key in replaced:  # known, and it is what the instance is now
                self._note(self._instances[sample.key], sample, is_newest=True)

    def _put(self, instance: _Instance, sample: Sample, identity: _Identity, *, is_historical: bool) -> None:
        item = Waiting(instance.generation, *identity, sample, is_historical)
        if not instance.waiting or instance.waiting[-1][:4] < item[:4]:
            instance.waiting.append(item)
        else:
            bisect.insort(instance.waiting, item, key=lambda one: one[:4])
        self._pending.setdefault(sample.key)
        self.count += 1
        if is_historical:
            self.counters.historical += 1
        else:
            self.counters.live += 1
        if self._depth:
            writes = [one for one in instance.waiting if one.sample.status & DATA]
            if len(writes) > self._depth:
                instance.waiting.remove(writes[0])
                self.count -= 1
                self.counters.pushed_out += 1

    def _trim(self, instance: _Instance) -> None:
        depth = self._group_depth
        bound = 3 * depth + _MARGIN if depth else MAX_REMEMBERED
        if len(instance.seen) > bound:
            del instance.seen[: len(instance.seen) - bound]
            instance.is_trimmed = True

    def _note(self, instance: _Instance, sample: Sample, *, is_newest: bool) -> None:
        """Who writes the instance, and whether it is disposed."""
        if sample.status & UNREGISTER:
            instance.writers.discard(sample.writer)
        else:
            instance.writers.add(sample.writer)
        if is_newest and sample.status != UNREGISTER:
            instance.is_disposed = bool(sample.status & DISPOSE)

    def take(self, limit: int, alive: Iterable[bytes]) -> list[tuple[Waiting, InstanceState]]:
        """Take up to `limit` samples, instance by instance, each in order.

        Args:
            limit: how many at most.
            alive: GUIDs of the writers that are matched now.
        """
        return self._look(limit, frozenset(alive), remove=True)

    def read(self, limit: int, alive: Iterable[bytes]) -> list[tuple[Waiting, InstanceState]]:
        """As `take`, but the samples stay."""
        return self._look(limit, frozenset(alive), remove=False)

    def _look(
        self, limit: int, alive: frozenset[bytes], *, remove: bool
    ) -> list[tuple[Waiting, InstanceState]]:
        found: list[tuple[Waiting, InstanceState]] = []
        for key in list(self._pending):
            instance = self._instances[key]
            part = instance.waiting[: limit - len(found)]
            state = self._state(instance, alive)
            found += [(item, state) for item in part]
            if remove:
                del instance.waiting[: len(part)]
                self.count -= len(part)
                if not instance.waiting:
                    del self._pending[key]
            if len(found) == limit:
                break
        return found

    def state_of(self, key: bytes, alive: Iterable[bytes]) -> InstanceState | None:
        """The state of an instance, None for one never heard of."""
        instance = self._instances.get(key)
        return self._state(instance, frozenset(alive)) if instance else None

    def _state(self, instance: _Instance, alive: frozenset[bytes]) -> InstanceState:
        if instance.is_disposed:
            return InstanceState.NOT_ALIVE_DISPOSED
        if instance.writers & alive:
            return InstanceState.ALIVE
        if instance.writers & self._autodisposed.keys():
            return InstanceState.NOT_ALIVE_DISPOSED
        return InstanceState.NOT_ALIVE_NO_WRITERS


def _identity(sample: Sample) -> _Identity:
    digest = hashlib.blake2b(sample.payload, digest_size=_HASH_BYTES).digest()
    return _Identity(sample.source_time_ns, sample.writer, bytes((sample.status,)) + digest)


def _is_known(seen: list[_Identity], at: int, identity: _Identity, *, exact: bool) -> bool:
    if at < len(seen) and seen[at] == identity:
        return True
    if exact:
        return False
    start = bisect.bisect_left(seen, (identity.source_time_ns, b"", b""))
    same_time = (one for one in seen[start:] if one.source_time_ns == identity.source_time_ns)
    return any(one.body == identity.body for one in same_time)
