"""Enemies of readers: nothing hangs, nothing is fetched, nothing but a finding comes out."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from ospltool.cli.app import main
from tests.machine import check_ratio, child_s, slowness, typer_s

HERE = Path(__file__).parent
BUSY = 2.0
"""An enemy takes 0.1 s at most on an idle machine; other tests that empty its caches may double that."""
CHECK_PER_TYPER = 20
"""A check of 200 files to a bare import of Typer: 10 is usual."""

LAUGHS = (
    '<!DOCTYPE OpenSplice [<!ENTITY l0 "lol">'
    + "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))
    + "]><OpenSplice>&l9;</OpenSplice>"
)
ENEMIES: dict[str, Callable[[], bytes]] = {
    "billion laughs": lambda: LAUGHS.encode(),
    "external entity": lambda: (
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "http://127.0.0.1:9/x">]><OpenSplice>&x;</OpenSplice>'
    ),
    "external document type": lambda: (
        b'<!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd"><OpenSplice>&x;</OpenSplice>'
    ),
    "comments before a document type": lambda: b" <!---->" * 100_000 + b"<!DOCTYPE a",
    "deep": lambda: b"<OpenSplice>" * 10_000,
    "many elements": lambda: b"<OpenSplice>" + b"<a/>" * 250_000,
    "many attributes": lambda: b"<OpenSplice " + b" ".join(b"a%d='1'" % n for n in range(80_000)) + b"/>",
    "NUL": lambda: b"<OpenSplice>\0</OpenSplice>",
    "UTF-16": lambda: "<OpenSplice/>".encode("utf-16"),
    "UTF-32": lambda: "<OpenSplice/>".encode("utf-32"),
    "not UTF-8": lambda: b"<OpenSplice>\xfe\xff</OpenSplice>",
    "lies about its encoding": lambda: b'<?xml version="1.0" encoding="UTF-16"?><OpenSplice/>',
    "unknown encoding": lambda: b'<?xml version="1.0" encoding="klingon"?><OpenSplice/>',
    "open comment": lambda: b"<OpenSplice><!--" + b"-a" * 400_000,
    "open section": lambda: b"<OpenSplice><![CDATA[" + b"]]" * 400_000,
    "open tag": lambda: b"<OpenSplice a='" + b"x" * 900_000,
    "not XML": lambda: bytes(range(1, 256)) * 1000,
    "nothing": lambda: b"",
}


# Runs in a process of its own, and each file in a fork of it, which has what it needs before it measures.
MEASURE = """
import json, os, sys, time
from engine.config import ConfigError, load
from tests.machine import count_s, peak_bytes
for path in sys.argv[1:]:
    if os.fork():
        os.wait()
        continue
    best = count = 1e9
    for _ in range(3):
        count = min(count, count_s())
        began = time.process_time()
        try:
            load(path, {})
            problems = []
        except ConfigError as error:
            problems = [(p.line, p.column, p.message) for p in error.problems]
        best = min(best, time.process_time() - began)
    print(json.dumps([best, count, peak_bytes(), problems]), flush=True)
    os._exit(0)
"""


def test_an_enemy_is_an_error_with_a_place_at_once_and_within_50_mb(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in (*ENEMIES, "300 MB")]
    for path, content in zip(paths, ENEMIES.values(), strict=False):
        path.write_bytes(content())
    with paths[-1].open("wb") as file:
        file.write(b"<OpenSplice>" + b"<a/>" * 100_000)
        file.truncate(300_000_000)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, paths)],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    for path, measured in zip(paths, done.stdout.splitlines(), strict=True):
        best_s, count_s, memory_bytes, problems = json.loads(measured)
        assert problems, path
        assert all(line >= 1 and column >= 1 for line, column, _ in problems), path
        assert best_s < 0.1 * BUSY * slowness(count_s), path
        assert memory_bytes < 50_000_000, path
        assert main(["check", str(path), "-o", f"{path}.out"]) == 2, path


@pytest.mark.parametrize("name", ["hang", "directory", "device"])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    path = {"hang": tmp_path / "missing" / "f.xml", "directory": tmp_path, "device": Path("/dev/zero")}[name]
    uri = f"file://{path}"
    assert main(["check", uri, "-o", str(tmp_path / "out")]) == 2


def test_200_files_of_5_kb_take_little_time(tmp_path: Path, clean: str) -> None:
    """Less than a second on the machine that bars are meant for, 10 times a bare import of Typer."""
    padded = clean.replace("</OpenSplice>", f"<!-- {'x' * (5_000 - len(clean))} --></OpenSplice>")
    for number in range(200):
        (tmp_path / f"f{number}.xml").write_text(padded.replace("ships", f"ships{number}"))
    check = ["-m", "ospltool.cli.app", "check", str(tmp_path)]
    done = subprocess.run([sys.executable, *check], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert b"in 200 files" in done.stderr
    check_ratio(lambda: child_s(check), typer_s, CHECK_PER_TYPER)


@pytest.fixture(scope="session")
def fuzzer() -> ModuleType:
    """The fuzz harness beside this file."""
    spec = importlib.util.spec_from_file_location("fuzz_check", HERE / "fuzz_check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_mutated_configurations_give_findings_and_never_a_fault(fuzzer: ModuleType, clean: str) -> None:
    assert fuzzer.fuzz(400, seed=20_260_101, clean=clean, until_s=20.0) == []


def test_the_fuzz_harness_would_notice_a_fault(
    fuzzer: ModuleType, clean: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(fuzzer, "exercise", fail)
    (fault,) = fuzzer.fuzz(1, seed=1, clean=clean)
    assert "planted" in fault
