"""The record of a run: its short log, its figures, and the rule that it violated, if any."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from engine.core.states import Phase
from engine.simulator.options import SimulationOptions
from engine.simulator.schedule import Schedule
from engine.simulator.simulated_node import SimulatedNode

SIGNS: Final = {
    Phase.DISCOVER: "d",
    Phase.ELECT: "e",
    Phase.SOURCE: "s",
    Phase.INJECT: "i",
    Phase.COLLECT: "c",
    Phase.WAIT: "w",
    Phase.ALIGN: "a",
    Phase.MERGE: "m",
    Phase.PASSIVE: "p",
    Phase.COMPLETE: "C",
}
_ORDER: Final = list(SIGNS.values())


MOST_SIGNS: Final = 50
"""Nodes whose states each line has; beyond that no reader can tell them apart."""


class ShortLog:
    """Collects the lines of a run, and passes each to `show`.

    A line has the virtual time, the wall clock that a host without skew shows, a column for each node, whose
    transition it is, a sign for its kind, and what happened. The columns show where each node is:

    | sign | the node ... |
    |------|--------------|
    | `.`  | is down |
    | `d`  | discovers fellows |
    | `e`  | elects a master |
    | `s`  | finds out which role injects |
    | `i`  | injects its stored set |
    | `c`  | collects what others captured |
    | `w`  | waits for a complete master |
    | `a`  | aligns |
    | `m`  | merges |
    | `p`  | is passive: nobody asked for the data yet |
    | `C`  | is complete |
    | `M`  | is complete and master |
    | `z`  | stands still |

    With several name-spaces, the one that is least far counts. With more than `MOST_SIGNS` nodes there is one
    column, `-`. The kinds of lines: `^` up, `v` down, `*`
    master, `>` phase, `=` lineage, `+` set sent, `~` network, `!` fault, `-` healing, `#` checker.

    Args:
        schedule: the time of the run.
        nodes: the nodes, one for each column; the caller may still add some.
        show: called with each line.
    """

    def __init__(
        self, schedule: Schedule, nodes: Sequence[SimulatedNode], show: Callable[[str], None] | None = None
    ) -> None:
        self._schedule = schedule
        self._nodes = nodes
        self._show = show
        self.lines: list[str] = []

    def header(self) -> None:
        """Write the names of the columns."""
        is_long = len(self._nodes) > MOST_SIGNS
        names = f"{len(self._nodes)}" if is_long else " ".join(node.name for node in self._nodes)
        self._put(f"#   virtual s  UTC              nodes ({names})")

    def line(self, who: str, sign: str, text: str) -> None:
        """Add a line: who did something, the sign for its kind, and the text."""
        schedule = self._schedule
        seconds, nanoseconds = divmod(schedule.true_ns, 1_000_000_000)
        utc = datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC)
        columns = "".join(map(sign_of, self._nodes)) if len(self._nodes) <= MOST_SIGNS else "-"
        clock = f"{utc:%H:%M:%S}.{nanoseconds // 1000:06d}Z"
        self._put(f"{schedule.now:13.6f}  {clock}  {columns}  {who:<6} {sign} {text}")

    def _put(self, line: str) -> None:
        self.lines.append(line)
        if self._show:
            self._show(line)

    def text(self) -> str:
        """Return all lines."""
        return "\n".join(self.lines) + "\n"


def sign_of(node: SimulatedNode) -> str:
    """Return the state of a node as one character."""
    if node.runtime is None:
        return "."
    if node.is_stalled or node.participant.is_frozen:
        return "z"
    states = node.runtime.core.name_spaces
    signs = [SIGNS[state.phase] for state in states]
    least = min(signs, key=_ORDER.index, default="C")
    is_master = any(state.is_master(node.id) for state in states)
    return "M" if least == "C" and is_master else least


class Violation(Exception):
    """A rule was violated.

    Attributes:
        invariant: code of the rule, as in `I1`.
    """

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class Statistics(msgspec.Struct):
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


class RunResult(msgspec.Struct, frozen=True):
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
