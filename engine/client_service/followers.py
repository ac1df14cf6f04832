"""Readers of clients that are kept up to date, after a node has given them the set.

A reader gets, as further parts of the same answer, what was captured while it was being matched and what
merges bring. It may ask for everything once more: it is then told of merges as before until it has its
answer, because what a merge takes back is no part of any set.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from engine.client_service.asking import Way, way_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from engine.client_service.answers import Answers, Groups
    from engine.client_service.held import Held
    from engine.dataset.groups import GroupDescription
    from engine.dataset.rows import Rows
    from engine.dds.client_protocol.messages import HistoryRequest
    from engine.runtime.runtime import Runtime
    from engine.runtime.sets import Difference

    Samples: TypeAlias = Sequence[tuple[GroupDescription, Rows]]

TAIL_S: Final = 1.0
"""How long after a set a reader is given what was captured meanwhile; all writers have matched it by then."""


@dataclasses.dataclass(slots=True)
class _Follower:
    """A reader: which client it is of, and what it asked last.

    `given` has the digests of what it was given of a name-space, until `tail_s`: then it gets what came into
    the set meanwhile.
    """

    client: bytes
    request: HistoryRequest
    name_spaces: frozenset[str]
    given: dict[str, set[bytes]]
    tail_s: float


class Followers:
    """All of them.

    Args:
        runtime: the node's.
        view: what the node holds.
        answers: makes interests of requests.
        send: sends samples to a client as an update of the answer to a request.
    """

    def __init__(
        self,
        runtime: Runtime,
        view: Held,
        answers: Answers,
        send: Callable[[bytes, HistoryRequest, Groups], None],
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.holdings.clock
        self._view = view
        self._interest = answers.interest
        self._send = send
        self._all: dict[Way, _Follower] = {}

    @property
    def partitions(self) -> set[tuple[str, ...]]:
        """Where their answers go."""
        return {one.request.alignment_partitions for one in self._all.values()}

    def name_spaces(self, request: HistoryRequest) -> frozenset[str]:
        """Those for which this node kept the reader up to date, even if another node is their master now."""
        known = self._all.get(way_of(request))
        return known.name_spaces if known else frozenset()

    def begin(self, client: bytes, request: HistoryRequest, sets: Mapping[str, Samples]) -> None:
        """A reader is about to be given these sets, by name-space."""
        given = {name: _digests(samples for _, samples in groups) for name, groups in sets.items()}
        names = self.name_spaces(request).union(given)
        tail_s = self._clock.monotonic() + TAIL_S
        self._all[way_of(request)] = _Follower(client, request, names, given, tail_s)

    def ask_again(self, request: HistoryRequest) -> None:
        """A reader asks for everything once more."""
        known = self._all.get(way_of(request))
        if known is not None:
            known.request = request

    def end(self, request: HistoryRequest) -> None:
        """A reader wants no more."""
        self._all.pop(way_of(request), None)

    def failed(self, request: HistoryRequest) -> None:
        """What was sent to a reader did not arrive: it has to ask for everything again."""
        known = self._all.get(way_of(request))
        if known is not None and known.request.request == request.request:
            self.end(request)

    def gone(self, client: bytes) -> None:
        """A client is gone with all its readers."""
        self._all = {way: one for way, one in self._all.items() if one.client != client}

    def work(self, now: float) -> list[float]:
        """Give what is due; returns when more is."""
        for follower in self._all.values():
            if follower.given and now >= follower.tail_s:
                self._send_tail(follower)
        return [follower.tail_s for follower in self._all.values() if follower.given]

    def difference(self, name_space: str, difference: Difference) -> None:
        """A merge brought this: readers that had the set get it, too."""
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
        """Another set took the place of the one that readers have; what was captured meanwhile follows."""
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
        """Give what came into the set since it was given."""
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


def _digests(sets: Iterable[Rows]) -> set[bytes]:
    return {digest for samples in sets for digest in samples.each_digest()}
