"""The commands with real nodes on real Cyclone DDS, on the loopback interface only."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import engine
from engine.node.disk import open_store
from engine.store.store_directory import DATABASE, LOCK, Lock
from engine.supervisor.node_status import Condition, status_of
from engine.supervisor.process_identity import ProcessIdentity, identify
from engine.supervisor.rundir import NodeDirectory, RunDirectory
from engine.tracing.catalogue import catalogue
from ospltool.cli import app, domains
from ospltool.health.health import Health
from ospltool.health.system import System
from tests.integration import hanging
from tests.trace_lines import read_line
from tui.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.dds

ROOT = pathlib.Path(engine.__path__[0]).parent
FLEET = ROOT / "samples" / "three-nodes" / "fleet.toml"
PATIENCE_S = 40.0
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
DOMAIN_ID = 211 + WORKER % 10  # tests that run side by side must not meet
CONFIGURATION = """<OpenSplice>
  <Domain>
    <Name>real</Name>
    <Id>{domain}</Id>
    <Lease><ExpiryTime update_factor="0.2">2.0</ExpiryTime></Lease>
    <Service name="durability"><Command>durability</Command><FailureAction>{action}</FailureAction></Service>
  </Domain>
  <DurabilityService name="durability">
    <Network>
      <InitialDiscoveryPeriod>0.2</InitialDiscoveryPeriod>
      <Alignment/><WaitForAttachment><ServiceName>ddsi2</ServiceName></WaitForAttachment>
    </Network>
    <NameSpaces>
      <NameSpace name="all"><Partition>*</Partition></NameSpace>
      <Policy nameSpace="*" durability="Durable" aligner="True" alignee="Initial"/>
    </NameSpaces>
    <Tracing><OutputFile>trace.log</OutputFile><Verbosity>FINEST</Verbosity></Tracing>
  </DurabilityService>
