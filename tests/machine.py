"""How fast this machine is while a test runs: bars on time are ratios to work done beside what is measured.

All times are processor time. What else the machine does slows the work down, and the reference just as much.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNT_S = 0.01
"""What `count_s` gives on the machine that bars in seconds are meant for."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 24


def count_s() -> float:
    """The processor time in which this process counts to a million now."""
    began = time.process_time()
    for _ in range(1_000_000):
        pass
    return time.process_time() - began


def slowness(seconds: float) -> float:
    """How much slower a machine is where `count_s` gave this than the one bars are meant for; at least 1."""
    return max(seconds / COUNT_S, 1.0)


def child_s(arguments: Sequence[str]) -> float:
    """The processor time of a fresh interpreter with these arguments from start to end; it must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ.get("PATH", "")},
        capture_output=True,
        check=True,
        timeout=60,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def peak_bytes(pid: int | str = "self") -> int:
    """The most memory that a process has had since it began its program.

    `ru_maxrss` would not do: it begins with the peak of what the process was forked from, and never falls.
    """
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024


def typer_s() -> float:
    """The processor time of an interpreter that only imports Typer: a reference for commands."""
    return child_s(["-c", "import typer"])


def check_ratio(own_s: Callable[[], float], reference_s: Callable[[], float], limit: float) -> None:
    """The best of `own_s` is below `limit` times the best of `reference_s`, measured in turn.

    Bad luck is given the time to pass: rounds go on until the ratio is below the limit, up to `MOST_ROUNDS`.
    """
    own = reference = float("inf")
    for number in range(1, MOST_ROUNDS + 1):
        reference = min(reference, reference_s())
        own = min(own, own_s())
        if number >= LEAST_ROUNDS and own < limit * reference:
            return
    raise AssertionError(
        f"{own:.3f} s are {own / reference:.2f} times {reference:.3f} s; {limit:g} are allowed"
    )
