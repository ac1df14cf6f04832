"""Delivery of samples of several groups to one process, over a session that reaches only that process."""

from __future__ import annotations

import heapq
import time
from typing import TYPE_CHECKING, Final

from engine.dataset.living import whole
from engine.dds.activity import moved
from engine.dds.directed import DeliveryReport, DirectedSession, Portion
from engine.dds.errors import DdsError
from engine.dds.interfaces import address_towards, reachable
from engine.dds.shared_waits import Waits, at_once, together
from engine.runtime.ports import Delivered, GivenGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from engine.core.name_spaces import Group
    from engine.dataset.groups import GroupDescription
    from engine.dataset.living import DeliveryStep
    from engine.dataset.sample import Sample
    from engine.dds.participant import NodeParticipant

# Chosen for a set of gigabytes on a slow link. A reader that takes nothing for longer holds one of the
# workers; a shorter limit breaks off deliveries that would have ended.
TIMEOUT_S: Final = 120.0
"""Limit for the delivery of each group."""
# Each turn is one pass over the portion with one write for each instance. One deep history would otherwise
# make as many passes as it has samples; its older samples share the first pass.
MAX_TURNS: Final = 256
"""Limit for the turns of a topic's portions; what an instance has before them is in order by portion only."""
_NOBODY: Final[frozenset[bytes]] = frozenset()


class Directed:
    """Opens sessions with readers' processes; it blocks, and may be called from several threads.

    Args:
        participant: this process's participant in the readers' domain.
        node: id of this process, 16 bytes.
        interface: name or address of the network interface to use if there is no route.
        tag: domain tag of the readers.
    """

    def __init__(self, participant: NodeParticipant, node: bytes, interface: str, tag: str) -> None:
        self._participant = participant
        self._node = node
        self._interface = interface
        self._tag = tag

    def open(self, process: bytes, addresses: Sequence[str]) -> DirectedSession:
        """Open a session with a process.

        Args:
            process: `ParticipantSeen.process` of the readers.
            addresses: its unicast metatraffic locators, at least one.

        Raises:
            DdsError: see `DirectedSession`.
        """
        address = reachable(addresses)
        return DirectedSession(
            address,
            address_towards(address, self._interface),
            self._participant.domain_id,
            self._node,
            process,
            self._tag,
        )

    def deliver(
        self,
        process: bytes,
        addresses: Sequence[str],
        groups: Iterable[tuple[GroupDescription, Iterable[Sample]]],
    ) -> Delivered:
        """Deliver samples to the readers of a process, group by group; the result names any problem.

        No writer stays: instances without another writer become NOT_ALIVE_NO_WRITERS. `process` is
        `ParticipantSeen.process`, `addresses` are its unicast locators.
        """
        try:
            with self.open(process, addresses) as session:
                return give(session, [Portion(each, whole(samples, _NOBODY)) for each, samples in groups])
        except DdsError as error:
            return Delivered(problem=str(error))


def giving(
    session: DirectedSession,
    portions: Iterable[Portion],
    on_rejected: Callable[[Group, int], None] | None = None,
    *,
    is_ordered: bool = False,
) -> Waits[Delivered]:
    """Deliver portions to the readers of a process over a session; the result names any problem.

    It yields the seconds for which it has to wait, so that deliveries to other readers may go on.

    Args:
        session: the session with the process.
        portions: the groups and their samples.
        on_rejected: called with a group, and the number of the attempt, while resource limits of readers
            leave no room for the group (see `DirectedSession.deliver`).
        is_ordered: whether the order of source time must hold over the partitions of a topic, too, for a
            reader by reception; all their samples are in memory at once then.
    """
    started = time.monotonic_ns()
    reports: list[DeliveryReport] = []
    groups: list[Group] = []
    places: dict[tuple[str, str], list[Portion]] = {}
    for portion in portions:
        group = portion.description.group
        place = group.topic, "" if is_ordered else group.partition
        places[place] = [*places.pop(place, ()), portion]
    for several in places.values():
        turns: Iterable[Sequence[Iterable[DeliveryStep]]] = [[several[0].steps]]
        if len(several) > 1:
            turns = in_turns([one.steps for one in several])
        groups += [one.description.group for one in several]
        reports += yield from together(
            session.delivering(one, TIMEOUT_S, its, on_rejected)
            for one, its in zip(several, turns, strict=True)
        )
        moved()
    # Readers that refuse the offered QoS would refuse it again: reported, but not retried.
    problems = [report.problem if report.readers or not report.refused else "" for report in reports]
    return Delivered(
        samples=sum(report.acked for report in reports),
        elapsed_ns=time.monotonic_ns() - started,
        problem=next(filter(None, problems), ""),
        refused=tuple(dict.fromkeys(text for report in reports for text in report.refused)),
        resent=sum(report.resent for report in reports),
        not_kept=sum(report.is_freed for report in reports),
        given=tuple(
            GivenGroup(
                group,
                report.sent,
                report.unwritten,
                report.readers,
                report.by_reception,
                report.latecomers,
                problem,
            )
            for group, report, problem in zip(groups, reports, problems, strict=True)
        ),
    )


def in_turns(portions: Sequence[Iterable[DeliveryStep]]) -> list[list[list[DeliveryStep]]]:
    """Return the steps of each portion in turns that keep the order of source time over all portions.

    The types and partitions of a topic have a writer each, and readers that order by reception see the
    samples of an instance as they arrive. So all portions write their first turn, one after the other, then
    their second; the last turn is empty. Of a history of more than `MAX_TURNS` turns, the first one has the
    older part.

    Args:
        portions: the samples of one topic, one portion for each type and partition.
    """
    by_key: dict[bytes, list[list[tuple[int, DeliveryStep]]]] = {}
    for number, steps in enumerate(portions):
        for step in steps:
            histories = by_key.setdefault(step.sample.key, [[] for _ in portions])
            histories[number].append((number, step))
    in_order = (heapq.merge(*each, key=lambda one: one[1].sample[:3]) for each in by_key.values())
    placed = [list(_placed(history)) for history in in_order]
    count = min(MAX_TURNS, max((history[-1][0] + 1 for history in placed), default=0))
    turns: list[list[list[DeliveryStep]]] = [[[] for _ in range(count + 1)] for _ in portions]
    for history in placed:
        too_many = max(0, history[-1][0] + 1 - MAX_TURNS)
        for turn, number, step in history:
            turns[number][max(0, turn - too_many)].append(step)
    return turns


def _placed(history: Iterable[tuple[int, DeliveryStep]]) -> Iterator[tuple[int, int, DeliveryStep]]:
    """Yield turn, portion and step of each sample of an instance; the last portion ends a turn."""
    turn = before = 0
    for number, step in history:
        turn += number < before
        before = number
        yield turn, number, step


give = at_once(giving)
"""`giving`, with all that it waits for."""
