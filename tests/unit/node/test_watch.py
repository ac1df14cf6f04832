"""The deadlock watch: what is stuck is said, and the lease is withheld only where that is configured."""

from __future__ import annotations

import pytest

from engine.node.watch import Watch, Work
from engine.tracing.tracer import Tracer


def check_looks(work: Work, *, detects: bool, patience_s: float) -> tuple[int, list[str]]:
    """How often the lease was renewed in three looks, and what was traced."""
    renewed: list[None] = []
    tracer = Tracer(lambda: 0)
    watch = Watch(
        {"persistentDataListener": work},
        tracer,
        lambda: renewed.append(None),
        1.0,
        detects=detects,
        patience_s=patience_s,
    )
    for _ in range(3):
        watch.look()
    return len(renewed), [record.event.id for record in tracer.recent()]


def test_idle_activity_is_never_stuck() -> None:
    assert check_looks(Work(), detects=True, patience_s=-1.0) == (3, [])


def test_busy_activity_within_its_patience_is_not_stuck() -> None:
    work = Work()
    with work:
        assert check_looks(work, detects=True, patience_s=60.0) == (3, [])


@pytest.mark.parametrize(
    ("detects", "renewals", "events"),
    [
        (True, 0, ["watch.progress-lost", "watch.lease-withheld"]),
        (False, 3, ["watch.progress-lost"]),
    ],
)
def test_stuck_activity_is_said_once_and_withholds_the_lease_where_configured(
    detects: bool, renewals: int, events: list[str]
) -> None:
    work = Work()
    with work:
        assert check_looks(work, detects=detects, patience_s=-1.0) == (renewals, events)


def test_activity_that_moves_again_gets_the_lease_renewed() -> None:
    work = Work()
    renewed: list[None] = []
    tracer = Tracer(lambda: 0)
    watch = Watch({"a": work}, tracer, lambda: renewed.append(None), 1.0, detects=True, patience_s=-1.0)
    with work:
        watch.look()
    watch.look()
    assert len(renewed) == 1
    assert [record.event.id for record in tracer.recent()][-1] == "watch.progress-back"
