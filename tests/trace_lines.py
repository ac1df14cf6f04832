"""Lines of a trace, read back without the code of `ospltool trace`."""

from __future__ import annotations

import dataclasses
import re
from typing import Final

_SECOND_NS: Final = 1_000_000_000
_HEADER: Final = re.compile(
    r"(?:(?P<local>\S+) (?P<sign>-?)(?P<seconds>\d+)\.(?P<nanoseconds>\d{9}) )?"
    r"(?P<state>\S+) \((?P<thread>[^()\s]+)\) -> (?P<text>.*)"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A parsed line of a trace. `time_ns` is None in a trace without timestamps."""

    time_ns: int | None
    state: str
    thread: str
    text: str


def read_line(line: str) -> Line | None:
    """Parse a line that `TextFormat` wrote; None for a continuation line."""
    found = _HEADER.fullmatch(line)
    if found is None:
        return None
    time_ns = None
    if found["seconds"] is not None:
        time_ns = int(found["seconds"]) * _SECOND_NS + int(found["nanoseconds"])
        time_ns = -time_ns if found["sign"] else time_ns
    return Line(time_ns, found["state"], found["thread"], found["text"])
