"""Traces of 1 GB: loading, counting, following, the first screen; beside wc, grep and lnav."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, TYPE_CHECKING, Final

import pyarrow.parquet as pq

from benchmarks.rows import Bar, Is, Row
from benchmarks.trace_data import make_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

AREA: Final = "trace"
SIZE_BYTES: Final = 1_000_000_000
ANALYSED_BYTES: Final = 300_000_000
RARE: Final = "Finished solving"
COMMON: Final = "Remote group"
FOLLOW_RATE: Final = 50_000
FOLLOW_S: Final = 5.0
FOLLOW_NEEDLE: Final = "@probe"
PROBE_EVERY: Final = 50
FOLLOWED_WITHIN_S: Final = 60.0
SAMPLE_S: Final = 0.02
MEGABYTE: Final = 1_000_000
_OSPLTOOL: Final = [sys.executable, "-m", "ospltool.cli.app"]
_LNAV_FORMAT: Final = {
    "ospl_trace": {
        "title": "durability trace",
        "regex": {
            "line": {
                "pattern": r"^\S+ (?<timestamp>\d+\.\d+) (?<state>\S+) \((?<thread>[^)]*)\) -> (?<body>.*)$"
            }
        },
        "timestamp-field": "timestamp",
        "timestamp-format": ["%s.%N"],
        "value": {"state": {"kind": "string"}, "thread": {"kind": "string"}},
        "sample": [{"line": "2026-11-21T01:08:30+0000 1795223310.294122015 INIT (main) -> text"}],
    }
}


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """A command that ran: how long, its processor time and memory with those of its children, its answer."""

    seconds: float
    cpu_s: float
    peak_mb: float
    answer: str


def run(repeat: int) -> list[Row]:
    """All measurements on one trace; commands that are compared run in turn."""
    with tempfile.TemporaryDirectory(prefix="ospltool-bench-") as name:
        directory = pathlib.Path(name)
        trace = directory / "durability.log"
        records = make_trace(trace, SIZE_BYTES)
        size_mb = trace.stat().st_size / MEGABYTE
        rows = _loading(directory, trace, size_mb, records, repeat)
        rows += _counting(directory, trace, size_mb, repeat)
        rows += _first_screen(trace, repeat)
        trace.unlink()
        rows += _analysing(directory, repeat)
        rows += _following(directory, repeat)
        return rows


# ------------------------------------------------------------------ loading


def _loading(
    directory: pathlib.Path, trace: pathlib.Path, size_mb: float, records: int, repeat: int
) -> list[Row]:
    lines: list[Ran] = []
    runs: dict[str, list[Ran]] = {"records": [], "full": []}
    lnav: list[Ran] = []
    sizes: list[float] = []
    touched: list[float] = []
    for _ in range(repeat):
        lines.append(_measured(["wc", "-l", str(trace)]))
        for detail, options in (("records", ["--records-only"]), ("full", [])):
            case = directory / "case"
            command = [*_OSPLTOOL, "trace", "load", str(trace), "-o", str(case), "--json", *options]
            ran = _measured(command)
            loaded = json.loads(ran.answer)["data"]["sources"][0]["records"]
            if loaded != records:
                raise RuntimeError(f"{records} records were written, {loaded} were loaded")
            runs[detail].append(ran)
            if detail == "full":
                sizes.append(_size_mb(case) / size_mb * 100)
                touched.append(_touched_by_a_template(case))
            shutil.rmtree(case)
        lnav += _lnav(directory, trace)
    reading = _speed("wc -l", lines, size_mb, remark="as fast as the file can be read at all")
    rows = [
        reading,
        _speed(
            "load, record columns", runs["records"], size_mb, Bar(Is.AT_LEAST, 250), "exact: every record"
        ).against(reading),
        _speed("load, with level, template and fields", runs["full"], size_mb, Bar(Is.AT_LEAST, 60)).against(
            reading
        ),
    ]
    for detail, name in (("records", "record columns"), ("full", "with level, template and fields")):
        memory = tuple(one.peak_mb for one in runs[detail])
        rows.append(
            Row(
                AREA,
                f"memory of load, {name}",
                "MB",
                memory,
                bar=Bar(Is.AT_MOST, 1000),
                remark="all processes",
            )
        )
        cpu = tuple(size_mb / one.cpu_s for one in runs[detail])
        bar = Bar(Is.AT_LEAST, 250 if detail == "records" else 120)
        rows.append(Row(AREA, f"load, {name}, by processor time", "MB/s a core", cpu, bar=bar))
    rows.append(
        Row(AREA, "the case, of the log", "%", tuple(sizes), bar=Bar(Is.AT_MOST, 5), remark="random numbers")
    )
    rows.append(Row(AREA, "rows that a query by a rare template reads, at most", "%", tuple(touched)))
    if lnav:
        other = _speed(
            "lnav, count of messages", lnav, size_mb, remark="headless; glued records are lost in it"
        )
        rows.append(other)
        rows.append(
            dataclasses.replace(rows[1], name="load, record columns (again)", bar=None).against(other)
        )
    return rows


def _size_mb(directory: pathlib.Path) -> float:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / MEGABYTE


def _touched_by_a_template(case: pathlib.Path) -> float:
    """Percent of the rows in groups of rows whose statistics do not rule out the template with the fewest."""
    rows: collections.Counter[str] = collections.Counter()
    spans = []
    for path in (case / "records").rglob("*.parquet"):
        with pq.ParquetFile(path) as file:
            place = file.schema_arrow.names.index("template")
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                spans.append((group.column(place).statistics, group.num_rows))
            rows.update(file.read(["template"]).column(0).drop_null().to_pylist())
    rare = min(rows, key=rows.__getitem__)
    read = sum(count for span, count in spans if span.has_min_max and span.min <= rare <= span.max)
    return float(100 * read / sum(count for _, count in spans))


def _speed(name: str, runs: Sequence[Ran], size_mb: float, bar: Bar | None = None, remark: str = "") -> Row:
    return Row(AREA, name, "MB/s", tuple(size_mb / one.seconds for one in runs), bar=bar, remark=remark)


def _lnav(directory: pathlib.Path, trace: pathlib.Path) -> list[Ran]:
    """The viewer lnav on the same file, with a format for these traces; nothing when it is not installed."""
    if shutil.which("lnav") is None:
        return []
    home = directory / "lnav"
    formats = home / ".lnav" / "formats" / "installed"
    formats.mkdir(parents=True, exist_ok=True)
    (formats / "ospl_trace.json").write_text(json.dumps(_LNAV_FORMAT), encoding="utf-8")
    environ = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home / "none")}
    command = ["lnav", "-n", "-c", ";SELECT count(*) AS n FROM ospl_trace", str(trace)]
    ran = _measured(command, environ)
    return [ran]


# ------------------------------------------------------------------ counting


def _counting(directory: pathlib.Path, trace: pathlib.Path, size_mb: float, repeat: int) -> list[Row]:
    del directory
    rows = []
    for name, literal in (("rare", RARE), ("common", COMMON)):
        grep: list[Ran] = []
        ours: list[Ran] = []
        for _ in range(repeat):
            grep.append(_measured(["grep", "-c", literal, str(trace)]))
            ours.append(_measured([*_OSPLTOOL, "trace", str(trace), "--count", "--grep", literal]))
            if grep[-1].answer != ours[-1].answer:  # every such message is one line in this trace
                raise RuntimeError(f"grep counts {grep[-1].answer.strip()}, we {ours[-1].answer.strip()}")
        base = _speed(f"grep -c, {name} text", grep, size_mb)
        remark = f"{ours[0].answer.strip()} records"
        rows += [
            base,
            _speed(
                f"--count --grep, {name} text", ours, size_mb, Bar(Is.AT_LEAST, 1 / 3, of_ratio=True), remark
            ).against(base),
            Row(
                AREA,
                f"memory of --count, {name} text",
                "MB",
                tuple(one.peak_mb for one in ours),
                bar=Bar(Is.AT_MOST, 300),
            ),
        ]
    return rows


# ------------------------------------------------------------------ anomalies


def _analysing(directory: pathlib.Path, repeat: int) -> list[Row]:
    """Analyses of a case and of its files: by a core, for all of the processes that take part."""
    rows = []
    for name, quiet in (("a third of the records tells", False), ("few records tell", True)):
        trace, case = directory / f"{quiet}.log", directory / f"{quiet}.case"
        make_trace(trace, ANALYSED_BYTES, quiet=quiet)
        size_mb = trace.stat().st_size / MEGABYTE
        _measured([*_OSPLTOOL, "trace", "load", str(trace), "-o", str(case)])
        for what, path in (("case", case), ("files", trace)):
            command = [*_OSPLTOOL, "trace", "anomalies", str(path), "--json"]
            runs = [_measured(command, accepted=(0, 1)) for _ in range(repeat)]
            rows.append(
                Row(
                    AREA,
                    f"anomalies from {what}, {name}",
                    "MB/s a core",
                    tuple(size_mb / one.cpu_s for one in runs),
                    bar=Bar(Is.AT_LEAST, 50) if what == "case" else None,
                )
            )
            rows.append(
                Row(AREA, f"memory of the same, {what}, {name}", "MB", tuple(one.peak_mb for one in runs))
            )
        trace.unlink()
        shutil.rmtree(case)
    return rows


# ------------------------------------------------------------------ the first screen


def _first_screen(trace: pathlib.Path, repeat: int) -> list[Row]:
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        with subprocess.Popen(
            [*_OSPLTOOL, "trace", str(trace)], stdout=subprocess.PIPE, cwd=_root()
        ) as process:
            assert process.stdout is not None
            for _line in range(50):
                process.stdout.readline()
            times.append(time.perf_counter() - began)
            process.terminate()
    return [Row(AREA, "first screen of a trace of 1 GB", "s", tuple(times), bar=Bar(Is.AT_MOST, 0.5))]


# ------------------------------------------------------------------ following


def _following(directory: pathlib.Path, repeat: int) -> list[Row]:
    filtered = [_follow_once(directory, ["--grep", FOLLOW_NEEDLE]) for _ in range(repeat)]
    everything = [_follow_once(directory, []) for _ in range(repeat)]
    some = f"{FOLLOW_RATE:,} lines/s; what is shown is {1 / PROBE_EVERY:.0%} of them"
    return [
        *_follow_rows("follow with --grep", filtered, Bar(Is.AT_MOST, 10), Bar(Is.AT_MOST, 20), some),
        *_follow_rows("follow everything", everything, None, None, f"{FOLLOW_RATE:,} lines/s, all are shown"),
    ]


def _follow_rows(
    name: str, runs: list[tuple[float, float]], cpu: Bar | None, delay: Bar | None, remark: str
) -> list[Row]:
    shares, delays = zip(*runs, strict=True)
    return [
        Row(AREA, f"{name}, processor", "% of a core", shares, bar=cpu, remark=remark),
        Row(AREA, f"{name}, delay p99", "ms", delays, bar=delay),
    ]


def _follow_once(directory: pathlib.Path, options: list[str]) -> tuple[float, float]:
    """Percent of a core, and the 99th percentile of the delay in milliseconds, of following a busy writer."""
    path = directory / "follow.log"
    path.write_bytes(_line(0, 0, "begin"))
    command = [*_OSPLTOOL, "trace", str(path), "-f", "-n", "1", "--format", "template={text}", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_root()) as process:
        assert process.stdout is not None
        probes = _Probes(process.stdout)
        _write_until(path, probes.first)  # the follower has started when it has shown something
        before, began, seen = _cpu_s(process.pid), time.monotonic(), len(probes.delays)
        probes.wanted = seen + _write_at_rate(path, FOLLOW_S)
        used, took = _cpu_s(process.pid) - before, time.monotonic() - began
        if not probes.all.wait(FOLLOWED_WITHIN_S):
            raise RuntimeError(f"{len(probes.delays)} of {probes.wanted} lines were shown")
        process.terminate()
    return 100 * used / took, 1000 * statistics.quantiles(probes.delays[seen:], n=100)[98]


class _Probes:
    """Reads what a follower shows, and how old each probe is by then."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.first, self.all = threading.Event(), threading.Event()
        self.delays: list[float] = []
        self.wanted = sys.maxsize
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: IO[bytes]) -> None:
        mark = FOLLOW_NEEDLE.encode()
        for line in stream:
            if mark in line:
                self.delays.append((time.monotonic_ns() - int(line.split()[-1])) / 1e9)
                self.first.set()
                if len(self.delays) >= self.wanted:
                    self.all.set()


