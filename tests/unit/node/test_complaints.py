"""What keeps a node from doing what its file says: element, file, line and remedy, before anything runs."""

from __future__ import annotations

import pathlib
import re
import types
from typing import TYPE_CHECKING, Any, cast

import pytest

from engine import __main__ as program
from engine.capture.configured_uri import interface_fault, uri_of
from engine.config import interpret, parse
from engine.config.settings import ALIGNEE, HEARTBEAT, SERVICE, WATCHDOG
from engine.core.election import NOBODY, NOBODY_REMEDY
from engine.dds.errors import DdsError
from engine.node import process
from engine.node.intake import NodeIntake
from engine.node.process import Threads, schedule_of
from engine.runtime.node_snapshot import without_candidates
from engine.supervisor.policy import EXIT_DIED
from engine.tracing.tracer import Tracer

if TYPE_CHECKING:
    from engine.config import Configuration
    from engine.runtime.runtime import Runtime

FILE = """<OpenSplice>
 <Domain><Name>d</Name>
  <Service name="other"><Command>o</Command>
   <Scheduling><Class>Realtime</Class><Priority>500</Priority></Scheduling></Service>
  <Service name="durability"><Command>durability</Command>
{service}</Service>
 </Domain>
 <DDSI2Service name="ddsi2"><General>
  <NetworkInterfaceAddress>{interface}</NetworkInterfaceAddress></General></DDSI2Service>
 <DurabilityService name="durability">
{durability}
  <NameSpaces><NameSpace name="n"><Partition>p</Partition></NameSpace>
   <Policy nameSpace="n" durability="Durable" aligner="true" alignee="Initial"/></NameSpaces>
 </DurabilityService>
</OpenSplice>"""


def configured(service: str = "", durability: str = "", interface: str = "lo") -> Configuration:
    text = FILE.format(service=service, durability=durability, interface=interface)
    found = interpret(parse(text.encode(), "f.xml", {}))
    assert found.problems == ()
    return found.configuration


def scheduling(kind: str, priority: int, how: str = "Relative") -> str:
    return (
        f'<Scheduling><Class>{kind}</Class><Priority priority_kind="{how}">{priority}</Priority></Scheduling>'
    )


