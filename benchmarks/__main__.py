"""`python -m benchmarks --area AREA [--repeat N] [--json FILE]`: all, or one of `AREAS`.

Exit codes: 0 every bar is reached, 1 one is missed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.rows import Row, table

AREAS: Final = (
    "start",
    "crowd",
    "simulator",
    "capture",
    "large",
    "trickle",
    "deliver",
    "topics",
    "history",
    "million",
    "alive",
    "align",
    "merge",
    "reconcile",
    "sets",
    "store",
    "trace",
    "fleet",
    "console",
    "redundancy",
)
FORMAT_VERSION: Final = 1


def main() -> int:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--area", choices=("all", *AREAS), default="all")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions of each measurement")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    where = machine.describe()
    for name, text in where.items():
        print(f"{name}: {text}")
    rows: list[Row] = []
    for area in AREAS if options.area == "all" else (options.area,):
        rows += _measure(area, options.repeat)
    print(table(rows))
    if options.json:
        data = {"machine": where, "repeat": options.repeat, "rows": [row.to_plain() for row in rows]}
        document = {"format_version": FORMAT_VERSION, "kind": "benchmarks", "data": data}
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if any(row.holds is False for row in rows) else 0


def _measure(area: str, repeat: int) -> list[Row]:
    name = f"benchmarks.{area}"
    if importlib.util.find_spec(name) is None:
        print(f"area {area}: not measured, {name} is not there", file=sys.stderr)
        return []
    print(f"area {area} ...", file=sys.stderr)
    rows: list[Row] = importlib.import_module(name).run(repeat)
    return rows


if __name__ == "__main__":
    sys.exit(main())
