"""The short log: one line per transition of the whole cluster, for people.

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

With several name-spaces, the one that is least far counts. The kinds of lines: `^` up, `v` down, `*` master,
`>` phase, `=` lineage, `+` set sent, `~` network, `!` fault, `-` healing, `#` checker.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Final

from engine.core.states import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.simulator.node import SimulatedNode
    from engine.simulator.schedule import Schedule

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


class ShortLog:
    """Collects the lines of a run, and passes each to `show`.

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
        names = " ".join(node.name for node in self._nodes)
        self._put(f"#   virtual s  UTC              nodes ({names})")

    def line(self, who: str, sign: str, text: str) -> None:
        """Add a line: who did something, the sign for its kind, and the text."""
        schedule = self._schedule
        seconds, nanoseconds = divmod(schedule.true_ns, 1_000_000_000)
        utc = datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC)
        columns = "".join(map(sign_of, self._nodes))
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
