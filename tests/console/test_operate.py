from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.supervisor.node_status import Condition, NodeStatus
from engine.supervisor.policy import NodePhase
from engine.supervisor.process_identity import ProcessIdentity
from engine.supervisor.rundir import NodeDirectory, RunRecord, node_key
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.nodes import Node
from ospltool.views.text import visible
from tests import fake
from tests.fake import SECOND_NS, START_NS, ScriptedFeed, node_id
from tui.app import ConsoleApp
from tui.commands import AskScreen, question_lines
from tui.operator import Operation, OperationError, Operator

S = SECOND_NS
Play = Callable[..., None]
Read = Callable[[ConsoleApp], list[str]]
HERE = "host-1"
FILE = "file:///etc/ospl/n1.xml"


def status(
    pid: int = 4001,
    *,
    condition: Condition = Condition.OPERATIONAL,
    domain_name: str = "n1",
    configuration: str = FILE,
    fleet_name: str = "",
    changed_ns: int = 1,
) -> NodeStatus:
    process = ProcessIdentity(pid, 1, "boot")
    record = RunRecord(
        uri=configuration,
        configuration=configuration,
        domain_name=domain_name,
        domain_id=7,
        role="R",
        store="/s",
        terminate_period_s=10,
        phase=NodePhase.RUNNING,
        reason="",
        restarts=0,
        is_unresponsive=False,
        started_ns=1,
        changed_ns=changed_ns,
        supervisor=process,
        node=process,
    )
    key = node_key(configuration, domain_name, f"/s\0{fleet_name}")
    return NodeStatus(NodeDirectory(Path("/run") / key), record, condition, "COMPLETE", 1, "")


DIED = status(condition=Condition.DIED)


def operator_of(*known: NodeStatus, program: tuple[str, ...] = ("false",)) -> Operator:
    return Operator(program, HERE, lambda: list(known))


def node(*, gone: bool = False, number: int = 1) -> Node:
    model = SystemModel()
    model.apply(
        Update((ReceivedSnapshot(fake.snapshot(number, fake.name_space("Orders", 1)), START_NS),)), START_NS
    )
    found = model.nodes[node_id(number)]
    return dataclasses.replace(found, gone_ns=START_NS) if gone else found


def test_a_stop_names_what_it_means_and_its_command() -> None:
    operation = operator_of(status()).stop(node())
    assert operation.title == "Stop node n1?"
    assert operation.shell_line == "ospltool stop n1"
    told = " ".join(operation.consequences)
    assert "pid 4001" in told
    assert "master of Orders" in told


def test_a_restart_is_one_command_which_also_restarts_a_node_of_a_fleet_file() -> None:
    for known in (status(), status(fleet_name="n1")):
        assert operator_of(known).restart(node()).shell_line == "ospltool restart n1"


def test_a_node_that_is_gone_can_be_started() -> None:
    assert operator_of(DIED).start(node(gone=True)).shell_line == f"ospltool start {FILE}"


def test_the_file_stands_for_a_node_whose_name_others_have() -> None:
    other = status(77, configuration="/other.xml")
    assert operator_of(status(), other).stop(node()).command == ("ospltool", "stop", FILE)


@pytest.mark.parametrize(
    ("verb", "known", "asked", "said"),
    [
        ("stop", [status(4)], node(), "was not started by this user"),
        ("stop", [], node(), "was not started by this user"),
        ("stop", [status()], node(gone=True), "is not running"),
        ("stop", [status()], node(number=2), "is on host-2, not on this machine"),
        ("stop", [status(), status(5)], node(), "several nodes"),
        ("start", [DIED], node(), "is running"),
        ("start", [], node(gone=True), "was not started by this user"),
        ("start", [status(condition=Condition.RESTARTING)], node(gone=True), "has a supervisor"),
        ("start", [status(condition=Condition.DIED, fleet_name="n1")], node(gone=True), "fleet file"),
    ],
)
def test_what_can_not_be_done_from_here_is_refused(
    verb: str, known: list[NodeStatus], asked: Node, said: str
) -> None:
    with pytest.raises(OperationError, match=said):
        getattr(operator_of(*known), verb)(asked, is_away=asked.gone_ns > 0)


