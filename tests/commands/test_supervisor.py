"""The supervisor with real processes; the node is a stand-in that keeps the interface, see fake_node.py."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from engine.supervisor import control
from engine.supervisor.control import Stop
from engine.supervisor.launch import Launch, LaunchError
from engine.supervisor.loop import MAX_LOG_BYTES
from engine.supervisor.node_status import Condition, NodeStatus, status_of
from engine.supervisor.policy import Action, NodePhase
from engine.supervisor.process_identity import ProcessIdentity, identify
from engine.supervisor.rundir import NodeDirectory, RunDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FAKE_NODE = str(pathlib.Path(__file__).with_name("fake_node.py"))
PATIENCE_S = 20.0


class World:
    """A run directory and a working directory, and what was started in them."""

    def __init__(self, root: pathlib.Path) -> None:
        self.run_directory = RunDirectory(root / "run")
        self.work = root / "work"
        self.work.mkdir()
        self.directory = self.run_directory.node("0123456789abcdef")

    def launch(
        self,
        mode: str,
        action: Action = Action.SKIP,
        *,
        expiry_s: float = 5.0,
        terminate_period_s: float = 5.0,
        command: tuple[str, ...] | None = None,
    ) -> Launch:
        return Launch(
            directory=str(self.directory.path),
            command=command or (sys.executable, FAKE_NODE, mode),
            working_directory=str(self.work),
            uri="file:///a.xml",
            configuration="/a.xml",
            domain_name="fake",
            domain_id=7,
            role="r",
            store="",
            expiry_s=expiry_s,
            terminate_period_s=terminate_period_s,
            action=action,
        )

    def start(
        self,
        mode: str,
        action: Action = Action.SKIP,
        *,
        terminate_period_s: float = 5.0,
        expiry_s: float = 5.0,
    ) -> control.Start:
        expiry_s = 0.4 if mode == "silent" else expiry_s
        launch = self.launch(mode, action, expiry_s=expiry_s, terminate_period_s=terminate_period_s)
        return control.start(launch, os.environ, PATIENCE_S)

    def status(self) -> NodeStatus:
        found = status_of(self.directory)
        assert found is not None
        return found

    def wait_for(self, wanted: Callable[[NodeStatus], bool]) -> NodeStatus:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = status_of(self.directory)  # None before the supervisor has written anything
            if found is not None and wanted(found):
                return found
            time.sleep(0.02)  # another process changes a file
        raise AssertionError(f"still {self.status()}")

    def starts(self) -> int:
        return len((self.work / "starts").read_text().splitlines())

    def clean_up(self) -> None:
        record = self.directory.record()
        if record is not None:
            for process in (record.supervisor, record.node):
                if process is not None:
                    process.send(signal.SIGKILL)


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.clean_up()


def condition_is(*wanted: Condition) -> Callable[[NodeStatus], bool]:
    return lambda status: status.condition in wanted


def living(process: ProcessIdentity | None) -> ProcessIdentity:
    assert process is not None
    assert process.is_alive()
    return process


def test_a_node_is_started_watched_and_stopped_in_order(world: World) -> None:
    started = world.start("run")
    assert started.is_running

    status = world.wait_for(condition_is(Condition.OPERATIONAL))
    assert status.sentence == 'ospltool system with domain name "fake" is operational'
    assert status.state == "COMPLETE"
    node = living(status.record.node)
    assert os.getsid(node.pid) != os.getsid(0)

    assert control.stop(world.directory) is Stop.STOPPED
    assert not node.is_alive()
    assert (world.work / "ended").read_text() == "in order"
    assert world.status().condition is Condition.STOPPED
    assert control.stop(world.directory) is Stop.WAS_NOT_RUNNING


def test_a_stop_waits_for_the_node(world: World) -> None:
    world.start("takes-time")
    assert control.stop(world.directory) is Stop.STOPPED
    assert (world.work / "ended").read_text() == "in order"


def test_a_second_start_is_refused_and_leaves_the_first_alone(world: World) -> None:
    node = world.start("run").record
    assert node is not None
    second = world.start("run")
    assert second.refusal == "it is already running"
    assert world.status().record.supervisor == node.supervisor
    assert world.starts() == 1


@pytest.mark.parametrize("patience_s", [0.0, 1.0], ids=["at once", "a second"])
def test_a_start_that_takes_too_long_goes_on(world: World, patience_s: float) -> None:
    """Also where the supervisor has not said anything yet."""
    started = control.start(world.launch("slow"), os.environ, patience_s)
    assert not started.is_running
    assert not started.has_failed
    assert world.wait_for(lambda status: status.state == "INIT").condition is Condition.STARTING


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("crash", "the node ended unexpectedly (exit code 3)"),
        (
            "bad-configuration",
            "the node cannot run: ospl.xml:7:5: there is no such filter",
        ),
    ],
)
def test_a_node_that_fails_at_start_is_reported(world: World, mode: str, reason: str) -> None:
    started = world.start(mode)
    assert started.has_failed
    assert started.record is not None
    assert (started.record.phase, started.record.reason) == (NodePhase.DIED, reason)
    assert world.status().sentence == f'ospltool system with domain name "fake" has died: {reason}'
    assert "Report      : ERROR" in (world.work / "ospl-error.log").read_text()


def test_what_the_node_prints_is_kept(world: World) -> None:
    world.start("crash")
    assert world.directory.node_log.read_text() == "about to crash\n"


def test_what_the_node_prints_is_bounded(world: World) -> None:
    world.start("chatty")
    log = world.directory.node_log
    former = log.with_name("node.log.1")
    world.wait_for(lambda status: former.exists() and log.stat().st_size < MAX_LOG_BYTES)
    assert former.stat().st_size > MAX_LOG_BYTES
    assert former.read_bytes().startswith(b"malformed packet")


def test_a_program_that_is_not_there_is_reported(world: World) -> None:
    launch = world.launch("run", command=("/nonexistent/node",))
    started = control.start(launch, os.environ, PATIENCE_S)
    assert started.has_failed
    assert started.record is not None
    assert "could not be started" in started.record.reason


@pytest.mark.parametrize("action", [Action.KILL, Action.SYSTEM_HALT])
def test_a_node_that_falls_silent_is_ended(world: World, action: Action) -> None:
    started = world.start("silent", action, terminate_period_s=0.3)
    assert started.record is not None
    node = living(started.record.node)
    status = world.wait_for(condition_is(Condition.DIED))
    assert "did not renew its lease within 0.4 s" in status.reason
    assert not node.is_alive()


def test_a_silent_node_is_skipped_and_can_still_be_stopped(world: World) -> None:
    world.start("silent", Action.SKIP)
    status = world.wait_for(condition_is(Condition.UNRESPONSIVE))
    living(status.record.node)
    assert control.stop(world.directory) is Stop.STOPPED


def test_a_silent_node_is_restarted_as_a_new_process(world: World) -> None:
    started = world.start("silent", Action.RESTART)
    assert started.record is not None
    first = living(started.record.node)
    status = world.wait_for(lambda status: status.record.restarts == 1 and status.record.node is not None)
    assert status.record.node != first
    assert not first.is_alive()


@pytest.mark.parametrize("who", ["node", "supervisor"])
def test_a_process_that_is_stopped_does_not_respond_from_then_on(world: World, who: str) -> None:
    world.start("run")
    status = world.wait_for(condition_is(Condition.OPERATIONAL))
    process = living(status.record.node if who == "node" else status.record.supervisor)
    process.send(signal.SIGSTOP)
    try:
        status = world.wait_for(condition_is(Condition.UNRESPONSIVE))
        assert "stopped (SIGSTOP" in status.sentence
        assert who in status.reason
    finally:
        process.send(signal.SIGCONT)
    status = world.wait_for(condition_is(Condition.OPERATIONAL))
    assert status.sentence == 'ospltool system with domain name "fake" is operational'


@pytest.mark.parametrize("still_s", [1.3, 4.0], ids=["a moment too long", "long"])
def test_a_supervisor_that_stood_still_does_not_kill_its_node(world: World, still_s: float) -> None:
    """The node renewed its lease all the time; only nobody looked."""
    world.start("run", Action.KILL, expiry_s=1.0)
    status = world.wait_for(condition_is(Condition.OPERATIONAL))
    node, supervisor = living(status.record.node), living(status.record.supervisor)
    supervisor.send(signal.SIGSTOP)
    time.sleep(still_s)  # that this time passes is the fault itself
    supervisor.send(signal.SIGCONT)
    assert control.stop(world.directory) is Stop.STOPPED
    assert (world.work / "ended").read_text() == "in order"
    assert not node.is_alive()
    assert not world.status().record.failure


def test_a_node_that_is_started_again_is_not_what_its_last_run_was(world: World) -> None:
    world.start("run", Action.RESTART)
    status = world.wait_for(condition_is(Condition.OPERATIONAL))
    living(status.record.node).send(signal.SIGKILL)
    seen: list[NodeStatus] = []

    def is_well_again(status: NodeStatus) -> bool:
        new = status.record.node if status.record.restarts == 1 else None
        if new is None or status.directory.state().get("pid") != new.pid:  # a new run is complete at once
            seen.append(status)
        return status.condition is Condition.OPERATIONAL and status.record.restarts == 1

    status = world.wait_for(is_well_again)
    states = {each.state for each in seen if each.condition is not Condition.OPERATIONAL}
    assert "COMPLETE" not in states
    assert status.reason == ""
    assert "is operational; restarted once, last failure 2" in status.sentence
    assert status.sentence.endswith(" UTC: the node ended unexpectedly (killed by signal 9)")


def test_a_node_that_crashes_is_started_again(world: World) -> None:
    started = world.start("crash-twice", Action.RESTART)
    assert started.is_running
    assert world.starts() == 3
    assert world.status().record.restarts == 2
    assert "restarted 2 times, last failure" in world.wait_for(condition_is(Condition.OPERATIONAL)).sentence
    assert (world.directory.node_log).read_text() == "about to crash\n" * 2


def test_a_node_that_is_killed_has_died(world: World) -> None:
    started = world.start("run")
    assert started.record is not None
    living(started.record.node).send(signal.SIGKILL)
    status = world.wait_for(condition_is(Condition.DIED))
    assert "killed by signal 9" in status.reason
    assert (status.state, status.state_since_ns) == ("", 0)


def test_a_node_that_does_not_obey_is_killed_after_its_time(world: World) -> None:
    started = world.start("stubborn", terminate_period_s=0.3)
    assert started.record is not None
    node = living(started.record.node)
    before = time.monotonic()
    assert control.stop(world.directory) is Stop.STOPPED
    assert time.monotonic() - before >= 0.3
    assert not node.is_alive()
    assert "was killed" in world.status().reason


def test_a_stop_that_may_not_wait_says_so(world: World) -> None:
    world.start("stubborn", terminate_period_s=1.0)
    assert control.stop(world.directory, 0.0) is Stop.STILL_STOPPING
    world.wait_for(condition_is(Condition.STOPPED))


def test_a_node_ends_in_order_when_its_supervisor_is_killed(world: World) -> None:
    started = world.start("run")
    assert started.record is not None
    node = living(started.record.node)
    started.record.supervisor.send(signal.SIGKILL)
    assert node.wait(PATIENCE_S)
    assert (world.work / "ended").read_text() == "supervisor lost"
    assert "its supervisor was killed" in world.wait_for(condition_is(Condition.DIED)).reason


def test_a_node_that_outlives_its_supervisor_can_be_stopped(world: World) -> None:
    started = world.start("orphan")
    assert started.record is not None
    node = living(started.record.node)
    started.record.supervisor.send(signal.SIGKILL)
    assert started.record.supervisor.wait(PATIENCE_S)
    assert world.status().is_orphan
    assert control.stop(world.directory) is Stop.STOPPED
    assert not node.is_alive()
    assert status_of(world.directory) is None


def test_a_recycled_process_id_is_never_signalled(world: World) -> None:
    me = identify(os.getpid())
    assert me is not None
    for other in (
        ProcessIdentity(me.pid, me.start_ticks + 1, me.boot),
        ProcessIdentity(me.pid, me.start_ticks, "another boot"),
    ):
        assert not other.is_alive()
        assert not other.send(signal.SIGKILL)
        assert other.wait(0)


def test_signals_to_the_supervisor_stop_the_node(world: World) -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        started = world.start("run")
        assert started.record is not None
        started.record.supervisor.send(number)
        assert started.record.supervisor.wait(PATIENCE_S)
        assert world.status().reason == f"stopped by {number.name}"
        assert (world.work / "ended").read_text() == "in order"


def test_files_of_the_run_directory_are_ours_alone(world: World) -> None:
    world.start("run")
    assert world.directory.path.stat().st_mode & 0o777 == 0o700
    assert json.loads((world.directory.path / "state.json").read_text())["state"]


def test_a_damaged_record_is_unknown_not_fatal(world: World) -> None:
    world.directory.make()
    for text in ("", "{", "[]", '{"phase": 3}', "9" * 5000):
        (world.directory.path / "supervisor.json").write_text(text)
        assert status_of(world.directory) is None
        assert control.stop(world.directory) is Stop.WAS_NOT_RUNNING


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"directory": 3}'])
def test_text_that_is_no_launch_is_refused(text: str) -> None:
    with pytest.raises(LaunchError):
        Launch.from_json(text)


def test_the_oldest_ended_nodes_are_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.start("crash")
    record = world.directory.record()
    assert record is not None
    living_node = world.run_directory.node("f" * 16)
    living_node.make()
    monkeypatch.setattr("engine.supervisor.rundir.MAX_ENDED", 2)
    copies = [world.run_directory.node(f"{index:016x}") for index in range(4)]
    for index, copy in enumerate(copies):
        copy.make()
        copy.write_record(msgspec.structs.replace(record, changed_ns=index))
    assert world.run_directory.forget_old() == 3
    assert {node.path.name for node in world.run_directory.nodes()} == {
        "0123456789abcdef",
        f"{3:016x}",
        "f" * 16,
    }


def test_a_lock_is_held_by_one_at_a_time(world: World) -> None:
    with world.directory.lock() as first, NodeDirectory(world.directory.path).lock() as second:
        assert (first, second) == (True, False)
    with world.directory.lock() as again:
        assert again