</OpenSplice>
"""


class Machine:
    """A place where nodes are started by commands."""

    def __init__(
        self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        self.root = root
        self._capfd = capfd
        self.set_environment = monkeypatch.setenv
        self.held = contextlib.ExitStack()
        monkeypatch.chdir(root)
        monkeypatch.setenv("OSPLTOOL_RUNDIR", str(root / "run"))
        monkeypatch.setenv("OSPLTOOL_DEMO_DIR", str(root))
        monkeypatch.setenv("OSPLTOOL_DEMO_DOMAIN", str(DOMAIN_ID))
        monkeypatch.delenv("CYCLONEDDS_URI", raising=False)
        monkeypatch.delenv("OSPL_URI", raising=False)
        self.configuration = root / "real.xml"

    def write(self, action: str = "kill") -> pathlib.Path:
        self.configuration.write_text(CONFIGURATION.format(domain=DOMAIN_ID, action=action))
        return self.configuration

    def run(self, *arguments: object) -> tuple[int, str, str]:
        self._capfd.readouterr()
        code = app.main([str(each) for each in arguments])
        captured = self._capfd.readouterr()
        return code, captured.out, captured.err

    def nodes(self, *arguments: object) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run(*arguments, "--json")[1])["data"]
        return found

    def wait_for(self, wanted: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = self.nodes("list", "--all")
            if wanted(found):
                return found
            time.sleep(0.05)  # other processes change files
        raise AssertionError(self.nodes("list", "--all"))

    def wait_until_operational(self) -> list[dict[str, Any]]:
        return self.wait_for(lambda nodes: {node["condition"] for node in nodes} == {"operational"})

    def clean_up(self) -> None:
        self.held.close()
        self.run("stop", "--all", "--timeout", "20s")
        for path in (self.root / "run").iterdir():
            record = NodeDirectory(path).record()
            for process in (record.supervisor, record.node) if record is not None else ():
                if process is not None:
                    process.send(signal.SIGKILL)


@pytest.fixture
def machine(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Machine]:
    made = Machine(tmp_path, monkeypatch, capfd)
    yield made
    made.clean_up()


def process(pid: int) -> ProcessIdentity:
    found = identify(pid)
    assert found is not None
    return found


def test_the_console_operates_a_node_that_was_started_by_a_relative_path(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write()
    assert machine.run("start", machine.configuration.name)[0] == 0
    (before,) = machine.wait_until_operational()
    elsewhere = machine.root / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    operator = Operator((sys.executable, "-m", "ospltool.cli.app"))
    system = System((domains.live_at(domains.place_of(None, DOMAIN_ID), None), Health))
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not system.model.nodes and time.monotonic() < deadline:
            system.update()
            time.sleep(0.05)  # the node is another process
        (node,) = system.model.nodes.values()
        operation = operator.restart(node)
        assert operation.shell_line == "ospltool restart real"
        assert operator.carry_out(operation).startswith("done: ")
    finally:
        system.feed.close()
    (after,) = machine.wait_until_operational()
    assert after["directory"] == before["directory"]
    assert after["node_pid"] != before["node_pid"]


def test_without_a_configuration_data_survives_a_restart(machine: Machine) -> None:
    """Started from nothing, found by commands that name nothing: the first minute of a user."""
    machine.set_environment("OSPLTOOL_DOMAIN", str(DOMAIN_ID))
    machine.set_environment("XDG_STATE_HOME", str(machine.root / "state"))
    configuration = json.loads(machine.run("info", "--json")[1])["data"]["configuration"]
    assert configuration["name_spaces"] == ["defaultNamespace"]
    (machine.root / "shown.xml").write_text(machine.run("start", "--show-config")[1])
    found = json.loads(machine.run("check", "shown.xml", "--json")[1])["data"]["diagnostics"]
    assert {one["name"] for one in found} <= {"temporary-store"}, "pytest is below /tmp"

    code, _, err = machine.run("start")
    assert (code, configuration["store"] in err) == (0, True)
    (before,) = machine.wait_until_operational()
    publisher = (
        sys.executable,
        ROOT / "samples" / "publisher.py",
        "--count",
        "20",
        "--domain",
        str(DOMAIN_ID),
    )
    subprocess.run(publisher, check=True, timeout=PATIENCE_S)
    code, _, err = machine.run("restart")
    assert code == 0, err
    (after,) = machine.wait_until_operational()
    assert after["node_pid"] != before["node_pid"]
    code, out, err = machine.run("cat", "Observation")
    assert (code, len(out.splitlines())) == (0, 20), err
    code, out, _ = machine.run("logs")
    assert (code, out.count("is now operational")) == (0, 2)
    assert list(machine.root.glob("*.log")) == [], "the logs lie beside the store"
    assert machine.run("stop")[0] == 0


def test_a_fleet_starts_becomes_operational_and_stops_in_order(machine: Machine) -> None:
    code, _, err = machine.run("start", FLEET)
    assert code == 0, err
    nodes = machine.wait_until_operational()
    assert [node["domain_name"] for node in nodes] == ["n1", "n2", "n3"]
    processes = [process(node["node_pid"]) for node in nodes]

    machine.set_environment("COLUMNS", "200")
    code, out, err = machine.run("status", "n2")
    told = dict(line.strip().partition("  ")[::2] for line in out.splitlines()[1:])
    assert (code, err) == (0, "")
    assert list(told) == ["state", "process", "fellows", "harbour", "disk", "waits for", "trouble"]
    assert told["state"].strip().startswith("complete since ")
    assert f"pid {nodes[1]['node_pid']}, domain {DOMAIN_ID}, role Harbour" in told["process"]
    assert told["fellows"].strip() == "n1, n3"
    assert told["harbour"].strip().startswith("0 samples, complete; master n1: ")
    assert [told["waits for"].strip(), told["trouble"].strip()] == ["nothing", "none known"]

    code, _, err = machine.run("stop", FLEET)
    assert code == 0, err
    assert not any(each.is_alive() for each in processes)
    stopped = machine.nodes("list", "--all")
    assert {(node["condition"], node["reason"]) for node in stopped} == {("stopped", "stopped by SIGTERM")}


def test_the_trace_of_a_node_has_only_lines_of_the_catalogue(machine: Machine) -> None:
    machine.run("start", machine.write())
    machine.wait_until_operational()
    machine.run("stop", "--all")
    lines = (machine.root / "trace.log").read_text(encoding="utf-8").splitlines()
    read = [line for text in lines if (line := read_line(text)) is not None]
    states = list(dict.fromkeys(line.state for line in read))
    assert states[0] == "INIT"
    assert "COMPLETE" in states
    assert [line.text for line in read if catalogue().match(line.text) is None] == []
    texts = [line.text for line in read]
    assert "Durability service up and fully operational." in texts
    assert "Confirming master: I am the master for nameSpace 'all'." in texts
    assert texts[-1] == "Durability destroyed"


def test_a_killed_node_is_restarted_and_becomes_operational_again(machine: Machine) -> None:
    machine.run("start", machine.write("restart"))
    (node,) = machine.wait_until_operational()
    process(node["node_pid"]).send(signal.SIGKILL)
    machine.wait_for(lambda nodes: nodes[0]["restarts"] == 1)
    (again,) = machine.wait_until_operational()
    assert again["node_pid"] != node["node_pid"]
    assert again["supervisor_pid"] == node["supervisor_pid"]
    assert (again["reason"], again["last_failure"][-20:]) == ("", "(killed by signal 9)")
    code, said, _ = machine.run("status", machine.configuration)
    assert (code, "is operational; restarted once, last failure 2" in said) == (0, True)


def test_a_node_that_stands_still_loses_its_lease(machine: Machine) -> None:
    machine.run("start", machine.write("kill"))
    (node,) = machine.wait_until_operational()
    stopped = process(node["node_pid"])
    stopped.send(signal.SIGSTOP)
    while not stopped.is_stopped():
        time.sleep(0.01)  # the kernel stops its threads
    code, said, _ = machine.run("status", machine.configuration)
    assert (code, "does not respond: the node process is stopped" in said or "has died" in said) == (1, True)
    (dead,) = machine.wait_for(lambda nodes: nodes[0]["condition"] == "died")
    assert dead["reason"] == "the node did not renew its lease within 2 s"
    assert machine.run("status", machine.configuration)[0] == 1
    assert " died       -      " in machine.run("list")[1]


def test_a_watch_that_hangs_is_named_before_the_lease_is_lost(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**hanging.environ(machine.root), "HANG_PATIENCE_S": "10"}.items():
        monkeypatch.setenv(name, value)
    path = machine.write("kill")
    path.write_text(path.read_text().replace(">2.0<", ">5.0<"))
    machine.run("start", path)
    (node,) = machine.wait_until_operational()
    pid = node["node_pid"]
    (watch,) = [tid for tid, name in hanging.threads(pid).items() if name == "watch"]
    hanging.stop_threads(pid, watch)
    wait_until(lambda: ("watch.progress-lost", "watch", str(watch)) in said(machine))
    (dead,) = machine.wait_for(lambda nodes: nodes[0]["condition"] == "died")
    assert dead["reason"] == "the node did not renew its lease within 5 s: watch did not proceed"


def test_a_node_reports_a_supervisor_that_stands_still_and_then_ends(machine: Machine) -> None:
    machine.run("start", machine.write("restart"))
    (node,) = machine.wait_until_operational()
    running, supervisor = process(node["node_pid"]), process(node["supervisor_pid"])
    for signals in ((), (signal.SIGSTOP, signal.SIGCONT)):  # together they only stand still
        for number in signals:
            for each in (running, supervisor):
                each.send(number)
            time.sleep(3.0)
        assert said(machine) == []
    supervisor.send(signal.SIGSTOP)
    named = ("supervisor", str(node["supervisor_pid"]))
    wait_until(lambda: ("watch.progress-lost", *named) in said(machine))
    wait_until(lambda: "; supervisor does not proceed" in machine.run("status", machine.configuration)[1])
    supervisor.send(signal.SIGCONT)
    wait_until(lambda: ("watch.progress-back", *named) in said(machine))
    assert running.is_alive()
    supervisor.send(signal.SIGSTOP)
    assert running.wait(PATIENCE_S)
    assert "lifecycle.daemon-silent" in {event for event, *_ in said(machine)}
    supervisor.send(signal.SIGCONT)
    (again,) = machine.wait_for(lambda nodes: nodes[0]["condition"] == "operational")
    assert again["restarts"] == 1
    assert again["last_failure"].endswith("(exit code 1): the supervisor stands still")


def said(machine: Machine) -> list[tuple[str, str, str]]:
    """What the deadlock watch of the node has traced: (event, activity, its thread or process)."""
    lines = (machine.root / "trace.log").read_text(encoding="utf-8").splitlines()
    matched = [catalogue().match(line.text) for text in lines if (line := read_line(text)) is not None]
    found = [
        (event.id, fields.get("activity", ""), fields.get("tid", ""))
        for event, fields in filter(None, matched)
    ]
    return [one for one in found if one[0].startswith(("watch.progress", "lifecycle.daemon"))]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)  # another process writes the file


def test_a_node_does_not_outlive_its_supervisor(machine: Machine) -> None:
    machine.run("start", machine.write())
    (node,) = machine.wait_until_operational()
    running = process(node["node_pid"])
    process(node["supervisor_pid"]).send(signal.SIGKILL)
    assert running.wait(PATIENCE_S)
    lines = (machine.root / "trace.log").read_text(encoding="utf-8")
    assert lines.endswith("Durability destroyed\n")
    assert catalogue()["lifecycle.daemon-lost"].text in lines


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_node_in_front_ends_in_order_with_a_signal(machine: Machine, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "ospltool.cli.app", "start", "-f", str(machine.write())],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as front:
        try:
            assert front.stderr is not None
            poll = select.poll()
            poll.register(front.stderr, select.POLLIN)
            said = b""
            while b" running" not in said:
                assert poll.poll(PATIENCE_S * 1000)
                said += front.stderr.readline()
            front.send_signal(number)
            _, rest = front.communicate(timeout=PATIENCE_S)
        finally:
            front.kill()
    assert front.returncode == 0
    assert f"ended: stopped by {number.name}".encode() in rest
    (directory,) = (machine.root / "run").iterdir()
    status = status_of(NodeDirectory(directory))
    assert status is not None
    assert status.condition is Condition.STOPPED


@pytest.mark.parametrize("in_front", [True, False])
def test_settings_of_cyclone_that_are_not_there_are_named_once(machine: Machine, in_front: bool) -> None:
    missing = machine.root / "missing.xml"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ospltool.cli.app",
            "start",
            *(["-f"] if in_front else []),
            str(machine.write()),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CYCLONEDDS_URI": f"file://{missing}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    named = f"CYCLONEDDS_URI names file://{missing}: No such file or directory"
    assert done.stderr.count(named) == 1
    assert len(done.stderr.splitlines()) == 1 + in_front, "in front, the start is narrated"


def test_a_configuration_that_only_the_node_refuses_has_code_2(machine: Machine) -> None:
    path = machine.write()
    path.write_text(path.read_text().replace("trace.log", "real.xml/trace.log"))
    code, _, err = machine.run("start", path)
    assert code == 2
    assert "real.xml" in err
    assert "Traceback" not in err


def _file_in_its_place(machine: Machine, store: pathlib.Path) -> str:
    store.touch()
    return f"{store}: File exists"


def _in_use(machine: Machine, store: pathlib.Path) -> str:
    store.mkdir()
    machine.held.callback(Lock(store / LOCK, "another").release)
    return f"{store}: the store is in use by node 'another'"


def _of_a_newer_release(machine: Machine, store: pathlib.Path) -> str:
    open_store(store, "earlier").close()
    with contextlib.closing(sqlite3.connect(store / DATABASE)) as database:
        database.execute("PRAGMA user_version = 999")
    return "newer"


def _without_directory(machine: Machine, store: pathlib.Path) -> str:
    store.symlink_to("/proc/self/no/store")
    return f"{store}: "


def _refused(words: str, *lines: str) -> Callable[[Machine, pathlib.Path], str]:
    """Return a part of CYCLONEDDS_URI, the second after a good one, and what is said of its second line."""

    def prevent(machine: Machine, store: pathlib.Path) -> str:
        path = machine.root / "cyclonedds.xml"
        path.write_text("\n".join(("<CycloneDDS><Domain>", *lines, "</Domain></CycloneDDS>")))
        good = "<CycloneDDS><Domain><Discovery/></Domain></CycloneDDS>"
        machine.set_environment("CYCLONEDDS_URI", f"{good},file://{path}")
        return f"{path}:2: Cyclone DDS refuses the settings: {words}"

    return prevent


def _written_into_the_variable(machine: Machine, store: pathlib.Path) -> str:
    machine.set_environment("CYCLONEDDS_URI", "<CycloneDDS>\n<Domain><Nonsense/></Domain></CycloneDDS>")
    return (
        "CYCLONEDDS_URI:2: Cyclone DDS refuses the settings: //CycloneDDS/Domain: Nonsense: unknown element"
    )


def _port_in_use(machine: Machine, store: pathlib.Path) -> str:
    base = 5_000
    taken = machine.held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    taken.bind(("", base + 250 * DOMAIN_ID + 10))  # RTPS 2.5, 9.6.2.3: unicast of participant 0
    index = f"<ParticipantIndex>0</ParticipantIndex><Ports><Base>{base}</Base></Ports>"
    machine.set_environment(
        "CYCLONEDDS_URI", f"<CycloneDDS><Domain><Discovery>{index}</Discovery></Domain></CycloneDDS>"
    )
    return "Cyclone DDS refuses the settings: "


@pytest.mark.parametrize(
    "prevent",
    [
        _file_in_its_place,
        _in_use,
        _of_a_newer_release,
        _without_directory,
        pytest.param(
            _refused("//CycloneDDS/Domain: Nonsense: unknown element", "<Nonsense/>"),
            id="a place of Cyclone DDS",
        ),
        pytest.param(
            _refused(
                "failed to increase socket receive",
                "<Internal><SocketReceiveBufferSize min='1GB'/></Internal>",
            ),
            id="a place of ours",
        ),
        _written_into_the_variable,
        _port_in_use,
    ],
)
def test_what_no_restart_mends_ends_the_start_at_once(
    machine: Machine, prevent: Callable[[Machine, pathlib.Path], str]
) -> None:
    path, store = machine.write("restart"), machine.root / "store"
    text = path.read_text().replace(
        "<Tracing>", f"<Persistent><StoreDirectory>{store}</StoreDirectory></Persistent><Tracing>"
    )
    path.write_text(text)
    sentence = prevent(machine, store)
    code, out, err = machine.run("start", path)
    assert (code, out) == (2, "")
    assert err.count(sentence) == 1, err
    assert len(err.splitlines()) == 1, err
    assert (machine.root / "ospl-error.log").read_text().count(sentence) == 1
    (status,) = json.loads(machine.run("status", path, "--json")[1])["data"]
    assert status["restarts"] == 0
    (directory,) = RunDirectory(machine.root / "run").nodes()
    assert sum(sentence in line for line in directory.node_log.read_text().splitlines()) == 1