def program_that(ends_with: int) -> tuple[str, ...]:
    script = (
        f"import sys; print('ospltool: ' + ' '.join(sys.argv[1:]), file=sys.stderr); sys.exit({ends_with})"
    )
    return (sys.executable, "-c", script)


def test_the_command_that_was_shown_is_what_runs() -> None:
    operator = operator_of(status(), program=program_that(0))
    assert operator.carry_out(operator.stop(node())) == "done: stop n1"
    assert operator.carry_out(operator.restart(node())) == "done: restart n1"


def test_a_command_that_fails_is_said_with_its_exit_code() -> None:
    operator = operator_of(status(), program=program_that(1))
    assert operator.carry_out(operator.restart(node())) == "failed with exit code 1: restart n1"


def test_a_program_that_is_not_there_is_said() -> None:
    operator = operator_of(status(), program=("/nowhere/ospltool",))
    assert "failed: ospltool stop n1" in operator.carry_out(operator.stop(node()))


def test_a_question_shows_names_from_the_network_harmless() -> None:
    operation = Operation("Stop node \x1b[31m?", ("It is \x1b[2J.",), ("ospltool", "stop", "\x1b"))
    joined = "".join(span.text for line in question_lines(operation)[2:] for span in line)
    assert joined == visible(joined)


# In the console.


def system() -> ScriptedFeed:
    told = Update(
        tuple(ReceivedSnapshot(fake.snapshot(n, fake.name_space("Orders", 1)), START_NS) for n in (1, 2))
    )
    return ScriptedFeed([(START_NS, told)], title="domain 7")


async def give(pilot: Pilot[int], line: str) -> None:
    await pilot.press("colon", *("space" if c == " " else c for c in line), "enter")
    await pilot.pause()


def test_only_y_does_it(play: Play, read_screen: Read, tmp_path: Path) -> None:
    marks = tmp_path / "done"
    script = f"import sys; open({str(marks)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')"
    operator = operator_of(status(), program=(sys.executable, "-c", script))

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        assert "OPERATE" in read_screen(app)[0]
        for keys in (["n"], ["escape"], ["q"], ["enter"], ["x", "n"]):
            await give(pilot, "stop n1")
            shown = "\n".join(read_screen(app))
            assert "Stop node n1?" in shown
            assert "ospltool stop n1" in shown
            for key in keys:
                assert isinstance(app.screen, AskScreen)
                await pilot.press(key)
            assert not isinstance(app.screen, AskScreen)
            assert not marks.exists()
        await give(pilot, "stop n1")
        await pilot.press("y")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert marks.read_text() == "stop n1\n"
        assert "ospltool stop n1: done" in "\n".join(read_screen(app))

    play(system(), scenario, operator=operator)


def test_without_a_name_the_node_under_the_cursor_is_meant(play: Play, read_screen: Read) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await give(pilot, "stop")
        assert "Stop node n1?" in "\n".join(read_screen(app))
        await pilot.press("n", "down")
        await give(pilot, "stop")
        assert "is on host-2, not on this machine" in "\n".join(read_screen(app))

    play(system(), scenario, operator=operator_of(status()))


def test_a_node_that_is_gone_is_started_after_a_question(play: Play, read_screen: Read) -> None:
    feed = system()
    feed.add(START_NS + S, Update(notices=(FeedNotice(NoticeKind.NODE_LOST, START_NS + S, "", node_id(1)),)))

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await give(pilot, "start n1")
        assert "Start node n1?" in "\n".join(read_screen(app))

    play(feed, scenario, ticks=2, operator=operator_of(DIED))


@pytest.mark.parametrize("mode", ["recorded", "simulated", "live"])
@pytest.mark.parametrize("verb", ["stop", "start", "restart"])
def test_without_operate_or_off_line_nothing_can_be_done(
    play: Play, read_screen: Read, mode: str, verb: str
) -> None:
    feed = system()
    feed.mode = mode

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await give(pilot, f"{verb} n1")
        assert not isinstance(app.screen, AskScreen)
        shown = "\n".join(read_screen(app))
        assert ("no command" if mode == "live" else "only watches") in shown

    play(feed, scenario, operator=None if mode == "live" else operator_of(status()))
