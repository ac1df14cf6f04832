"""Comparing stores, held against the bare join of keys and digests in DuckDB."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import duckdb

from benchmarks import store as plain
from benchmarks.rows import Bar, Is, Row
from benchmarks.store_snapshots import Others, make
from engine.dataset.sample import DATA, make_sample
from engine.node.disk import open_store
from engine.store.interface import DamageLog
from ospltool.stores.diff.compare import CompareOptions, compare
from ospltool.stores.model import RANGES_FILE, SAMPLES_FILE
from ospltool.stores.opening import open_reader
from ospltool.stores.snapshot import COMPARED, write_snapshot

LARGE: Final = "OSPLTOOL_BENCH_LARGE"
"""With this variable, 40 million rows are compared, too, which takes some minutes and 3 GB of disk."""
COUNT: Final = 10_000_000
LARGE_COUNT: Final = 40_000_000
STORED: Final = 1_000_000
MAX_REPEAT: Final = 3
MEMORY: Final = 4 << 30
_JOIN: Final = """
    SELECT count(*) FROM read_parquet('{}') AS a FULL OUTER JOIN read_parquet('{}') AS b
      ON a.group_code = b.group_code AND a.key = b.key
      AND a.digest_high = b.digest_high AND a.digest_low = b.digest_low
    WHERE a.group_code IS NULL OR b.group_code IS NULL"""


def run(area: str, repeat: int) -> list[Row]:
    """The rows of the table."""
    with tempfile.TemporaryDirectory(prefix="ospltool-bench-") as name:
        directory = Path(name)
        rows = _snapshots(area, directory, min(repeat, MAX_REPEAT))
        rows.append(_from_sqlite(area, directory, min(repeat, MAX_REPEAT)))
        if os.environ.get(LARGE):
            rows += _large(area, directory)
    return rows


def _snapshots(area: str, directory: Path, repeat: int) -> list[Row]:
    """Compare snapshots whose differences lie together, as after a node was cut off, or are spread evenly."""
    left = directory / "left"
    make(left, COUNT, Others.NONE)
    rows = []
    for others in (Others.LATEST, Others.SPREAD):
        right = directory / others.value
        differing = make(right, COUNT, others)
        joins, compared = [], []
        joins_cpu, compared_cpu = [], []
        for _ in range(repeat):
            began, began_cpu = time.monotonic(), time.process_time()
            found = _bare_join(left, right)
            joins.append(time.monotonic() - began)
            joins_cpu.append(time.process_time() - began_cpu)
            began_cpu = time.process_time()
            compared.append(_compared(left, right, differing))
            compared_cpu.append(time.process_time() - began_cpu)
            if found != 2 * differing:
                raise RuntimeError(f"{found} rows, not {2 * differing}")
        what = f"2 x 10 million rows, 0.1 % differ: {others.value}"
        bare = Row(area, f"bare join of {what}", "s", tuple(joins))
        row = Row(area, f"diff of {what}", "s", tuple(compared))
        rows += [bare, row.against(bare, Bar(Is.AT_MOST, 0.3, of_ratio=True))]
        bare_cpu = Row(area, f"processor time of the bare join, {others.value}", "s", tuple(joins_cpu))
        row = Row(area, f"processor time of the diff, {others.value}", "s", tuple(compared_cpu))
        rows += [bare_cpu, row.against(bare_cpu)]
        if others is Others.SPREAD:
            for side in (left, right):
                (side / RANGES_FILE).unlink()
            without = tuple(_compared(left, right, differing) for _ in range(repeat))
            rows.append(
                Row(area, "the same without digests of ranges", "s", without).against(
                    bare, Bar(Is.AT_MOST, 1.2, of_ratio=True)
                )
            )
    return rows


def _compared(left: Path, right: Path, differing: int) -> float:
    began = time.monotonic()
    report = compare([str(left), str(right)], CompareOptions(memory_bytes=MEMORY))
    seconds = time.monotonic() - began
    if report.differing != differing:
        raise RuntimeError(f"{report.differing} instances, not {differing}")
    return seconds


def _bare_join(left: Path, right: Path) -> int:
    with (
        tempfile.TemporaryDirectory(prefix="ospltool-bench-") as scratch,
        duckdb.connect(
            config={
                "memory_limit": f"{MEMORY >> 20}MiB",
                "temp_directory": scratch,
                "preserve_insertion_order": False,
            }
        ) as connection,
    ):
        found = connection.execute(_JOIN.format(left / SAMPLES_FILE, right / SAMPLES_FILE)).fetchone()
    assert found is not None
    return int(found[0])


def _from_sqlite(area: str, directory: Path, repeat: int) -> Row:
    """An ospltool store, read, verified and brought to the form in which it is compared."""
    path = directory / "store"
    _fill(path)
    seconds = []
    for number in range(repeat):
        began = time.monotonic()
        reader = open_reader(path)
        damage = DamageLog()
        written = write_snapshot(reader, directory / f"spooled{number}", reader.facts.sets, damage, COMPARED)
        reader.close()
        seconds.append(time.monotonic() - began)
        if written.samples != STORED or damage.count:
            raise RuntimeError(f"{written.samples} samples, {damage.count} damaged")
    name = "read and verify 1 million rows from SQLite"
    return Row(area, name, "s", tuple(seconds), bar=Bar(Is.AT_MOST, 1.5))


def _fill(path: Path) -> None:
    store = open_store(path, "bench")
    writer = store.begin_set(plain.NAME_SPACE)
    for start in range(0, STORED, 10_000):
        writer.add(
            plain.DESCRIPTION,
            [
                make_sample(1_000 + number, b"w" * 16, DATA, number.to_bytes(4), bytes(plain.SIZE))
                for number in range(start, start + 10_000)
            ],
        )
    store.commit_complete(writer)
    store.close()


def _large(area: str, directory: Path) -> list[Row]:
    """In a process of its own, whose memory nobody else used before."""
    left, right = directory / "left-large", directory / "right-large"
    make(left, LARGE_COUNT, Others.NONE)
    differing = make(right, LARGE_COUNT, Others.SPREAD)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.store_diff", str(left), str(right)],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds = time.monotonic() - began
    found, mib = map(int, done.stdout.split())
    if found != differing:
        raise RuntimeError(f"{found} instances, not {differing}")
    limit = Bar(Is.AT_MOST, 1024)
    return [
        Row(area, "diff of 2 x 40 million rows, 1 GiB given", "s", (seconds,)),
        Row(area, "memory of that process", "MiB", (float(mib),), bar=limit),
    ]


def _main(left: str, right: str) -> None:
    report = compare([left, right], CompareOptions())
    status = Path("/proc/self/status").read_text(encoding="ascii")  # getrusage has what the parent took, too
    peak_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    print(report.differing, peak_kib >> 10)


if __name__ == "__main__":
    _main(*sys.argv[1:])
