"""Each domain is judged by itself, alike from files, with DuckDB, and on the executors of Spark."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")
pytest.importorskip("duckdb", reason="SQL needs the extra `sql`")

from ospltool.analytics.case import open_case
from ospltool.analytics.contract import Detail
from ospltool.analytics.duck import DuckEngine
from ospltool.analytics.engines import Engine
from ospltool.analytics.spark import SparkEngine
from ospltool.cli.app import main
from ospltool.forensics import fleet, text
from ospltool.forensics.attachments import attach, find_attachments, kept_in
from ospltool.forensics.evidence import CaseEvidence, copies_in, suspected_in
from ospltool.trace.case.loading import load
from ospltool.trace.case.reading_back import Window, files_by_domain, uncalm_domains
from ospltool.trace.reading import damage
from ospltool.trace.reading.sources import find_sources
from tests.analytics.java_classes import java_classes
from tests.forensics.test_damaged_evidence import log_of, set_clock

__all__ = ["java_classes"]

pytestmark = pytest.mark.timeout(400)  # virtual machines for Java start slowly where others work too

MIDDLE_NS = 1_795_223_311 * 10**9


def _set_clock(domain: pathlib.Path) -> None:
    set_clock(log_of(domain, "n2"), 180)


def _copy(domain: pathlib.Path) -> None:
    shutil.copy(log_of(domain, "n1"), domain / "n3" / "durability-copy.log")


def _overlap(domain: pathlib.Path) -> None:
    """Two files of one node at the same time, so all rows of the domain are read."""
    log = log_of(domain, "n1")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[::2]))
    (domain / "n1" / "durability.log.1").write_bytes(b"".join(lines[1::2]))


def _cut(domain: pathlib.Path) -> None:
    log = log_of(domain, "n1")
    log.write_bytes(log.read_bytes()[:-2_000])


def _silent(domain: pathlib.Path) -> None:
    shutil.rmtree(domain)
    (domain / "n1").mkdir(parents=True)
    (domain / "n1" / "durability.log").write_bytes(b"no record\n" + b"INIT (t) -> no time\n" * 3)


DOMAINS: dict[str, tuple[str, Callable[[pathlib.Path], None] | None]] = {
    "healthy": ("late-joiner", None),
    "it's a [livelock]%": ("master-livelock", None),
    "own": ("own-engine", None),
    "wrong clock": ("late-joiner", _set_clock),
    "copy": ("late-joiner", _copy),
    "overlapping": ("late-joiner", _overlap),
    "cut": ("master-livelock", _cut),
    "silent": ("late-joiner", _silent),
}


@pytest.fixture(scope="module")
def logs(samples: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Domains with every trouble that changes which rows are read, in which order, or how often."""
    directory = tmp_path_factory.mktemp("fleet")
    for name, (sample, damaging) in DOMAINS.items():
        domain = directory / f"domain={name}"
        shutil.copytree(samples / sample, domain)
        if damaging is not None:
            damaging(domain)
    return directory


