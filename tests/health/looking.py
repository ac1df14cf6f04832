"""Looking at the health of a model as somebody does who has watched it for a while."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.runtime.monitor import NodeSnapshot
from ospltool.health.health import Health
from ospltool.health.incidents import Incident
from ospltool.live.expectation import NOTHING, Expectation
from ospltool.live.model import SystemModel
from ospltool.live.supervision import SupervisorReport
from tests import fake

LONG_NS = 20_000_000_000
"""Longer than anything must last before it is an incident."""


def looked(
    model: SystemModel,
    now_ns: int,
    expected: Expectation = NOTHING,
    reports: Mapping[str, SupervisorReport] | None = None,
) -> Health:
    """The health of a model that was like this for long."""
    health = Health(model, expected, reports=lambda: reports or {})
    health.update(now_ns - LONG_NS)
    health.update(now_ns)
    return health


def incidents(model: SystemModel, now_ns: int, expected: Expectation = NOTHING) -> list[Incident]:
    """What is wrong with a model that was like this for long."""
    return looked(model, now_ns, expected).open


def node(number: int = 1, **changes: Any) -> NodeSnapshot:
    """A node with one name-space, whose master is node 1."""
    return fake.snapshot(number, fake.name_space("Orders", 1), **changes)
