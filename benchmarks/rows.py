"""What a measurement says: values of several repetitions, a comparison within the same run, and a bar."""

from __future__ import annotations

import dataclasses
import enum
import statistics
from typing import Any


class Is(enum.Enum):
    """Which way a bar is meant."""

    AT_MOST = "<="
    AT_LEAST = ">="


@dataclasses.dataclass(frozen=True, slots=True)
class Bar:
    """What has to be reached, by the median of the values or, with `of_ratio`, by that of the ratios."""

    way: Is
    limit: float
    of_ratio: bool = False

    def holds(self, value: float) -> bool:
        """Whether `value` reaches the bar."""
        return value <= self.limit if self.way is Is.AT_MOST else value >= self.limit

    def __str__(self) -> str:
        return f"{self.way.value} {self.limit:g}{' of it' if self.of_ratio else ''}"


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        area, name: what was measured.
        unit: of the values.
        values: one of each repetition, in order.
        compared_to: name of the row that this one is held against.
        baseline: the values of that row, repetition by repetition.
        bar: what must be reached, None where nothing is promised.
        remark: how to read it.
    """

    area: str
    name: str
    unit: str
    values: tuple[float, ...]
    compared_to: str = ""
    baseline: tuple[float, ...] = ()
    bar: Bar | None = None
    remark: str = ""

    @property
    def median(self) -> float:
        """The median of the values."""
        return statistics.median(self.values)

    @property
    def ratio(self) -> float | None:
        """The median of the ratios to the baseline, each within one repetition."""
        if not self.baseline:
            return None
        return statistics.median(a / b for a, b in zip(self.values, self.baseline, strict=True))

    @property
    def holds(self) -> bool | None:
        """Whether the bar is reached; None without one."""
        if self.bar is None:
            return None
        value = self.ratio if self.bar.of_ratio else self.median
        return value is not None and self.bar.holds(value)

    def against(self, other: Row, bar: Bar | None = None) -> Row:
        """This row, held against another one of the same repetitions."""
        return dataclasses.replace(self, compared_to=other.name, baseline=other.values, bar=bar or self.bar)

    def to_plain(self) -> dict[str, Any]:
        """The row as JSON values."""
        return {
            "area": self.area,
            "name": self.name,
            "unit": self.unit,
            "values": list(self.values),
            "median": self.median,
            "min": min(self.values),
            "max": max(self.values),
            "compared_to": self.compared_to,
            "ratio": self.ratio,
            "bar": str(self.bar) if self.bar else "",
            "holds": self.holds,
            "remark": self.remark,
        }


def table(rows: list[Row]) -> str:
    """The rows as text in columns."""
    lines: list[tuple[str, ...]] = [("what", "unit", "median", "min", "max", "ratio", "bar", "")]
    for row in rows:
        ratio = f"{row.ratio:.2f} of {row.compared_to}" if row.ratio is not None else ""
        verdict = {None: "", True: "holds", False: "MISSED"}[row.holds]
        numbers = [_number(value) for value in (row.median, min(row.values), max(row.values))]
        bar = str(row.bar) if row.bar else ""
        lines.append((f"{row.area}: {row.name}", row.unit, *numbers, ratio, bar, verdict))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = []
    for line in lines:
        cells = [
            cell.rjust(width) if 2 <= column <= 4 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
    remarks = [f"{row.area}: {row.name}: {row.remark}" for row in rows if row.remark]
    return "\n".join([*text, *([""] if remarks else []), *remarks])


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
