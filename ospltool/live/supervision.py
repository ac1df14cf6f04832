"""What the supervisors of the watch's machine tell of nodes; recordings keep it."""

from __future__ import annotations

import dataclasses
from typing import Final

# Thirty nodes on two cores start within it (`make bench AREA=start`).
START_NS: Final = 10_000_000_000
"""Time from the start of the first node in which all nodes of a system come; of a restart, too."""


@dataclasses.dataclass(frozen=True, slots=True)
class SupervisorReport:
    """What is known on this machine about a node."""

    text: str
    """What is wrong with it, or how it ended, in the past tense with its time; empty for nothing unusual."""
    in_order: bool = False
    """Whether the node ended in order."""
    is_starting: bool = False
    """Whether it is about to start."""
    is_trouble: bool = False
    """Whether it has died, does not respond, or is being started again after a failure."""
    is_dead: bool = False
    """Whether its process does not exist any more, and it had not ended in order."""
    never_ran: bool = False
    """Whether it is dead, and none of its starts has got so far that others could hear it."""
    next: str = ""
    """Advice that fits the report; empty for that of the code."""
    is_coming: bool = False
    """Whether its supervisor starts it again."""
    store: str = ""
    """Its store directory; empty without persistency."""
    pid: int = 0
    """Its process, if that exists; else 0."""
    stopped: tuple[int, ...] = ()
    """Those of its process and of its supervisor that are stopped (SIGSTOP, or a debugger)."""
    ended_ns: int = 0
    """When it ended or failed, if its supervisor saw it; else 0."""
    started_ns: int = 0
    """Start of its supervisor; 0 if unknown."""
    failed_ns: int = 0
    """Last failure after which its supervisor started it again; 0 for none."""
    failure: str = ""
    """That failure in words; empty for none."""
    waits_for_room: bool = False
    """Whether it runs, and cannot open its store for lack of room."""
    stuck: str = ""
    """Its threads that do not proceed, as it says on this machine; empty for none."""
    unwatched: str = ""
    """Why nobody watches it although it runs, with the time; empty if its supervisor does."""
    seen_ns: int = 0
    """When it was seen first like this; 0 if unknown."""

    def cause_since(self, moment_ns: int) -> str:
        """Return `text`, else the failure if it is not older than a moment (ns since 1970 UTC)."""
        return self.text or (self.failure if self.failed_ns >= moment_ns else "")

    def restarts(self, now_ns: int) -> bool:
        """Return whether its supervisor starts it again after a failure a moment ago."""
        is_again = self.is_coming or (self.failed_ns > 0 and self.pid > 0 and not self.is_trouble)
        return is_again and now_ns - self.failed_ns < START_NS


@dataclasses.dataclass(frozen=True, slots=True)
class LocalView:
    """What a watch knows beside what it hears.

    Attributes:
        reports: what the supervisors of its machine tell of nodes, by name.
        here: addresses of its machine in the domain.
    """

    reports: dict[str, SupervisorReport] = dataclasses.field(default_factory=dict)
    here: tuple[str, ...] = ()
