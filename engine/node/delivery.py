"""Samples of several groups for one process, over a session that reaches nobody else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from engine.dds.directed import DeliveryReport, DirectedSession
from engine.dds.errors import DdsError
from engine.dds.interfaces import address_towards, reachable
from engine.runtime.ports import Delivered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.dataset.groups import GroupDescription
    from engine.dataset.sample import Sample
    from engine.dds.participant import NodeParticipant

TIMEOUT_S: Final = 120.0
"""For each group."""


class Directed:
    """Delivers to readers; it blocks, and may be called from several threads.

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

    def deliver(
        self,
        participant: bytes,
        addresses: Sequence[str],
        groups: Iterable[tuple[GroupDescription, Iterable[Sample]]],
    ) -> Delivered:
        """Give samples to the readers of a process, group by group; what goes wrong is in the answer.

        Args:
            participant: GUID of the readers' process.
            addresses: its unicast metatraffic locators, at least one.
            groups: what it gets.
        """
        started = time.monotonic_ns()
        address = reachable(addresses)
        reports: list[DeliveryReport] = []
        problem = ""
        try:
            with DirectedSession(
                address,
                address_towards(address, self._interface),
                self._participant.domain_id,
                self._node,
                participant,
                self._tag,
            ) as session:
                for description, samples in groups:
                    group = description.group
                    report = session.deliver(
                        group.topic, description.type, description.qos, group.partition, samples, TIMEOUT_S
                    )
                    reports.append(report)
        except DdsError as error:
            problem = str(error)
        # Readers that refuse what is offered will refuse it again: reported, but not tried again.
        problems = [report.problem for report in reports if report.readers or not report.refused]
        return Delivered(
            samples=sum(report.acked for report in reports),
            elapsed_ns=time.monotonic_ns() - started,
            problem=problem or next(filter(None, problems), ""),
            refused=tuple(dict.fromkeys(text for report in reports for text in report.refused)),
            readers=frozenset.intersection(*(report.readers for report in reports))
            if reports
            else frozenset(),
        )
