"""The troubles that a node told last: they stand while it is not heard, as nobody else knows of their end."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from engine.runtime.monitor import GroupView, NodeSnapshot, StoreStatus
from ospltool.health.health import Health
from ospltool.health.incidents import Incident
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.supervision import SupervisorReport
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id

LOST = GroupView("Orders", "Orders", "Own", "T", "VOLATILE", 10, 10, 1, "d", 1, 10, lost=3)
FULL = StoreStatus("sqlite", "/data/n3", problem="/data/n3: no space left on device")

TROUBLES: dict[str, tuple[str, dict[str, Any]]] = {
    "lost samples": ("DUL-CAPTURE-LOSS", {"groups": (LOST,)}),
    "a full disk": ("DUL-STORE-FULL", {"store": FULL}),
    "a disk that is behind": ("DUL-STORE-BEHIND", {"counters": {"queued": 5_000}}),
    "a damaged store": (
        "DUL-STORE-DAMAGED",
        {"store": msgspec.structs.replace(FULL, problem="", findings=("x",))},
    ),
    "samples that are too large": ("DUL-NOT-KEPT", {"counters": {"too_large": 5}}),
    "a clock": ("DUL-CLOCK-SKEW", {"skew_ns": 5 * S}),
    "incompatible": ("DUL-INCOMPATIBLE", {"communication": "incompatible"}),
}


class Patient:
    """n3, which has a trouble, and its fellows; each is heard once a second."""

    def __init__(self, trouble: dict[str, Any]) -> None:
        self.model = SystemModel()
        self.reports: dict[str, SupervisorReport] = {}
        self.health = Health(self.model, reports=lambda: self.reports)
        self.seconds = 0
        self.trouble = trouble
        self.whats: list[str] = []

    def run(self, seconds: int, *nodes: int, is_well: bool = False, started_s: int = -600) -> None:
        for _ in range(seconds):
            self.seconds += 1
            now_ns = START_NS + self.seconds * S
            told = [self._snapshot(one, nodes, now_ns, is_well=is_well, started_s=started_s) for one in nodes]
            self.model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in told)), now_ns)
            self.health.update(now_ns)
            self.whats += [one.what for one in self.of(self.health.open)]

    def _snapshot(
        self, node: int, nodes: tuple[int, ...], now_ns: int, *, is_well: bool, started_s: int
    ) -> NodeSnapshot:
        changes = {} if is_well else dict(self.trouble)
        pair = {one: changes.pop(one) for one in ("skew_ns", "communication") if one in changes}
        fellows = [
            fake.fellow(one, now_ns, **(pair if 3 in (one, node) else {})) for one in nodes if one != node
        ]
        started_ns = START_NS + (started_s if node == 3 else -600) * S
        return fake.snapshot(
            node, fake.name_space("Orders", 1), time_ns=now_ns, started_ns=started_ns, fellows=tuple(fellows),
            **(changes if node == 3 else {}),
        )  # fmt: skip

    def of(self, incidents: list[Incident]) -> list[Incident]:
        """Those of the troubles, not of losses."""
        return [one for one in incidents if one.code.cause not in ("node", "domain")]

    def leave(self) -> None:
        """The lease of n3 ends."""
        now_ns = START_NS + self.seconds * S
        self.model.apply(Update(notices=(FeedNotice(NoticeKind.NODE_LOST, now_ns, "", node_id(3)),)), now_ns)


@pytest.mark.parametrize("heard", [(1, 2), ()], ids=["alone", "with all"])
@pytest.mark.parametrize("name", TROUBLES)
def test_a_trouble_of_a_node_stands_while_the_node_is_stopped(name: str, heard: tuple[int, ...]) -> None:
    code, trouble = TROUBLES[name]
    patient = Patient(trouble)
    patient.run(12, 1, 2, 3)
    (before,) = patient.of(patient.health.open)
    assert before.code.id == code
    patient.run(3, *heard)
    patient.leave()
    patient.run(9, *heard)
    (meanwhile,) = patient.of(patient.health.open)
    assert meanwhile.what.endswith(" (last known at 01:03:32 UTC)")
    assert meanwhile.effect == meanwhile.code.effect, "copies may change meanwhile"
    patient.run(9, 1, 2, 3)
    (after,) = patient.of(patient.health.open)
    assert (after.key, after.what, after.since_ns) == (before.key, before.what, before.since_ns)
    assert patient.of(patient.health.closed) == []


def test_a_trouble_that_is_over_when_its_node_speaks_again_ended_before() -> None:
    patient = Patient(TROUBLES["a full disk"][1])
    patient.run(12, 1, 2, 3)
    patient.run(9, 1, 2)
    patient.run(4, 1, 2, 3, is_well=True)
    assert patient.of(patient.health.open) == []
    (found,) = patient.of(patient.health.closed)
    assert found.until_ns == START_NS + 21 * S
    assert found.ended_before
    assert "last known" not in found.what


DEAD = SupervisorReport("it had died", is_trouble=True, is_dead=True)


@pytest.mark.parametrize(
    ("report", "is_open"),
    [
        (DEAD, False),
        (dataclasses.replace(DEAD, is_coming=True, failed_ns=START_NS + 12 * S), True),
        (None, True),
    ],
    ids=["dead", "to be started again", "unknown"],
)
def test_a_trouble_ends_with_its_node_if_that_is_known_to_be_dead(
    report: SupervisorReport | None, *, is_open: bool
) -> None:
    patient = Patient(TROUBLES["a full disk"][1])
    patient.run(12, 1, 2, 3)
    patient.reports = {"n3": report} if report else {}
    patient.run(4, 1, 2)
    patient.leave()
    patient.run(2, 1, 2)
    assert bool(patient.of(patient.health.open)) is is_open
    patient.run(3, 1, 2, 3, is_well=True, started_s=18)
    assert patient.of(patient.health.open) == []