class Events:
    """A tracer that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []

    def event(self, name: str, **fields: Any) -> None:
        self.told.append((name, fields))


def threads(configuration: Configuration) -> tuple[Threads, list[str]]:
    events = Events()
    made = Threads(configuration, cast("Tracer", events))
    assert {name for name, _ in events.told} <= {"lifecycle.scheduling-impossible"}
    return made, ["{place}: {setting}: {cause}; {used}".format(**fields) for _, fields in events.told]


NOW = schedule_of(0)


@pytest.mark.parametrize(
    ("wanted", "cause"),
    [
        (scheduling("Realtime", 500), "SCHED_FIFO has the priorities 1 to 99, not 500"),
        (scheduling("Realtime", 0), "SCHED_FIFO has the priorities 1 to 99, not 0"),
        (scheduling("Timeshare", 90, "Absolute"), "nice is -20 to 19, not -90"),
        (scheduling("Timeshare", -20, "Absolute"), "nice is -20 to 19, not 20"),
    ],
)
@pytest.mark.parametrize("where", [SERVICE, ALIGNEE, HEARTBEAT, WATCHDOG])
def test_a_priority_that_linux_does_not_have_is_said_at_once_with_its_place(
    where: str, wanted: str, cause: str
) -> None:
    part = {
        SERVICE: wanted,
        HEARTBEAT: f"<Network><Heartbeat>{wanted}<ExpiryTime update_factor='0.2'>10</ExpiryTime>"
        "</Heartbeat></Network>",
        ALIGNEE: "<Network><Alignment>"
        f"{wanted.replace('Scheduling>', 'AligneeScheduling>')}</Alignment></Network>",
        WATCHDOG: f"<Watchdog>{wanted}</Watchdog>",
    }[where]
    configuration = configured(service=part) if where == SERVICE else configured(durability=part)
    line = 6 if where == SERVICE else 11
    made, said = threads(configuration)
    assert len(said) == 1
    assert (
        re.sub(r":\d+: /", ": /", said[0]) == f"f.xml:{line}: //OpenSplice/{where}/Priority: {cause}; {NOW}"
    )
    assert made._wanted[where] == NOW


@pytest.mark.parametrize(
    "wanted", [scheduling("Realtime", 99), scheduling("Timeshare", 20, "Absolute"), scheduling("Default", 0)]
)
def test_a_priority_that_linux_has_is_not_spoken_of(wanted: str) -> None:
    _, said = threads(configured(service=wanted))
    assert said == []


def test_a_trace_file_that_is_a_directory_is_named_with_its_place(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.xml"
    tracing = f"<Tracing>\n<OutputFile>{tmp_path}</OutputFile></Tracing>"
    path.write_text(FILE.format(service="", durability=tracing, interface="lo"), "utf-8")
    assert program.main([str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"ospltool: {path}:12:13: //OpenSplice/DurabilityService/Tracing/OutputFile: '")
    assert "cannot be opened as a trace file: Is a directory; name a file" in said
    path.write_text(FILE.format(service="", durability="", interface="lo"), "utf-8")
    monkeypatch.setenv(program.TRACE_JSON, str(tmp_path))
    assert program.main([str(path)]) == 2
    assert capsys.readouterr().err.startswith("ospltool: OSPLTOOL_TRACE_JSON: '")


@pytest.mark.parametrize("missing", ["nope9", "192.0.2.77"])
def test_an_unknown_interface_is_named_with_its_place_and_those_that_there_are(missing: str) -> None:
    configuration = configured(interface=missing)
    said = interface_fault(configuration, uri_of(configuration, {}))
    assert said.startswith(
        "f.xml:9:28: //OpenSplice/DDSI2Service/General/NetworkInterfaceAddress:"
        f" this machine has no network interface '{missing}'; it has "
    )
    assert "lo (127.0.0.1)" in said
    assert "AUTO" in said
    given = uri_of(configuration, {}).replace(missing, "eth77" if missing == "nope9" else "192.0.2.78")
    assert interface_fault(configuration, given).startswith("CYCLONEDDS_URI: this machine has no")


@pytest.mark.parametrize("present", ["lo", "127.0.0.1", "AUTO"])
def test_an_interface_that_there_is_is_no_fault(present: str) -> None:
    configuration = configured(interface=present)
    assert interface_fault(configuration, uri_of(configuration, {})) == ""


def test_a_node_with_an_unknown_interface_is_refused_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise DdsError(-1, "create domain")

    def node(interface: str) -> process.RunningNode:
        made = process.RunningNode(configured(interface=interface), "n", Tracer(lambda: 0, []), {})
        monkeypatch.setattr(made, "_begin", fail)
        return made

    with pytest.raises(process.ConfigurationRefused, match=r"^f\.xml:9:28: .*'nope9'"):
        node("nope9").run()
    with pytest.raises(process.ConfigurationRefused, match="cannot create domain"):
        node("lo").run()


def test_status_says_what_to_do_where_nobody_may_be_master() -> None:
    states = [types.SimpleNamespace(name="n", why=NOBODY), types.SimpleNamespace(name="m", why="")]
    runtime = types.SimpleNamespace(core=types.SimpleNamespace(name_spaces=states))
    assert without_candidates(cast("Runtime", runtime)) == (
        f"name-space 'n' has no master: {NOBODY}; {NOBODY_REMEDY}"
    )
    assert "masterPriority above 0" in NOBODY_REMEDY


def test_a_fault_that_a_new_start_may_mend_is_traced() -> None:
    tracer = Tracer(lambda: 0, [])
    assert program._died(process.NodeError("the disk is gone"), tracer, None) == (
        EXIT_DIED,
        "the disk is gone",
    )
    assert [record.event.id for record in tracer.recent()] == ["lifecycle.unrecoverable"]


def test_a_secret_that_cannot_be_read_again_is_traced_once() -> None:
    tracer = Tracer(lambda: 0, [])
    proofs = types.SimpleNamespace(
        secret=types.SimpleNamespace(problem="its mode is 0644"), refused_since=lambda _: {}
    )
    intake = types.SimpleNamespace(
        _participant=types.SimpleNamespace(proofs=proofs),
        _tracer=tracer,
        _secret_problem="",
        _refused_told={},
    )
    for now in (0.0, 1.0):
        NodeIntake.tell_unproved(cast("Any", intake), now)
    assert [record.event.id for record in tracer.recent()] == ["proof.secret-kept"]
