"""Samples of several groups for one process, over a session that reaches nobody else."""

from __future__ import annotations

import functools
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.dataset.living import whole
from engine.dds.activity import moved
from engine.dds.directed import DeliveryReport, DirectedSession, Mode
from engine.dds.errors import DdsError
from engine.dds.interfaces import address_towards, reachable
from engine.runtime.ports import Delivered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from engine.core.namespaces import Group
    from engine.dataset.groups import GroupDescription
    from engine.dataset.living import Step
    from engine.dataset.sample import Sample
    from engine.dds.participant import NodeParticipant

TIMEOUT_S: Final = 120.0
"""For each group."""
_NOBODY: Final[frozenset[bytes]] = frozenset()


class Portion(NamedTuple):
    """What a process is given of one group.

    Attributes:
        description: the group.
        steps: the samples, and which instances have a living writer.
        mode: what the samples are to the readers.
        keeps: the instances that have one must stay ALIVE.
        instances: how many the topic has at most.
    """

    description: GroupDescription
    steps: Iterable[Step]
    mode: Mode = Mode.WHOLE
    keeps: bool = False
    instances: int = sys.maxsize


class Directed:
    """Opens sessions with readers' processes; it blocks, and may be called from several threads.

    Args:
        participant: the one whose domain the readers are in.
        node: the id by which this process is known, 16 bytes.
        interface: name or address of the network interface to use where no route tells.
        tag: domain tag of the readers.
    """

    def __init__(self, participant: NodeParticipant, node: bytes, interface: str, tag: str) -> None:
        self._participant = participant
        self._node = node
        self._interface = interface
        self._tag = tag

    def open(self, participant: bytes, addresses: Sequence[str]) -> DirectedSession:
        """A session with a process.

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
        """Give samples to the readers of a process, group by group; what goes wrong is in the answer.

        Nothing stays: instances that no other writer has are NOT_ALIVE_NO_WRITERS in the end.
        """
        try:
            with self.open(participant, addresses) as session:
                return give(session, [Portion(each, whole(samples, _NOBODY)) for each, samples in groups])
        except DdsError as error:
            return Delivered(problem=str(error))


def give(
    session: DirectedSession,
    portions: Iterable[Portion],
    on_rejected: Callable[[Group, int], None] | None = None,
) -> Delivered:
    """Give portions to the readers of a process over a session; what goes wrong is in the answer.

    `on_rejected` is told of groups that resource limits of the readers leave no room for, see
    `DirectedSession.deliver`.
    """
    started = time.monotonic_ns()
    reports: list[DeliveryReport] = []
    for description, steps, mode, keeps, instances in portions:
        group = description.group
        report = session.deliver(
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
    # Readers that refuse what is offered will refuse it again: reported, but not tried again.
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
