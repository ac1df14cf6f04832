"""Rounds of faults on real nodes, and named scenarios.

`--minutes 30 --seed 7` runs rounds, `--round SEED` one of them again, `--case NAME --repeat 20` a scenario,
`--soak 30 --seed 7` cuts links and checks what all readers see.
Exit codes: 0 nothing was violated, 1 a promise was broken or a bar missed, 2 wrong usage, 4 no
namespaces here.
"""

from __future__ import annotations

import argparse
import collections
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chaos import capsule

if TYPE_CHECKING:
    from chaos.rounds import Report

CASES: Final = ("rolling-restart", "stale-first", "cut-from-master", "damaged-store", "busy-merge")
EXIT_VIOLATED: Final = 1
EXIT_FORBIDDEN: Final = 4
_SEEDS: Final = 1_000
"""Round N of a campaign has this many times the campaign's seed, plus N."""


def main(arguments: list[str]) -> int:
    """Enter the capsule, and run there what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--case", choices=CASES, help="run a named scenario")
    what.add_argument("--soak", type=float, metavar="MINUTES", help="cut links and check all readers")
    what.add_argument("--round", type=int, metavar="SEED", help="run one round again")
    what.add_argument("--minutes", type=float, help="run rounds for N minutes")
    what.add_argument("--rounds", type=int, help="run N rounds (default: 1)")
    parser.add_argument("--seed", type=int, default=1, help="choose the rounds")
    parser.add_argument("--short", action="store_true", help="three nodes and one step in each round")
    parser.add_argument("--faults", default="", help="draw from these faults only, as in kill-node,split")
    parser.add_argument(
        "--promise", choices=("plain", "durable"), default="", help="of the writers in rounds"
    )
    parser.add_argument(
        "--first", type=int, choices=(0, 1, 2), default=2, help="stale-first: who starts first"
    )
    parser.add_argument("--samples", type=int, default=200_000, help="busy-merge: the common set")
    parser.add_argument("--burners", type=int, default=2, help="busy-merge: processes that keep cores busy")
    parser.add_argument("--repeat", type=int, default=1, help="run the case N times")
    parser.add_argument("--unicast", action="store_true", help="disallow multicast in the case")
    parser.add_argument("--keep", type=Path, help="keep what violations leave behind here (default: /tmp)")
    options = parser.parse_args(arguments)
    if not capsule.is_inside():
        try:
            return capsule.enter(arguments)
        except capsule.Forbidden as reason:
            print(f"chaos: nothing was run: {reason}", file=sys.stderr)
            return EXIT_FORBIDDEN
    capsule.prepare()
    if options.soak is not None:
        return _soak(options)
    return _cases(options) if options.case else _rounds(parser, options)


def _soak(options: argparse.Namespace) -> int:
    from chaos.soak import run_soak

    with _Place(options, f"soak-{options.seed}") as place:
        violations = run_soak(place.directory, options.seed, options.soak)
        place.is_wanted = bool(violations)
        if violations:
            print(f"  kept: {place.directory}")
    return EXIT_VIOLATED if violations else 0


def _rounds(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from chaos.nemesis import faults
    from chaos.rounds import run_round

    names = [name for name in options.faults.split(",") if name]
    if unknown := set(names) - faults().keys():
        parser.error(f"unknown faults {', '.join(sorted(unknown))}; there are {', '.join(sorted(faults()))}")
    reports: list[Report] = []
    began = time.monotonic()
    while not reports or _goes_on(options, time.monotonic() - began, len(reports)):
        seed = options.seed * _SEEDS + len(reports) if options.round is None else options.round
        with _Place(options, f"round-{seed}") as place:
            report = run_round(seed, place.directory, names, options.promise, short=options.short)
            place.is_wanted = bool(report.violations)
        reports.append(report)
        print(report.line(), flush=True)
        if report.violations:
            more = " --short" if options.short else ""
            more += f" --faults {options.faults}" if names else ""
            more += f" --promise {options.promise}" if options.promise else ""
            print(*(f"  {text}" for text in report.violations), sep="\n")
            print(f"  kept: {place.directory}; again: python -m chaos --round {seed}{more}", flush=True)
    if options.round is None:
        print(_table(reports, time.monotonic() - began))
    return EXIT_VIOLATED if any(report.violations for report in reports) else 0


def _goes_on(options: argparse.Namespace, seconds: float, rounds: int) -> bool:
    if options.minutes is not None:
        return bool(seconds < options.minutes * 60)
    return bool(options.round is None and rounds < (options.rounds or 1))


def _table(reports: list[Report], seconds: float) -> str:
    """The table of docs/internals/reliability.md."""
    from chaos.nemesis import faults

    rounds: collections.Counter[str] = collections.Counter()
    violated: collections.Counter[str] = collections.Counter()
    for report in reports:
        rounds.update(set(report.faults))
        violated.update(set(report.faults) if report.violations else ())
    lines = ["| Fault | What it does | Rounds | Violated |", "|---|---|---|---|"]
    for name, function in faults().items():
        meaning = " ".join((function.__doc__ or "").split())
        lines.append(f"| {name} | {meaning} | {rounds[name]} | {violated[name]} |")
    total = sum(bool(report.violations) for report in reports)
    lines.append(f"| **all** | | **{len(reports)}** | **{total}** |")
    confirmed = sum(report.confirmed for report in reports)
    count = sum(len(report.faults) for report in reports)
    lines.append("")
    lines.append(
        f"{len(reports)} rounds, {count} faults, {confirmed:,} confirmed samples in {seconds / 60:.0f} "
        f"minutes on {os.cpu_count()} cores, load {os.getloadavg()[1]:.1f}."
    )
    return "\n".join(lines)


class _Place:
    """A directory that goes unless it `is_wanted`."""

    def __init__(self, options: argparse.Namespace, name: str) -> None:
        self.is_wanted = False
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
        self.directory = Path(tempfile.mkdtemp(prefix=f"ospltool-chaos-{name}-", dir=options.keep))
        self.directory.chmod(0o755)

    def __enter__(self) -> _Place:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_wanted:
            shutil.rmtree(self.directory, ignore_errors=True)


def _cases(options: argparse.Namespace) -> int:
    from chaos.cases import run_case
    from chaos.ground import Violation

    failed = 0
    label = f"{options.case} --first {options.first}" if options.case == "stale-first" else options.case
    for number in range(1, options.repeat + 1):
        began = time.monotonic()
        with _Place(options, f"{options.case}-{number}") as place:
            try:
                result = run_case(place.directory, options)
                line, missed = result.line(), result.missed
            except (Violation, AssertionError) as error:
                line, missed = "", [str(error)]
            place.is_wanted = bool(missed) and options.keep is not None
        failed += bool(missed)
        print(
            f"{label} {number}/{options.repeat}: {'FAILED' if missed else 'ok'}  {line}"
            f"  ({time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f})"
        )
        print(*(f"  {text}" for text in missed), sep="\n", end="\n" if missed else "", flush=True)
    print(f"{label}: {options.repeat - failed} of {options.repeat} kept the promise")
    return EXIT_VIOLATED if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
