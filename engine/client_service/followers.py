"""Requests of clients that a service remembers: those that wait, and readers that get updates after a set.

Such a reader gets, as further parts of the same answer, the samples captured while it was being matched and
those that merges bring. It may request everything again; until that answer it still gets the merges, because
the disposes of a merge are not part of any set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from engine.core.lazy_dataclass import lazy_dataclass
from engine.core.purging import FOREVER_NS
from engine.core.settings import PendingWriter
from engine.dds.cdr import Malformed
from engine.dds.client_protocol.messages import HistoryRequest, StateRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from engine.client_service.answers import Answers, ClientView, Groups
    from engine.client_service.storage import StorageQuestion
    from engine.dataset.groups import GroupDescription
    from engine.dataset.sample_rows import SampleRows
    from engine.dds.client_protocol.messages import HistoryRequest
    from engine.runtime.name_space_data import Difference
    from engine.runtime.runtime import Runtime

    Samples: TypeAlias = Sequence[tuple[GroupDescription, SampleRows]]

MAX_WAIT_S: Final = 86_400.0
"""Limit for the time in which tombstones wait for a durable writer that is silent."""
MAX_ID: Final = 64
"""Limit for the digits of a durable writer's identity."""
MAX_NAMES: Final = 4_096
"""Limit for the characters of its topic and partitions together."""

Way = tuple[bytes, str, tuple[str, ...], tuple[str, ...]]
"""Identity of a client's reader: a repeated request for the same comes from the same reader."""


def way_of(request: HistoryRequest) -> Way:
    """Return the identity of the reader that sent a request."""
    return request.request.client, request.topic, request.partitions, request.alignment_partitions


@lazy_dataclass(slots=True)
class HeldRequest:
    """A request for history that waits for complete sets or its deadline."""

    client: bytes
    deadline_s: float
    request: HistoryRequest


@lazy_dataclass(slots=True)
class Question:
    """A state request that waits for its samples or its deadline."""

    client: bytes
    deadline_s: float
    request: StateRequest
    storage: StorageQuestion


@lazy_dataclass(slots=True)
class HeldDeletion:
    """A deletion that this node has carried out in memory, and that waits for the disk or its deadline."""

    client: bytes
    deadline_s: float
    request: StateRequest
    until_ns: int
    """Source time up to which it deletes."""
    slow: str
    """Node whose clock bounds it; empty if none does."""
    barrier: int | None = None
    """Number of changes that the disk must have carried out; None until the deletion has been queued."""


def parse_pending(request: StateRequest, values: Any) -> PendingWriter:
    """Read what a durable writer tells of itself; `since_ns` is -1 if it has nothing to hand over any more.

    Args:
        request: the request, with its topic and partitions.
        values: our addition to it.

    Raises:
        Malformed: the addition is damaged, or the names are too long.
    """
    try:
        writer, since_ns = bytes.fromhex(values["id"]).hex(), values["since_ns"]
        wait_s = min(MAX_WAIT_S, float(values["wait_s"]))
    except (TypeError, KeyError, ValueError, OverflowError):
        raise Malformed("our addition does not say what is pending") from None
    size = len(request.topic) + sum(map(len, request.partitions))
    if not isinstance(since_ns, int | None) or not 0 < len(writer) <= MAX_ID or size > MAX_NAMES:
        raise Malformed("our addition does not say what is pending")
    since_ns = -1 if since_ns is None else max(0, min(since_ns, FOREVER_NS))
    return PendingWriter(writer, request.topic, request.partitions, since_ns, wait_s)


TAIL_S: Final = 1.0
"""Time after a set at which a reader gets samples captured meanwhile; all writers have matched it by then."""


@lazy_dataclass(slots=True)
class _Follower:
    """A reader with its client and its last request.

    `given` has the digests of the samples that it got of a name-space, until `tail_s`: then it gets the
    samples that came into the set meanwhile.
    """

    client: bytes
    request: HistoryRequest
    name_spaces: frozenset[str]
    given: dict[str, set[bytes]]
    tail_s: float


