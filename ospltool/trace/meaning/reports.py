"""What the reports of OpenSplice and Cyclone DDS mean (`reports.toml`): cause and remedy."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import re
import tomllib
from typing import Final

_GROUP: Final = re.compile(r"\{(\d)\}")
_MISSED: Final = re.compile(r".*?Missed heartbeat(?: for node (?:- heartbeat id : )?(-?\w+))?", re.DOTALL)


def missed_heartbeat(text: str) -> str | None:
    """Return the id of the node whose heartbeat a report says was missed, empty if it names none.

    None if the report is of something else. Releases word it differently, and some print the id with a sign.
    """
    found = _MISSED.match(text)
    return None if found is None else _unsigned(found[1] or "")


_TOOK: Final = re.compile(r"The lease renewal took ([0-9]{1,9}(?:\.[0-9]+)?) s")


def stood_still_s(text: str) -> float | None:
    """Return for how many seconds a process did not run, as it reports itself: it hibernated, for one."""
    found = _TOOK.search(text)
    return None if found is None else float(found[1])


# A default lease of 10 s and some heartbeats.
NEAR_NS: Final = 15_000_000_000
"""Time within which the end of a fellow or a service is noticed, and reports of one event are made."""


def _unsigned(text: str) -> str:
    """Return an id of 32 bits as traces print it."""
    return str(int(text) % (1 << 32)) if re.fullmatch(r"-\d{1,10}", text) else text


_STARTED: Final = re.compile(r"The service '(?:splicedaemon|spliced)' is now operational")
_TERMINATED: Final = re.compile(r"The service '(?:splicedaemon|spliced)' has now terminated")
_STOPPED: Final = re.compile(r"Termination request \(signal (\d+)\) received")


@dataclasses.dataclass(slots=True)
class DomainStarts:
    """Starts of the domain service, as logs tell of them, and how each of these runs ended.

    Attributes:
        endings: the end of the run of each start; empty without one in the log.
        runs: index of the last start of each process.
    """

    endings: list[str] = dataclasses.field(default_factory=list)
    runs: dict[str, int] = dataclasses.field(default_factory=dict)

    def add(self, process: str, text: str) -> None:
        """Take in a report of a process, which no other one of the logs has the name of."""
        if _STARTED.search(text) is not None:
            self.runs[process] = len(self.endings)
            self.endings.append("")
            return
        run, stop = self.runs.get(process), _STOPPED.search(text)
        if run is None:
            return
        if stop is not None:
            self.endings[run] = f"stopped by signal {stop[1]}"
        elif not self.endings[run] and _TERMINATED.search(text) is not None:
            self.endings[run] = "stopped"


@dataclasses.dataclass(frozen=True, slots=True)
class ReportMeaning:
    """One kind of report.

    Attributes:
        number: its place in the table; causes have lower ones than what follows from them.
        text: expression that is found in such a report.
        why: what it proves, with `{1}` for a group of the expression.
        remedy: what to do.
        follows: whether another report of the same moment says the cause.
        event: name of what such reports tell of together, such as a process that stood still; may be empty.
        is_harmless: whether it is no fault.
    """

    number: int
    text: re.Pattern[str]
    why: str
    remedy: str
    follows: bool
    event: str
    is_harmless: bool


@dataclasses.dataclass(frozen=True, slots=True)
class MatchedReport:
    """A report whose meaning is known.

    Attributes:
        meaning: its kind.
        line: the line of the report that shows it.
        why: what it proves.
        remedy: what to do.
    """

    meaning: ReportMeaning
    line: str
    why: str
    remedy: str


@functools.cache
def report_meanings() -> tuple[ReportMeaning, ...]:
    """Return all kinds of reports of which the meaning is known, causes first."""
    source = importlib.resources.files(__package__).joinpath("reports.toml").read_text(encoding="utf-8")
    return tuple(
        ReportMeaning(
            number,
            re.compile(row["text"]),
            row["why"],
            row["remedy"],
            row.get("follows", False),
            row.get("event", ""),
            row.get("harmless", False),
        )
        for number, row in enumerate(tomllib.loads(source)["report"])
    )


@functools.lru_cache(maxsize=1 << 12)
def meaning_of(text: str) -> MatchedReport | None:
    """Return what a report means; None if that is unknown."""
    for one in report_meanings():
        found = one.text.search(text)
        if found is not None:
            start = text.rfind("\n", 0, found.start()) + 1
            line = text[start:].partition("\n")[0]
            groups = [_unsigned(group) for group in found.groups() if group is not None]
            return MatchedReport(one, line, _filled(one.why, groups), _filled(one.remedy, groups))
    return None


def _filled(text: str, groups: list[str]) -> str:
    return _GROUP.sub(lambda found: groups[int(found[1]) - 1] if int(found[1]) <= len(groups) else "?", text)
