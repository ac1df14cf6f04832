"""One alignment of a group, with its steps."""

from __future__ import annotations

import array
import dataclasses
import enum
from typing import Final, NamedTuple

from ospltool.trace.meaning.lines import NumberedLines, RecordPlace


class AlignmentStep(enum.StrEnum):
    """Step of an alignment."""

    number: int
    """Its position in this list; less than 16."""
    bit: int
    """A bit of `TracedAlignment.seen`."""

    REQUESTED = "requested"
    RECEIVED = "request received"
    COMBINED = "combined with another request"
    SENDING = "sending"
    SENT = "sent"
    EQUAL = "sets are equal, nothing sent"
    LINK = "end mark received"
    BEADS = "set is whole"
    APPLIED = "merge policy applied"
    COMPLETE = "complete"


STEPS: Final = tuple(AlignmentStep)
for _number, _step in enumerate(STEPS):
    _step.number, _step.bit = _number, 1 << _number


def noted_as(step: AlignmentStep, line: int) -> int:
    """Return a step, and the number of its line, as one integer; see `TracedAlignment.noted`."""
    return line << 4 | step.number


def step_of(noted: int) -> AlignmentStep:
    """Return the step of such an integer."""
    return STEPS[noted & 15]


def line_of(noted: int) -> int:
    """Return the number of the line of such an integer."""
    return noted >> 4


class AlignmentEnd(enum.StrEnum):
    """End of an alignment."""

    OPEN = "open"
    COMPLETE = "complete"
    ABSORBED = "answered together with an earlier request"
    REFUSED = "refused"
    ALIGNER_LOST = "aligner lost"
    RESTARTED = "node restarted"
    FORGOTTEN = "too many at once"


class KindCounts(NamedTuple):
    """Number of samples of a set by kind: writes (including disposing ones), and disposes alone."""

    data: int
    disposes: int


@dataclasses.dataclass(slots=True, eq=False)
class TracedAlignment:
    """One alignment of one group. Those with equal values, in lines of equal places, are equal."""

    number: int
    """Number from 1, in the order of requests."""
    group: str
    """Partition.topic; a name-space in ospltool traces."""
    alignee: str
    """Address of the node that asks."""
    aligner: str
    """Address of the node that answers; `0` while the request is to all."""
    source: str
    """Source triple."""
    lines: NumberedLines = dataclasses.field(repr=False)
    """What `noted` refers to."""
    noted: array.array[int] = dataclasses.field(default_factory=lambda: array.array("q"))
    """Its steps in order (`noted_as`)."""
    seen: int = 0
    """The bits of its steps."""
    end: AlignmentEnd = AlignmentEnd.OPEN
    """Its end, or OPEN."""
    samples_sent: int | None = None
    """Number of samples that the aligner sent; None if unknown."""
    samples: int | None = None
    """Number of samples that the alignee was told to expect; None if unknown."""
    policy: str = ""
    """Applied merge policy; empty for an initial alignment."""
    kinds_sent: KindCounts | None = None
    """Samples that the aligner sent, by kind; None if unknown."""
    kinds: KindCounts | None = None
    """Samples that the alignee injected, by kind; None if unknown."""
    set_size: int | None = None
    """Samples in the aligner's whole set, if only a difference was sent (ospltool)."""
    is_equal: bool = False
    """The sets were equal, so nothing was sent."""
    is_split: bool = False
    """The request was to all aligners, and continues as one alignment for each that received it."""

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TracedAlignment) or self.number != other.number:
            return False
        return self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def _values(self) -> tuple[object, ...]:
        names = (one.name for one in dataclasses.fields(self) if one.name not in {"lines", "noted"})
        return self.steps, *(getattr(self, name) for name in names)

    @property
    def steps(self) -> list[tuple[AlignmentStep, RecordPlace]]:
        """Steps with their lines, in order; `note` adds one."""
        return [(step_of(one), self.lines.place(line_of(one))) for one in self.noted]

    def line(self, step: AlignmentStep) -> int | None:
        """Return the number of the first line of a step; None if it did not happen."""
        number = step.number
        for one in self.noted:
            if one & 15 == number:  # as in `step_of`
                return line_of(one)
        return None

    def time(self, step: AlignmentStep) -> int | None:
        """Return the first time of a step; None if it did not happen or has no time."""
        line = self.line(step) if self.seen & step.bit else None
        return None if line is None else self.lines.time(line)

    def has(self, step: AlignmentStep) -> bool:
        """Return whether a step happened."""
        return self.seen & step.bit != 0

    def note(self, step: AlignmentStep, line: int) -> None:
        """Add a step with the number of its line."""
        self.noted.append(noted_as(step, line))
        self.seen |= step.bit

    def note_first(self, step: AlignmentStep, line: int) -> None:
        """Add a step before all others."""
        self.noted.insert(0, noted_as(step, line))
        self.seen |= step.bit

    @property
    def start_ns(self) -> int | None:
        """The time of its first step."""
        return self.lines.time(line_of(self.noted[0])) if self.noted else None

    @property
    def end_ns(self) -> int | None:
        """The time of its last step."""
        return self.lines.time(line_of(self.noted[-1])) if self.noted else None