class Followers:
    """All readers that get updates.

    Args:
        runtime: the node's.
        view: the node's data.
        answers: turns requests into interests.
        send: sends samples to a client as an update of the answer to a request.
    """

    def __init__(
        self,
        runtime: Runtime,
        view: ClientView,
        answers: Answers,
        send: Callable[[bytes, HistoryRequest, Groups], None],
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.shared.clock
        self._view = view
        self._interest = answers.interest
        self._send = send
        self._all: dict[Way, _Follower] = {}

    @property
    def partitions(self) -> set[tuple[str, ...]]:
        """Partitions of their answers."""
        return {one.request.alignment_partitions for one in self._all.values()}

    def name_spaces(self, request: HistoryRequest) -> frozenset[str]:
        """Return the name-spaces of a reader's updates, even if another node is their master now."""
        known = self._all.get(way_of(request))
        return known.name_spaces if known else frozenset()

    def begin(self, client: bytes, request: HistoryRequest, sets: Mapping[str, Samples]) -> None:
        """Begin updates for a reader that is about to get these sets, by name-space.

        Its `client` is the sender of the request.
        """
        given = {name: _digests(samples for _, samples in groups) for name, groups in sets.items()}
        names = self.name_spaces(request).union(given)
        tail_s = self._clock.monotonic() + TAIL_S
        self._all[way_of(request)] = _Follower(client, request, names, given, tail_s)

    def ask_again(self, request: HistoryRequest) -> None:
        """Note that a reader requests everything again."""
        known = self._all.get(way_of(request))
        if known is not None:
            known.request = request

    def end(self, request: HistoryRequest) -> None:
        """End the updates for a reader."""
        self._all.pop(way_of(request), None)

    def failed(self, request: HistoryRequest) -> None:
        """End the updates for a reader that a message did not reach: it must request everything again."""
        known = self._all.get(way_of(request))
        if known is not None and known.request.request == request.request:
            self.end(request)

    def gone(self, client: bytes) -> None:
        """Forget a client with all its readers."""
        self._all = {way: one for way, one in self._all.items() if one.client != client}

    def work(self, now: float) -> list[float]:
        """Send what is due; return the times of later updates."""
        for follower in self._all.values():
            if follower.given and now >= follower.tail_s:
                self._send_tail(follower)
        return [follower.tail_s for follower in self._all.values() if follower.given]

    def difference(self, name_space: str, difference: Difference) -> None:
        """Send the result of a merge to the readers that have the set."""
        for follower in self._all.values():
            if name_space not in follower.name_spaces:
                continue
            interest = self._interest(follower.request)
            groups = [
                (self._runtime.descriptions[group], samples)
                for group, samples in sorted(difference.items(), key=lambda item: item[0])
                if interest.wants(group)
            ]
            if groups:
                self._send(follower.client, follower.request, groups)

    def replaced(self, name_space: str, told: Difference) -> None:
        """Send the changes after a set was replaced; samples captured meanwhile follow."""
        followers = [each for each in self._all.values() if name_space in each.name_spaces]
        if not followers:
            return
        self.difference(name_space, told)
        working = self._runtime.spaces[name_space].working
        given = _digests(group_set.samples() for group_set in working.groups.values())
        for follower in followers:
            follower.given[name_space] = given
            follower.tail_s = self._clock.monotonic() + TAIL_S

    def _send_tail(self, follower: _Follower) -> None:
        """Send the samples that came into the set since it was sent."""
        interest = self._interest(follower.request)
        groups = []
        for state in self._view.name_spaces(interest):
            if state.name not in follower.given:
                continue
            given = follower.given[state.name]
            for description, samples in self._view.groups([state], interest):
                new = [sample for sample in samples if sample.digest not in given]
                if new:
                    groups.append((description, new))
        follower.given = {}
        if groups:
            self._send(follower.client, follower.request, groups)


def _digests(sets: Iterable[SampleRows]) -> set[bytes]:
    return {digest for samples in sets for digest in samples.each_digest()}