def test_the_command_asks_for_one_domain_or_judges_all(
    logs: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    case = str(tmp_path / "case")
    assert main(["trace", "load", str(logs), "-o", case]) == 1, "one file is cut"
    outputs = []
    for name in (case, str(logs)):
        capfd.readouterr()
        assert main(["trace", "anomalies", name, "--json", "--traces-only"]) == 1
        outputs.append(json.loads(capfd.readouterr().out)["data"]["domains"])
    assert outputs[0] == outputs[1]
    assert [one["domain"] for one in outputs[0]] == sorted(DOMAINS)
    assert main(["trace", "anomalies", case, "--json", "--traces-only", "--domain", "healthy"]) == 0
    assert json.loads(capfd.readouterr().out)["data"] in outputs[0]
    for command in (["trace", "timeline", case], ["report", case], ["trace", "conversation", "p.T", case]):
        assert main(command) == 2
        assert "choose one with --domain" in capfd.readouterr().err
        assert main([*command, "--domain", "x\x1b[1m"]) == 2
        said = capfd.readouterr().err
        assert "no domain" in said
        assert "\x1b" not in said
    page = tmp_path / "report.html"
    assert main(["report", case, "--domain", "it's a [livelock]%", "-o", str(page)]) == 1
    assert "master-livelock" in page.read_text()
    capfd.readouterr()
    counted = "select count(*) as n, count(distinct domain) as d from records"
    assert main(["sql", case, counted, "--format", "csv", "--domain", "silent"]) == 0
    assert capfd.readouterr().out.splitlines() == ["n,d", "4,1"]


@pytest.fixture(scope="module")
def spark(java_classes: str, logs: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    del java_classes
    case = tmp_path_factory.mktemp("first") / "case"
    load(find_sources([str(logs)]).sources, case)
    opened = SparkEngine(open_case(case), "local[2]")
    yield opened.session
    opened.close()


def concluded(
    case: pathlib.Path, engine: Engine, window: Window, skews: dict[str, int], **options: Any
) -> tuple[dict[str, Any], list[damage.FileDamage]]:
    """What is concluded of each domain, as JSON and as text; and the damaged files."""
    damage.collect()
    evidence = CaseEvidence(open_case(case), engine, kept_in(case))
    found = {
        one.name: (json.dumps(text.as_value(one.drawn)), list(text.as_text(one.drawn)))
        for one in fleet.investigations(evidence, window, skews, **options)
    }
    return found, damage.collect()


QUESTIONS: dict[str, tuple[Window, dict[str, int], dict[str, Any]]] = {
    "all": (Window(), {}, {}),
    "window": (
        Window(MIDDLE_NS, MIDDLE_NS + 10**9),
        {},
        {"rules": ["two-masters"], "with_stores": False},
    ),
    "skew": (Window(nodes=("n1", "n2")), {"n2": 10**9}, {}),
}


@pytest.mark.parametrize("detail", list(Detail))
def test_executors_conclude_what_this_machine_concludes(
    detail: Detail, logs: pathlib.Path, spark: Any, tmp_path: pathlib.Path
) -> None:
    case = tmp_path / "case"
    load(find_sources([str(logs)]).sources, case, detail)
    attach(case, find_attachments([str(logs)], ["n1", "n2", "n3"]))
    with contextlib.closing(DuckEngine(open_case(case))) as duck:
        files = files_by_domain(duck)
        assert uncalm_domains(files) == {"overlapping"}
        assert copies_in(duck, files).keys() == {"copy"}
        assert suspected_in(duck, files).keys() == {"copy"}, "others are read as if they had copies"
    of_all: dict[str, Any] = {}
    asked = QUESTIONS if detail is Detail.FULL else {"all": QUESTIONS["all"]}
    for name, (window, skews, options) in asked.items():
        with contextlib.closing(DuckEngine(open_case(case), is_frugal=True)) as duck:
            expected, damages = concluded(case, duck, window, skews, **options)
        engine = SparkEngine(open_case(case), "local[2]", opened=spark)
        found, same_damages = concluded(case, engine, window, skews, **options)
        assert list(found) == list(expected) == sorted(DOMAINS), name
        for domain, told in found.items():
            assert told == expected[domain], (name, domain)
        assert same_damages == damages, name
        of_all = found if name == "all" else of_all
    load(find_sources([str(logs / "domain=wrong clock")]).sources, tmp_path / "alone", detail)
    with contextlib.closing(DuckEngine(open_case(tmp_path / "alone"), is_frugal=True)) as duck:
        alone, _ = concluded(tmp_path / "alone", duck, Window(), {})
    assert alone == {"wrong clock": of_all["wrong clock"]}, "domains are judged by the evidence of others"


def test_only_conclusions_reach_the_driver(
    logs: pathlib.Path, spark: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver neither reads the rows nor applies a rule, and each domain has a task of its own."""
    load(find_sources([str(logs)]).sources, tmp_path / "case")
    engine = SparkEngine(open_case(tmp_path / "case"), "local[2]", opened=spark)
    # Not None: then it would be no `FleetEngine`, unless an earlier test has shown that it is one.
    monkeypatch.setattr(SparkEngine, "batches", unittest.mock.Mock(side_effect=AssertionError("rows came")))
    monkeypatch.setattr("ospltool.forensics.fleet.concluded", None)
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    evidence = CaseEvidence(open_case(tmp_path / "case"), engine)
    found = list(fleet.investigations(evidence, Window(), {}, with_stores=False))
    assert [one.name for one in found] == sorted(DOMAINS)
    assert set(tracker.getJobIdsForGroup(None)) - before
    assert all(not one.drawn.facts.first_ns for one in found)
