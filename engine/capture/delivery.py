"""Delivery of samples of several groups to one process, over a session that reaches only that process."""

from __future__ import annotations

import functools
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.dataset.living import whole
from engine.dds.activity import moved
from engine.dds.directed import DeliveryPurpose, DeliveryReport, DirectedSession
from engine.dds.errors import DdsError
from engine.dds.interfaces import address_towards, reachable
from engine.dds.shared_waits import Waits, at_once
from engine.runtime.ports import Delivered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from engine.core.name_spaces import Group
    from engine.dataset.groups import GroupDescription
    from engine.dataset.living import DeliveryStep
    from engine.dataset.sample import Sample
    from engine.dds.participant import NodeParticipant

TIMEOUT_S: Final = 120.0
"""Limit for the delivery of each group."""
_NOBODY: Final[frozenset[bytes]] = frozenset()


class Portion(NamedTuple):
    """The delivery of one group to a process.

    Attributes:
        description: the group.
        steps: the samples, each with whether its instance has a living writer.
        mode: the purpose of the samples.
        keeps: whether instances with a living writer must stay ALIVE.
        instances: upper bound of the topic's instances.
    """

    description: GroupDescription
    steps: Iterable[DeliveryStep]
    mode: DeliveryPurpose = DeliveryPurpose.WHOLE
    keeps: bool = False
    instances: int = sys.maxsize


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

    def open(self, participant: bytes, addresses: Sequence[str]) -> DirectedSession:
        """Open a session with a process.

        Args:
            participant: GUID of the readers' process.
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
            participant,
            self._tag,
        )

    def deliver(
        self,
        participant: bytes,
        addresses: Sequence[str],
        groups: Iterable[tuple[GroupDescription, Iterable[Sample]]],
    ) -> Delivered:
        """Deliver samples to the readers of a process, group by group; the result names any problem.

        No writer stays: instances without another writer become NOT_ALIVE_NO_WRITERS. `participant` is the
        GUID of the process's participant, `addresses` are its unicast locators.
        """
        try:
            with self.open(participant, addresses) as session:
                return give(session, [Portion(each, whole(samples, _NOBODY)) for each, samples in groups])
        except DdsError as error:
            return Delivered(problem=str(error))


def giving(
    session: DirectedSession,
    portions: Iterable[Portion],
    on_rejected: Callable[[Group, int], None] | None = None,
) -> Waits[Delivered]:
    """Deliver portions to the readers of a process over a session; the result names any problem.

    It yields the seconds for which it has to wait, so that deliveries to other readers may go on.

    Args:
        session: the session with the process.
        portions: the groups and their samples.
        on_rejected: called with a group, and the number of the attempt, while resource limits of readers
            leave no room for the group (see `DirectedSession.deliver`).
    """
    started = time.monotonic_ns()
    reports: list[DeliveryReport] = []
    for description, steps, mode, keeps, instances in portions:
        group = description.group
        report = yield from session.delivering(
            group.topic,
            description.type,
            description.qos,
            group.partition,
            steps,
            TIMEOUT_S,
            mode=mode,
            keeps=keeps,
            instances=instances,
            on_rejected=functools.partial(on_rejected, group) if on_rejected else None,
        )
        reports.append(report)
        moved()
    # Readers that refuse the offered QoS would refuse it again: reported, but not retried.
    problems = [report.problem for report in reports if report.readers or not report.refused]
    return Delivered(
        samples=sum(report.acked for report in reports),
        elapsed_ns=time.monotonic_ns() - started,
        problem=next(filter(None, problems), ""),
        refused=tuple(dict.fromkeys(text for report in reports for text in report.refused)),
        resent=sum(report.resent for report in reports),
        not_kept=sum(report.is_freed for report in reports),
        readers=frozenset.intersection(*(report.readers for report in reports)) if reports else frozenset(),
    )


give = at_once(giving)
"""`giving`, with all that it waits for."""