def _line(number: int, written_ns: int, what: str) -> bytes:
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    head = f"2026-11-21T01:08:30+0000 {seconds}.{nanoseconds:09d} COMPLETE (persistentDataListener)"
    text = f"d_storeMessageStore for group Group<partA,Topic_{number % 60:03d}> succeeded (attempt: 1)"
    return f"{head} -> {text} {what} {written_ns}\n".encode()


def _write_until(path: pathlib.Path, shown: threading.Event) -> None:
    with path.open("ab", buffering=0) as stream:
        while not shown.wait(0.05):
            stream.write(_line(0, time.monotonic_ns(), FOLLOW_NEEDLE))


def _write_at_rate(path: pathlib.Path, seconds: float) -> int:
    """Writes lines as a busy node does; some say when they were written. Returns how many do."""
    plain = _line(1, 0, "-")
    number, probes, began = 0, 0, time.monotonic()
    pause = threading.Event()
    with path.open("ab", buffering=0) as stream:
        while (elapsed := time.monotonic() - began) < seconds:
            due = int(elapsed * FOLLOW_RATE)
            marked = [one for one in range(number, due) if one % PROBE_EVERY == 0]
            probes += len(marked)
            probe = _line(1, time.monotonic_ns(), FOLLOW_NEEDLE)
            stream.write(plain * (due - number - len(marked)) + probe * len(marked))
            number = due
            pause.wait(0.002)
    return probes


# ------------------------------------------------------------------ processes


def _measured(
    command: list[str], environ: dict[str, str] | None = None, accepted: tuple[int, ...] = (0,)
) -> Ran:
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ, cwd=_root(), text=True
    ) as process:
        assert process.stdout is not None
        peak = _Peak(process.pid)
        answer = process.stdout.read()
        before = os.times()
        process.wait()
        seconds = time.perf_counter() - began
        peak.end()
    after = os.times()
    if process.returncode not in accepted:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Ran(seconds, cpu, peak.megabytes, answer)


class _Peak:
    """The largest sum of the memory of a process and of all below it. Shared pages count once (PSS)."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.megabytes = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.megabytes = max(self.megabytes, sum(map(_pss_mb, _tree(self._pid))))

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))


def _pss_mb(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024 / MEGABYTE
    return 0.0


def _cpu_s(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _root() -> pathlib.Path:
    return pathlib.Path(__file__).resolve().parents[1]
