"""What must always hold, one module for each rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.simulator.checkers.base import Checker
    from engine.simulator.cluster import Cluster


def make_checkers(cluster: Cluster) -> list[Checker]:
    """A fresh set of all checkers for a run."""
    return []
