"""What one node's own snapshot says is not as it should be, whatever the others say."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from typing import Final

from engine.core.election import NOBODY, NOBODY_REMEDY
from engine.runtime.monitor import DeliveryView, FellowView, NodeSnapshot

MAX_SKEW_NS: Final = 1_000_000_000
REMEMBER_FAILED_NS: Final = 300_000_000_000
"""A reader that was not served, and did not come back since, is mentioned for so long."""


class Severity(enum.IntEnum):
    """How urgent, most urgent first. CONTRADICTION: two nodes state facts that cannot both hold."""

    FAULT = 0
    CONTRADICTION = 1
    WARNING = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Concern:
    """One thing that is not as it should be. `since_ns` is 0 when nothing tells."""

    severity: Severity
    text: str
    since_ns: int = 0
    node: str = ""
    name_space: str = ""


def complaints(snapshot: NodeSnapshot) -> Iterator[Concern]:
    """Everything abnormal that the snapshot alone shows."""
    name = snapshot.name
    if snapshot.store.problem:
        yield Concern(Severity.FAULT, f"{name} store: {snapshot.store.problem}", 0, snapshot.id)
    for fellow in snapshot.fellows:
        yield from _of_fellow(snapshot, fellow)
    for view in snapshot.name_spaces:
        if not view.master and (snapshot.state == "COMPLETE" or view.why == NOBODY):
            advice = f"; {NOBODY_REMEDY}" if view.why == NOBODY else ""
            text = f"{view.name} has no master on {name}: {view.why}{advice}"
            yield Concern(Severity.FAULT, text, 0, snapshot.id, view.name)
    for group in snapshot.groups:
        if group.rejected:
            causes = ", ".join(f"{count:,} by {cause}" for cause, count in group.rejected)
            text = f"{name} rejected samples of {group.partition}.{group.topic}: {causes}"
            yield Concern(Severity.WARNING, text, 0, snapshot.id, group.name_space)
    for delivery in snapshot.deliveries:
        if delivery.state == "running" and delivery.problem:
            text = f"{name} waits for a reader of {delivery.topic}: {delivery.problem}"
            yield Concern(Severity.WARNING, text, delivery.started_ns, snapshot.id)
    for delivery in _failed(snapshot):
        text = f"{name} could not serve a reader of {delivery.topic}: {delivery.problem}"
        yield Concern(Severity.WARNING, text, delivery.finished_ns, snapshot.id)
    for deviation in snapshot.deviations:
        text = f"a reader of {deviation.topic} deviates from the set of {name}: {deviation.text}"
        yield Concern(Severity.WARNING, text, 0, snapshot.id)


def _failed(snapshot: NodeSnapshot) -> Iterator[DeliveryView]:
    """Deliveries that failed not long ago and were not tried again since, one for each reader."""
    newest = {(one.participant, one.topic, one.partition): one for one in snapshot.deliveries}
    for one in newest.values():
        if one.state == "failed" and snapshot.time_ns - one.finished_ns < REMEMBER_FAILED_NS:
            yield one


def _of_fellow(snapshot: NodeSnapshot, fellow: FellowView) -> Iterator[Concern]:
    if fellow.communication == "incompatible":
        text = f"{snapshot.name} and {fellow.name} do not communicate: {fellow.problem}"
        yield Concern(Severity.CONTRADICTION, text, 0, snapshot.id)
    if abs(fellow.skew_ns) > MAX_SKEW_NS:
        text = f"clock of {fellow.name} is {fellow.skew_ns / 1e9:+.1f} s off, as {snapshot.name} sees it"
        yield Concern(Severity.WARNING, text, 0, snapshot.id)
