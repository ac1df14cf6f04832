"""What the reports of OpenSplice and Cyclone DDS mean (`reports.toml`): cause and remedy."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import re
import tomllib
from typing import Final

_GROUP: Final = re.compile(r"\{(\d)\}")


@dataclasses.dataclass(frozen=True, slots=True)
class ReportMeaning:
    """One kind of report.

    Attributes:
        number: its place in the table; causes have lower ones than what follows from them.
        text: expression that is found in such a report.
        why: what it proves, with `{1}` for a group of the expression.
        remedy: what to do.
        follows: whether another report of the same moment says the cause.
        is_harmless: whether it is no fault.
    """

    number: int
    text: re.Pattern[str]
    why: str
    remedy: str
    follows: bool
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
            groups = [group for group in found.groups() if group is not None]
            return MatchedReport(one, line, _filled(one.why, groups), _filled(one.remedy, groups))
    return None


def _filled(text: str, groups: list[str]) -> str:
    return _GROUP.sub(lambda found: groups[int(found[1]) - 1] if int(found[1]) <= len(groups) else "?", text)
