"""Nodes of which none may be master say so wherever somebody looks."""

from __future__ import annotations

import pytest

from engine.core.election import NOBODY
from tests.integration.configurations import Settings
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds


def test_two_nodes_with_priority_0_are_a_concern(lab: Lab) -> None:
    names = ("n1", "n2")
    for name in names:
        lab.configure(name, Settings().with_priority(0))
    lab.start(*names)

    def concern(name: str) -> bool:
        shown = lab.seen.node(name)
        return shown is not None and any(NOBODY in space.why for space in shown.name_spaces)

    lab.seen.wait_for("both are a concern", lambda: all(map(concern, names)))
    assert NOBODY in lab.errors("n1")
