"""One incident: a trouble from its beginning to its end, in words."""

from __future__ import annotations

import dataclasses
from typing import Final

from ospltool.diagnostics.model import Severity
from ospltool.health.codes import SECOND_NS, Code
from ospltool.output.text import age, lasted

_BOUNDS: Final = {
    (False, False): "",
    (True, False): "> ",
    (False, True): "< ",
    (True, True): "about ",
}
"""Before a duration whose beginning, and whose end, are not exactly known."""


@dataclasses.dataclass(frozen=True, slots=True)
class Incident:
    """One present or past trouble."""

    key: str
    """Identity, unchanged while the incident lasts."""
    code: Code
    """Entry of the registry."""
    severity: Severity
    """Worst severity of its signs; of a closed incident, while it lasted."""
    who: str
    """Subject: a node, name-space, pair of nodes or service."""
    what: str
    """Observation."""
    why: str
    """Cause, or the usual causes if it is unknown."""
    is_cause_known: bool
    """Whether `why` is the cause. A known cause stays when the trouble changes its form."""
    effect: str
    """Consequence for the data."""
    next: str
    """Advice to the operator."""
    since_ns: int
    """Beginning, by the feed's clock."""
    began_before: bool = False
    """Whether nobody tells the beginning: it began at `since_ns` or before."""
    until_ns: int = 0
    """End; 0 while it is open."""
    ended_before: bool = False
    """Whether nobody saw the end, as the watch did not look then: it ended at `until_ns` or before."""
    nodes: tuple[str, ...] = ()
    """Ids of the involved nodes."""
    subjects: tuple[str, ...] = ()
    """Ids of the nodes among them that it is about."""
    name_spaces: tuple[str, ...] = ()
    """Name-spaces that its signs name."""
    signs: tuple[str, ...] = ()
    """Observations in words, that of the root first."""
    weight: int = 1
    """Gravity, comparable only with that of the same incident at another moment."""
    origin: str = ""
    """Key of the first of the incidents that this one returns after; its own key if it is no return."""
    times: int = 1
    """1 plus the number of incidents before it that it returns after, each within ten seconds."""
    rises: int = 0
    """How often it became worse than ever before: a higher severity, or more subjects."""
    acknowledged_ns: int = 0
    """When an operator acknowledged it, as grave as it is; 0 for never."""
    muted_until_ns: int = 0
    """End of its mute; 0 if it is not muted."""
    worse: str = ""
    """The observation by which it last got a worse severity than it had; empty if it never did."""
    is_part: bool = False
    """Whether the trouble goes on as part of another one, as of a lost domain: it has no end of its own."""

    @property
    def is_open(self) -> bool:
        """Whether the incident has not ended."""
        return not self.until_ns

    @property
    def node(self) -> str:
        """Id of the node that it is about, of several the first; empty without any."""
        return next(iter(self.subjects or self.nodes), "")

    def age_ns(self, now_ns: int) -> int:
        """Return its duration up to its end or now."""
        return max(0, (self.until_ns or now_ns) - self.since_ns)

    def lasts(self, now_ns: int) -> str:
        """Return its duration up to its end or now, in words.

        They begin with ">" if it may have lasted longer, "<" if shorter, and "about" if both.
        """
        duration_ns = self.age_ns(now_ns)
        said = (age if self.is_open else lasted)(duration_ns)
        sign = _BOUNDS[self.began_before, self.ended_before] if duration_ns >= SECOND_NS else ""
        return f"{sign}{said}"

    @property
    def since(self) -> str:
        """The word before its beginning: `since`, or `since before`."""
        return "since before" if self.began_before else "since"

    @property
    def again(self) -> str:
        """How often it was there before, as `, again: 2 before`; empty if it is no return."""
        return f", again: {self.times - 1} before" if self.times > 1 else ""
