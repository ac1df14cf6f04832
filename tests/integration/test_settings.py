"""Settings that change how a node runs rather than what it keeps: each has an effect that others can see."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from engine.config.scheduling import ThreadScheduling
from engine.dds.discovery import Discovery, EndpointSeen
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.waiting import Signal
from engine.node.process import schedule_of
from tests.integration.configurations import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

WITHOUT_RIGHTS: Final = ("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice")
PATIENCE_S: Final = 60.0


def scheduling(kind: str, priority: int, how: str = "Relative") -> str:
    return f'<Class>{kind}</Class><Priority priority_kind="{how}">{priority}</Priority>'


def configure(lab: Lab, name: str, changes: Mapping[str, str]) -> None:
    """Configure a node, with something in place of pieces of its file."""
    path = lab.configure(name, Settings())
    text = path.read_text("utf-8")
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.write_text(text, "utf-8")


SCHEDULED: Final = {
    "<FailureAction>kill</FailureAction>": f"<FailureAction>kill</FailureAction>"
    f"<Scheduling>{scheduling('Timeshare', -1)}</Scheduling>",
    "</ExpiryTime></Heartbeat>": "</ExpiryTime>"
    f"<Scheduling>{scheduling('Realtime', 7)}</Scheduling></Heartbeat>",
    "<Alignment>": f"<Alignment><AlignerScheduling>{scheduling('Timeshare', -6)}</AlignerScheduling>"
    f"<AligneeScheduling>{scheduling('Timeshare', -3, 'Absolute')}</AligneeScheduling>",
    "</StoreDirectory>": f"</StoreDirectory><Scheduling>{scheduling('Default', -4)}</Scheduling>",
    "<NameSpaces>": f"<Watchdog><Scheduling>{scheduling('Realtime', 9)}</Scheduling></Watchdog><NameSpaces>",
}
"""The base is nice 1; Relative priorities are added to that."""
NICED: Final = {
    "MainThread": 3,
    "recv": 3,
    "dq.builtins": 3,
    "dq.user": 3,
    "dds-pump": 3,
    "worker": 7,
    "persistentData": 5,
    "gc": 1,
    "past": 1,
}
REALTIME: Final = {"heartbeat": 7, "sender": 7, "tev": 7, "watch": 9}


def threads_of(pid: int) -> dict[str, ThreadScheduling]:
    """The threads of a process by their names without numbers; the main one by its Python name."""
    found = {}
    for path in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            tid = int(path.name)
            name = "MainThread" if tid == pid else (path / "comm").read_text("utf-8").strip()
            found[name.partition("_")[0]] = schedule_of(tid)
    return found


def may_be_realtime() -> bool:
    """Whether processes of this test may ask for real-time scheduling, which containers often forbid."""
    ask = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    return subprocess.run([sys.executable, "-c", ask], stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_every_thread_of_a_node_has_the_scheduling_that_is_configured(lab: Lab) -> None:
    if not may_be_realtime():
        pytest.skip("real-time scheduling is not permitted here")
    configure(lab, "n1", SCHEDULED)
    lab.start("n1")
    lab.seen.wait_for("it is complete", lambda: lab.seen.are_complete("n1"))
    lab.write({"count": 1, "time": 1_000})  # a worker looks its type up
    wanted = {name: ThreadScheduling(os.SCHED_OTHER, 0, nice) for name, nice in NICED.items()}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = threads_of(lab.pid("n1"))
        shown = {name: one for name, one in found.items() if name not in REALTIME}
        fifo = {name: (found[name].policy, found[name].priority) for name in REALTIME if name in found}
        if shown == wanted and fifo == {name: (os.SCHED_FIFO, one) for name, one in REALTIME.items()}:
            break
        assert time.monotonic() < deadline, found
        time.sleep(0.05)  # the node looks for new threads with every snapshot
    said = {(line["thread"], line["wanted"]) for line in lab.trace("n1", "lifecycle.scheduled")}
    assert {("watch", "SCHED_FIFO priority 9"), ("gc", "SCHED_OTHER nice 1")} <= said
    assert "not in effect" not in lab.information("n1")


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv takes the right away")
def test_scheduling_that_is_not_permitted_is_said_and_the_rest_is_done(lab: Lab) -> None:
    if os.getuid() == 0:
        lab.prefixes["n1"] = WITHOUT_RIGHTS
    configure(lab, "n1", SCHEDULED)
    lab.start("n1")
    lab.seen.wait_for("it is complete", lambda: lab.seen.are_complete("n1"))
    refused = lab.trace("n1", "lifecycle.scheduling-refused")
    assert {line["setting"].rpartition("Service/")[2] for line in refused} == {
        "Network/Heartbeat/Scheduling",
        "Watchdog/Scheduling",
    }
    file = lab.home("n1") / "ospl.xml"
    assert all(re.fullmatch(rf"{re.escape(str(file))}:\d+:\d+", line["place"]) for line in refused)
    assert all("Operation not permitted: the node needs CAP_SYS_NICE" in line["cause"] for line in refused)
    assert len(re.findall("cannot run with SCHED_FIFO priority", lab.information("n1"))) == 2
    assert threads_of(lab.pid("n1"))["persistentData"].nice == 5


ANNOUNCED: Final = {
    "<Network>": '<Network transport_priority="11">',
    "<Heartbeat>": '<Heartbeat transport_priority="22">',
    "<Role>": "<Descripton>misspelt</Descripton><Role>",
    "<NameSpaces>": "<EntityNames><Publisher>says</Publisher><Subscriber>hears</Subscriber></EntityNames>"
    '<ClientDurability enabled="true"><EntityNames><Subscriber>asked</Subscriber>'
    "<Partition>clients</Partition></EntityNames></ClientDurability><NameSpaces>",
    "</StoreDirectory>": "</StoreDirectory>\n<StoreMode>XML</StoreMode><KeyValueStore type='sqlite3'/>",
}


def test_endpoints_of_the_protocol_announce_names_and_priorities(lab: Lab) -> None:
    """And what of the file has no effect is said, once, where it stands."""
    configure(lab, "n1", ANNOUNCED)
    lab.start("n1")
    found: set[tuple[str, bool, str, int, tuple[str, ...]]] = set()
    wanted = {
        ("d_status", True, "says", 22, ("durabilityPartition",)),
        ("d_message", True, "says", 11, ("durabilityPartition",)),
        ("d_message", False, "hears", 0, ("durabilityPartition",)),
        ("d_historicalDataRequest", False, "asked", 0, ("clients",)),
    }
    with NodeParticipant(lab.domain, lab.uri, "looks", os.urandom(16), TagRole.CLIENT) as participant:
        flag = Signal(participant)
        discovery = Discovery(participant, flag)

        def has_all() -> bool:
            for seen in discovery.take():
                if isinstance(seen, EndpointSeen):
                    qos = seen.endpoint_qos
                    found.add((seen.topic, seen.is_writer, qos.name, qos.transport_priority, seen.partitions))
            return wanted <= found

        assert flag.wait_until(has_all, PATIENCE_S), found
    (ignored,) = lab.trace("n1", "lifecycle.setting-ignored")
    (unknown,) = lab.trace("n1", "lifecycle.setting-unknown")
    assert unknown["setting"] == "//OpenSplice/Domain/Descripton"
    path = lab.home("n1") / "ospl.xml"
    line = path.read_text("utf-8").split("<StoreMode>")[0].count("\n") + 1
    assert ignored["place"] == f"{path}:{line}"
    assert ignored["setting"] == "//OpenSplice/DurabilityService/Persistent/StoreMode"
    report = lab.information("n1").partition("StoreMode has no effect")[0].rpartition("=====")[2]
    assert "Report      : WARNING" in report


def test_health_tells_what_of_a_configuration_has_no_effect(lab: Lab) -> None:
    """A node says it before it joins its domain, and a console that comes later hears it all the same."""
    configure(lab, "n1", {"<Role>": "<y2038Ready>false</y2038Ready><Role>"})
    lab.start("n1")
    lab.seen.wait_for("n1 is complete", lambda: lab.seen.are_complete("n1"))
    code, told = lab.ospltool("n1", "health", "--json")
    (system,) = json.loads(told)["data"]
    assert (code, [one["code"] for one in system["incidents"]]) == (0, ["DUL-CONFIG-IGNORED"])
