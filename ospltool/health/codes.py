"""The codes of trouble, whose texts are also the pages of docs/health, and the signs that bear them."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Iterable
from importlib import resources
from typing import Final

from ospltool.diagnostics.model import Severity


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """One kind of observable trouble."""

    id: str
    """As in DUL-NODE-GONE; never reused for another trouble."""
    title: str
    """One-line description."""
    severity: Severity
    """Default; a sign may have another one."""
    cause: str
    """Family of codes; signs of one family about one subject make one incident."""
    observed: str
    """Observation that leads to this code."""
    causes: tuple[str, ...]
    """Usual causes, likeliest first."""
    effect: str
    """Consequence for the data."""
    next: str
    """Advice to the operator."""
    unprovoked: str = ""
    """Why no test provokes it on real processes; empty for a code that a test does provoke."""

    @property
    def page(self) -> str:
        """Path of its documentation."""
        return f"docs/health/{self.id}.md"

    @property
    def sections(self) -> dict[str, str]:
        """Its explanation by heading, in Markdown."""
        return {
            "What is observed": self.observed,
            "Likely causes": "\n".join(f"- {cause}" for cause in self.causes),
            "Effect on data": self.effect,
            "What to do": self.next,
        }


@functools.cache
def codes() -> dict[str, Code]:
    """Return every code by id, in the order of the registry."""
    text = resources.files("ospltool.health").joinpath("codes.toml").read_text("utf-8")
    return {
        name: Code(
            name,
            entry["title"],
            Severity[entry["severity"].upper()],
            entry["cause"],
            entry["observed"],
            tuple(entry["causes"]),
            entry["effect"],
            entry["next"],
            entry.get("unprovoked", ""),
        )
        for name, entry in tomllib.loads(text).items()
    }


SECOND_NS = 1_000_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Sign:
    """One observation of trouble."""

    code: str
    """Id of the code."""
    who: str
    """Subject: a node, a name-space or two nodes; the same words while the sign lasts."""
    what: str
    """Observation, in a sentence without a full stop."""
    since_ns: int = 0
    """Beginning, by the feed's clock; 0 if unknown."""
    nodes: tuple[str, ...] = ()
    """Ids of the involved nodes."""
    name_space: str = ""
    """Involved name-space, if there is exactly one."""
    why: str = ""
    """Cause; empty if unknown."""
    next: str = ""
    """Advice that is more precise than the code's."""
    severity: Severity | None = None
    """Severity in place of the code's."""
    patience_ns: int = 0
    """Time that the sign must last before it counts."""
    occasion: tuple[int, ...] = ()
    """What it must last within, such as the runs of two nodes; on another occasion the time begins again. Of
    a node that stood still, when that was over."""
    weight: int = 1
    """Gravity, comparable only with that of the same sign at another moment."""
    subjects: tuple[str, ...] = ()
    """Ids of the nodes that it is about; empty for all of `nodes`."""
    names: tuple[str, ...] = ()
    """Names of nodes that are not heard because of what it says, if they are not."""
    began_before: bool = False
    """Whether nobody tells the beginning: it began at `since_ns` or before."""
    told_ns: int = 0
    """When others say that it began, from which `patience_ns` does not count; 0 if nobody does."""
    is_later: bool = False
    """Whether it is the loss of a node that its fellows heard after this watch had lost it."""
    guess: str = ""
    """What is said of an unknown cause, without what the evidence excludes; empty for the code's causes."""

    @property
    def kind(self) -> Code:
        """The code's entry in the registry."""
        return codes()[self.code]

    @property
    def urgency(self) -> Severity:
        """Severity of the sign, else of its code."""
        return self.kind.severity if self.severity is None else self.severity

    @property
    def key(self) -> str:
        """Key that signs of one cause about one subject share."""
        return f"{self.kind.cause}:{self.who}"


UNANNOUNCED: Final = "killed, crashed, or stopped by SIGSTOP: no end was announced"
"""Beginning of a cause that is only concluded from silence: it takes the place of no cause that was told."""


STILL_STOPPED: Final = "What is still stopped, continue: `kill -CONT {}`."
"""Advice about processes that are stopped, which does not hold any more once they run."""


def continue_them(processes: str, pids: Iterable[int]) -> str:
    """Return the advice about stopped processes, which are called as in `its process`."""
    return f"Find out who stopped {processes}. {STILL_STOPPED.format(' '.join(map(str, pids)))}"


NO_MASTER: Final = "no master"
"""What an effect says of a name-space whose nodes have not elected a master."""

LAST_COPY: Final = "the last copy"
"""What an effect says of a name-space without further copies."""

CUT: Final = "the network between it and this watch is cut"
"""Beginning of a cause that is concluded from what fellows hear: it takes the place of no told one either."""


OF_WATCH: Final = "on the host of this watch, since "
"""What a cause says that is the own link or route of this watch."""


def joined(names: tuple[str, ...] | list[str], most: int = 4) -> str:
    """Join names in words: `n1`, `n1 and n2`, `n1, n2, n3 and 3 more`."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1:,} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
