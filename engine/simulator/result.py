"""The result of a run."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.simulator.options import SimulationOptions


class Violation(Exception):
    """A rule was violated.

    Attributes:
        invariant: code of the rule, as in `I1`.
    """

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


@dataclasses.dataclass(slots=True)
class Statistics:
    """Figures of a run."""

    starts: int = 0
    """Runs of nodes."""
    crashes: int = 0
    """Killed nodes."""
    stops: int = 0
    """Orderly ends of nodes."""
    pauses: int = 0
    """Nodes that stood still."""
    cuts: int = 0
    """Faults that cut links."""
    disk_faults: int = 0
    """Disks that were full, failing or slow."""
    rotten: int = 0
    """Flipped bits of stored samples."""
    jumps: int = 0
    """Jumps of wall clocks."""
    masters: int = 0
    """Changes of a node's master or epoch."""
    written: int = 0
    """Samples that applications wrote."""
    written_bytes: int = 0
    """Bytes of these samples."""
    carried: int = 0
    """Messages that arrived."""
    transactions: int = 0
    """Transactions of disks."""
    streams: int = 0
    """Sent sets, each counted for each target."""
    stream_bytes: int = 0
    """Bytes of these sets."""
    deliveries: int = 0
    """Deliveries to late joiners."""
    equal_s: float = -1.0
    """Time from healing until all older samples were everywhere during writing; negative if never found."""
    settled_s: float = -1.0
    """Time from healing until the system was quiet and equal; negative if never."""
    steps: int = 0
    """Actions of the schedule."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunResult:
    """One run: its options, its violation (None for none), and its short log."""

    options: SimulationOptions
    violation: Violation | None
    virtual_s: float
    statistics: Statistics
    log: str

    @property
    def digest(self) -> str:
        """Digest of the log."""
        return hashlib.sha256(self.log.encode()).hexdigest()[:16]
