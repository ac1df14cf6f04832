"""Two processes with one id: which of them ends, and what both trace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.core.messages import Status
from engine.core.states import ServiceState
from engine.runtime.protocol_tracer import SharedIdentity
from engine.tracing.levels import Level
from engine.tracing.tracer import Tracer

COMPLETE, EARLIER = ServiceState.COMPLETE, ServiceState.INIT


def status(incarnation: int, life: int, state: ServiceState) -> Status:
    return Status(incarnation, 1, "twin", "r", "h", state, 1.0, 2.0, 0, life=life)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((5, 1, EARLIER), (3, 2, COMPLETE)),
        ((3, 2, COMPLETE), (4, 1, COMPLETE)),
        ((4, 1, EARLIER), (4, 2, EARLIER)),
    ],
)
def test_of_two_processes_with_one_id_exactly_one_ends(one: Any, other: Any) -> None:
    tracer = Tracer(lambda: 0, recent_level=Level.FINEST)
    found = []
    for (incarnation, life, state), theirs in ((one, other), (other, one)):
        settings = SimpleNamespace(incarnation=incarnation, life=life)
        shared = SimpleNamespace(
            tracer=tracer, settings=settings, core=SimpleNamespace(state=state, double_heard=lambda _: None)
        )
        identity = SharedIdentity(cast("Any", shared))
        leaving = status(theirs[0], theirs[1], ServiceState.TERMINATING)
        assert not identity.heard(leaving), "a former process ends"
        found.append(identity.heard(status(*theirs)))
        assert identity.heard(status(*theirs)) == found[-1]
        identity.ended()
    assert found[0].startswith("node twin on h is running with the id of this node")
    assert not found[1]
    assert [record.event.id for record in tracer.recent()] == ["identity.shared", "identity.unique"] * 2
