"""The rules that must always hold, one module for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.simulator.checkers.bounds import Bounds
from engine.simulator.checkers.invented import Invented
from engine.simulator.checkers.kept import KeptSetsChecker
from engine.simulator.checkers.masters import Masters
from engine.simulator.checkers.promised import Promised
from engine.simulator.checkers.readers import DeliveryChecker
from engine.simulator.checkers.repaired import Repaired
from engine.simulator.checkers.resurrection import Resurrection
from engine.simulator.checkers.sources import Sources
from engine.simulator.checkers.traffic import Traffic
from engine.simulator.checkers.whole import Whole

if TYPE_CHECKING:
    from engine.simulator.checkers.base import Checker
    from engine.simulator.system import SimulatedSystem

CHECKERS: Final[tuple[type[Checker], ...]] = (
    Invented,
    Resurrection,
    KeptSetsChecker,
    Masters,
    Whole,
    Traffic,
    Bounds,
    Sources,
    DeliveryChecker,
    Promised,
    Repaired,
)
"""All rules but I3, which `engine.simulator.settling` decides, and I8, which takes two runs."""


def make_checkers(cluster: SimulatedSystem) -> list[Checker]:
    """Make all checkers for a run."""
    return [kind(cluster) for kind in CHECKERS]
