"""Fleets of equal domains: processor time for each GB, here and with Spark."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from benchmarks.rows import Bar, Is, Row
from benchmarks.trace import MEGABYTE, _cpu_s, _tree
from benchmarks.trace_data import make_trace
from ospltool.analytics.case import open_case
from ospltool.analytics.contract import Detail
from ospltool.analytics.duck import DuckEngine
from ospltool.analytics.spark import SparkEngine, end, session
from ospltool.forensics.evidence import CaseEvidence
from ospltool.forensics.fleet import Keeping, investigations
from ospltool.trace.case.loading import load_case
from ospltool.trace.case.reading_back import Window
from ospltool.trace.reading.sources import find_sources

if TYPE_CHECKING:
    from collections.abc import Sequence

AREA: Final = "fleet"
FLEETS: Final = (10, 100)
NODES: Final = 2
NODE_BYTES: Final = 2 * MEGABYTE
SKEW: Final = 20
"""Times the size of the others that one domain of the skewed fleet has."""

MASTER: Final = "local[2]"


def run(repeat: int) -> list[Row]:
    """Measure each fleet with the engine of one machine and with Spark, in a session that is warm."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="ospltool-bench-") as name, contextlib.ExitStack() as stack:
        directory = pathlib.Path(name)
        opened = session(MASTER)
        stack.callback(end, opened)
        _both(directory, _fleet(directory / "warm", [NODE_BYTES] * 2), opened)
        for domains in FLEETS:
            logs = _fleet(directory / f"{domains}", [NODE_BYTES] * domains)
            rows += _rows(directory, f"{domains} domains", logs, opened, repeat)
            shutil.rmtree(logs)
        logs = _fleet(directory / "skewed", [SKEW * NODE_BYTES, *[NODE_BYTES] * 10])
        rows += _rows(directory, f"11 domains, one {SKEW} times as large", logs, opened, repeat)
    return rows


def _fleet(directory: pathlib.Path, sizes: Sequence[int]) -> pathlib.Path:
    """Make a domain of each size: one trace for each node, of which few records tell something."""
    for number, size in enumerate(sizes):
        for node in range(NODES):
            log = directory / f"domain=d{number}" / f"n{node}" / "durability.log"
            log.parent.mkdir(parents=True)
            make_trace(log, size, NODES * number + node + 1, quiet=True)
            # It writes blocks of 27 MB, of which a hundred domains would take gigabytes.
            log.write_bytes(log.read_bytes()[:size].rpartition(b"\n")[0] + b"\n")
    return directory


def _rows(directory: pathlib.Path, name: str, logs: pathlib.Path, opened: Any, repeat: int) -> list[Row]:
    size_gb = sum(path.stat().st_size for path in logs.rglob("*.log")) / 1000 / MEGABYTE
    runs = [_both(directory, logs, opened) for _ in range(repeat)]
    rows = []
    for what in ("load", "judge"):
        local = tuple(one[what, "here"] / size_gb for one in runs)
        spark = tuple(one[what, "Spark"] / size_gb for one in runs)
        rows.append(Row(AREA, f"{what}, {name}, here", "s of a core/GB", local))
        rows.append(Row(AREA, f"{what}, {name}, Spark", "s of a core/GB", spark))
        ratio = tuple(one / other for one, other in zip(local, spark, strict=True))
        rows.append(Row(AREA, f"{what}, {name}: Spark of here", "ratio", ratio, bar=Bar(Is.AT_LEAST, 0.7)))
        wall = tuple(one[what, "wall"] for one in runs)
        rows.append(Row(AREA, f"{what}, {name}, Spark on 2 cores", "s", wall))
    return rows


def _both(directory: pathlib.Path, logs: pathlib.Path, opened: Any) -> dict[tuple[str, str], float]:
    """Load and judge a fleet with both engines; return processor time and wall time."""
    found: dict[tuple[str, str], float] = {}
    sources = find_sources([str(logs)]).sources
    for engine, master in (("here", None), ("Spark", MASTER)):
        case = directory / f"case-{engine}"

        def load(case: pathlib.Path = case, master: str | None = master) -> None:
            load_case(sources, case, Detail.FULL, master, opened=opened if master else None)

        def judge(case: pathlib.Path = case, master: str | None = master) -> None:
            kept = open_case(case)
            reader = SparkEngine(kept, MASTER, opened=opened) if master else DuckEngine(kept, is_frugal=True)
            with contextlib.closing(reader):
                evidence = CaseEvidence(kept, reader)
                keeping = Keeping(case.absolute(), dict.fromkeys(evidence.domains, "bench"))
                assert len(list(investigations(evidence, Window(), {}, keeping=keeping))) > 1

        for what, work in (("load", load), ("judge", judge)):
            found[what, engine], found[what, "wall"] = _timed(work)
        shutil.rmtree(case)
    return found


def _timed(work: Callable[[], None]) -> tuple[float, float]:
    """Return the processor time of this process and all below it while some work is done, and the time."""
    before, began = _all_cpu_s(), time.perf_counter()
    work()
    return _all_cpu_s() - before, time.perf_counter() - began


def _all_cpu_s() -> float:
    ended = os.times()
    alive = 0.0
    for pid in _tree(os.getpid()):
        with contextlib.suppress(OSError):
            alive += _cpu_s(pid)
    return alive + ended.children_user + ended.children_system
