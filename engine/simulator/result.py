"""The result of a run."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.simulator.checkers.base import Violation
    from engine.simulator.options import Options


@dataclasses.dataclass(slots=True)
class Statistics:
    """Figures of a run.

    Attributes:
        starts: runs of nodes.
        crashes, stops, pauses, cuts, disk_faults, rotten, jumps: faults.
        masters: how often a node followed another master or epoch.
        written, written_bytes: by applications.
        carried: messages that arrived.
        streams, stream_bytes: sets sent, each counted for each target.
        deliveries: to late joiners.
        equal_s: how long after healing everything older was everywhere, while writing went on; negative when
            that was not looked for, or never so.
        settled_s: how long after healing the system was quiet and equal; negative when it never was.
        steps: actions of the schedule.
    """

    starts: int = 0
    crashes: int = 0
    stops: int = 0
    pauses: int = 0
    cuts: int = 0
    disk_faults: int = 0
    rotten: int = 0
    jumps: int = 0
    masters: int = 0
    written: int = 0
    written_bytes: int = 0
    carried: int = 0
    transactions: int = 0
    streams: int = 0
    stream_bytes: int = 0
    deliveries: int = 0
    equal_s: float = -1.0
    settled_s: float = -1.0
    steps: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """One run: its options, what was violated (None for nothing), and its short log."""

    options: Options
    violation: Violation | None
    virtual_s: float
    statistics: Statistics
    log: str

    @property
    def digest(self) -> str:
        """Digest of the log."""
        return hashlib.sha256(self.log.encode()).hexdigest()[:16]
