"""`ospltool metrics`: what it measures, as a parser of Prometheus' text format reads it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as parsed

from engine.runtime.monitor import NodeSnapshot, StoreStatus
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from tests import fake
from tests.commands.shell import Shell
from tests.fake import ScriptedFeed, node_id
from tests.integration.conftest import own_domain
from tests.integration.lab import Lab
from tests.integration.programs import ROOT

FLEET = """domain = 7
[[node]]
name = "n1"
[[node]]
name = "n2"
[[node]]
name = "n3"
[[name-space]]
name = "A"
copies = 3
on-disk = 2
"""
pytestmark = pytest.mark.usefixtures("quick_health")
FULL = StoreStatus("sqlite", "/x", problem="no space left on device")

Values = dict[tuple[str, ...], float]


def values(text: str, parse: Callable[[str], Any] = parsed) -> Values:
    """(name, values of labels in the order of their names) of every sample."""
    return {
        (
            sample.name.removeprefix("ospltool_"),
            *(sample.labels[key] for key in sorted(sample.labels)),
        ): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def node(number: int, **changes: Any) -> NodeSnapshot:
    return fake.snapshot(number, fake.name_space("A", 1), **changes)


@pytest.fixture
def measure(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Values]:
    """What the command says of nodes, of which some are gone."""

    def run(*snapshots: NodeSnapshot, gone: tuple[int, ...] = ()) -> Values:
        now_ns = time.time_ns()
        lost = tuple(FeedNotice(NoticeKind.NODE_LOST, now_ns, "", node_id(n)) for n in gone)
        due_before = {node_id(n) for n in gone}  # those that are gone were due before the others were heard
        heard = tuple(
            ReceivedSnapshot(msgspec.structs.replace(one, update_period_ns=0), now_ns - 1)
            if one.id in due_before
            else ReceivedSnapshot(one, now_ns)
            for one in snapshots
        )
        feed = ScriptedFeed(
            [(now_ns, Update(heard, (), lost))],
            title="domain 7",
            clock=time.time_ns,
        )
        monkeypatch.setattr("ospltool.cli.domains.live_at", lambda *_: feed)
        (shell.root / "fleet.toml").write_text(FLEET)
        code, out, err = shell.run("metrics", "fleet.toml")
        assert (code, err) == (0, "")
        return values(out)

    return run


def test_nodes_copies_samples_and_incidents_are_measured(measure: Callable[..., Values]) -> None:
    counters = {"captured": 70, "stored": 60, "queued": 5}
    found = measure(node(1, counters=counters), node(2, store=FULL), node(3), gone=(3,))
    expected = {
        ("nodes_expected", "7"): 3, ("nodes_heard", "7"): 2, ("nodes_complete", "7"): 2,
        ("copies", "7", "A"): 2, ("copies_expected", "7", "A"): 3,
        ("copies_on_disk", "7", "A"): 1, ("copies_on_disk_expected", "7", "A"): 2,
        ("redundancy_left", "7", "A"): 1,
        ("incidents", "7", "error"): 2, ("incidents_muted", "7"): 0,
        ("incidents_by_code", "DUL-STORE-FULL", "7", "error"): 1,
        ("incidents_by_code", "DUL-NODE-GONE", "7", "error"): 1,
        ("node_up", "7", "n1"): 1, ("node_up", "7", "n3"): 0, ("node_complete", "7", "n1"): 1,
        ("node_captured_total", "7", "n1"): 70, ("node_queued", "7", "n1"): 5,
        ("samples", "7", "A", "n1"): fake.name_space("A", 1).count,
        ("set_complete", "7", "A", "n1"): 1, ("master", "7", "A", "n1"): 1, ("master", "7", "A", "n2"): 0,
    }  # fmt: skip
    assert {key: found.get(key) for key in expected} == expected
    assert {key[2] for key in found if key[0] == "incidents"} == {"error", "warning", "notice"}
    assert not [
        key for key in found if "n3" in key and key[0] not in ("node_up", "node_heartbeat_age_seconds")
    ]


def test_a_system_of_nobody_is_measured_too(measure: Callable[..., Values]) -> None:
    found = measure()
    assert found["nodes_heard", "7"] == 0
    assert found["incidents", "7", "error"] == 1
    assert found["copies", "7", "A"] == 0
    assert {key: found[key] for key in found if key[0].startswith("node_")} == {
        ("node_up", "7", name): 0 for name in ("n1", "n2", "n3")
    }


def test_an_expected_node_that_died_before_is_down(measure: Callable[..., Values]) -> None:
    found = measure(node(1), node(3), node(4, name="\u202e\u009b"))
    assert ("node_up", "7", "\\u202e\\x9b") in found, "no terminal obeys a name"
    assert [found["node_up", "7", name] for name in ("n1", "n2", "n3")] == [1, 0, 1]


def test_a_node_that_came_back_is_one_node(measure: Callable[..., Values]) -> None:
    former = node(1, started_ns=1, counters={"captured": 5})
    present = node(1, id=node_id(9), started_ns=2, counters={"captured": 7})
    found = measure(former, present, gone=(1,))
    assert (found["node_up", "7", "n1"], found["node_captured_total", "7", "n1"]) == (1, 7)


def test_a_port_that_is_taken_is_said(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = ScriptedFeed([], title="domain 7", clock=time.time_ns)
    monkeypatch.setattr("ospltool.cli.domains.live_at", lambda *_: feed)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = shell.run("metrics", "--domain", 7, "--port", port)
    assert (code, err) == (2, f"ospltool: port {port} of 127.0.0.1: Address already in use\n")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    domain, tag = own_domain()
    made = Lab(tmp_path, domain, tag)
    yield made
    made.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.mark.dds
def test_real_nodes_are_measured_on_a_port_of_loopback(lab: Lab) -> None:
    names = lab.start_three()
    lab.write({"count": 20, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(name) == 20 for name in names))
    port, domain = free_port(), str(lab.domain)
    command = [sys.executable, "-m", "ospltool.cli.app", "metrics", "--domain", domain, "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, env=lab.environ, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == f"ospltool: metrics on http://127.0.0.1:{port}/metrics\n"
        accepted = "application/openmetrics-text; version=1.0.0"
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accepted})

        def ask() -> Values:
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
                return values(answer.read().decode(), open_metrics)

        found = ask()
        assert [found["samples", domain, "stock", name] for name in names] == [20, 20, 20]
        assert (found["copies", domain, "stock"], found["redundancy_left", domain, "stock"]) == (3, 2)
        assert sum(found["master", domain, "stock", name] for name in names) == 1
        lab.kill("n2")
        end = time.monotonic() + 60
        while ("incidents_by_code", "DUL-NODE-GONE", domain, "error") not in (found := ask()):
            assert time.monotonic() < end, found
            time.sleep(0.2)  # a scraper asks again and again
        assert (found["node_up", domain, "n2"], found["copies", domain, "stock"]) == (0, 2)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0
        with pytest.raises(urllib.error.URLError):
            ask()
    finally:
        process.kill()
        process.wait(10)
        assert process.stderr is not None
        process.stderr.close()
