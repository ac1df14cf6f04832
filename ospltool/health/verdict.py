"""The verdict on a system, and its words."""

from __future__ import annotations

import dataclasses
from typing import Final

from ospltool.diagnostics.model import Severity

UNKNOWN: Final = "UNKNOWN"
"""The verdict if no node was heard."""

STARTING: Final = "STARTING"
"""The verdict if nothing is wrong, but no node is complete yet, or expected nodes or copies may come."""

FAILED: Final = "FAILED"
"""The verdict if this watch itself has failed, so that what it tells may be out of date."""

NEXT_OF_FAILED: Final = (
    "This is a fault of ospltool, not of the nodes: report it with this line. `ospltool status` on the host "
    "of a node says whether that runs."
)

NOBODY: Final = "no node was heard since this watch began"
"""Why nobody is heard if nobody is known to have ended in order."""

NEXT_OF_NOBODY: Final = (
    "Run `ospltool status` on the host of a node. If none runs, start one with `ospltool start FILE`; else "
    "compare the domain, the interface and the CYCLONEDDS_URI of this watch with those of the node."
)
"""What to do then."""


@dataclasses.dataclass(frozen=True, slots=True)
class SystemVerdict:
    """The state of the system in one line.

    `worst` is the worst severity of the incidents that are not muted, None without any; `word` is OK,
    WARNING or ERROR, STARTING if nothing is wrong and no node is complete yet or expected nodes or copies
    may still come, UNKNOWN if no node was heard, or FAILED if this watch itself has failed. A notice alone is
    OK. `parts` describe the incidents, the complete nodes and the remaining redundancy. `why` and `next` say
    why nobody is heard or what has failed, and what to do; they are empty of every other word, as incidents
    say it.
    """

    worst: Severity | None = None
    errors: int = 0
    warnings: int = 0
    notices: int = 0
    muted: int = 0
    word: str = UNKNOWN
    parts: tuple[str, ...] = ("no node heard",)
    why: str = ""
    next: str = ""

    @property
    def text(self) -> str:
        """The word and the parts in one line."""
        return " · ".join((self.word, *self.parts))


def counted(number: int, noun: str) -> str:
    """Return a number and its noun; an empty text for 0."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}" if number else ""
