"""What `ospltool status` says of a node whose store refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.supervisor.lease_link import SupervisorLink
from engine.supervisor.node_status import Condition, status_of
from engine.supervisor.policy import NodePhase
from engine.supervisor.process_identity import identify
from engine.supervisor.rundir import NodeDirectory, RunRecord, read_json

SPACE = "store.sqlite: no space left"


def known(directory: Path, phase: NodePhase) -> tuple[NodeDirectory, SupervisorLink]:
    """A node, which is this process, as its supervisor shows it; and its side of the supervisor."""
    us = identify(os.getpid())
    assert us is not None
    record = RunRecord("u", "c", "n", 1, "r", "", 10.0, phase, "", 0, False, 0, 0, supervisor=us, node=us)
    found = NodeDirectory(directory)
    found.write_record(record)
    return found, SupervisorLink(directory, os.open(directory / "lease", os.O_WRONLY | os.O_CREAT), 0)


@pytest.mark.parametrize(
    ("phase", "state", "details", "said"),
    [
        (NodePhase.RUNNING, "COMPLETE", {}, "is operational"),
        (NodePhase.RUNNING, "COMPLETE", {"problem": "", "unstored": 0}, "is operational"),
        (
            NodePhase.RUNNING,
            "COMPLETE",
            {"problem": SPACE, "unstored": 3000},
            f"is operational, but its store refuses: {SPACE}; 3000 samples are in memory only",
        ),
        (
            NodePhase.RUNNING,
            "COMPLETE",
            {"problem": SPACE, "unstored": 1},
            f"is operational, but its store refuses: {SPACE}; 1 sample is in memory only",
        ),
        (
            NodePhase.RUNNING,
            "COMPLETE",
            {"problem": SPACE},
            f"is operational, but its store refuses: {SPACE}",
        ),
        (
            NodePhase.STARTING,
            "INIT",
            {"problem": SPACE},
            f"is starting (INIT), but waits for room to open its store: {SPACE}",
        ),
        (NodePhase.RUNNING, "COMPLETE", {"problem": 3, "unstored": "x"}, "is operational"),
        (
            NodePhase.RUNNING,
            "COMPLETE",
            {"problem": os.fsdecode(b"/store/\xff: full"), "unstored": 1},
            "is operational, but its store refuses: /store/?: full; 1 sample is in memory only",
        ),
        (
            NodePhase.RUNNING,
            "DISCOVER_PERSISTENT_SOURCE",
            {"waits": "name-space 'x' has no master"},
            "is starting (DISCOVER_PERSISTENT_SOURCE), but waits: name-space 'x' has no master",
        ),
    ],
)
def test_the_sentence_names_what_the_store_refuses(
    tmp_path: Path, phase: NodePhase, state: str, details: dict[str, object], said: str
) -> None:
    directory, link = known(tmp_path, phase)
    link.report(state, **details)
    status = status_of(directory)
    assert status is not None
    assert status.sentence == f'ospltool system with domain name "n" {said}'


def test_what_an_earlier_process_said_of_its_store_does_not_count(tmp_path: Path) -> None:
    directory, link = known(tmp_path, NodePhase.RUNNING)
    link.report("COMPLETE", problem=SPACE, unstored=7)
    said = (tmp_path / "state.json").read_text(encoding="utf-8")
    (tmp_path / "state.json").write_text(said.replace(f'"pid":{os.getpid()}', '"pid":1'), encoding="utf-8")
    status = status_of(directory)
    assert status is not None
    assert (status.state, status.store_problem, status.unstored) == ("", "", 0)
    assert status.condition is Condition.STARTING


def test_another_detail_is_no_other_state(tmp_path: Path) -> None:
    _, link = known(tmp_path, NodePhase.RUNNING)
    link.report("COMPLETE")
    since_ns = read_json(tmp_path / "state.json")["time_ns"]
    link.report("COMPLETE", problem=SPACE)
    said = read_json(tmp_path / "state.json")
    assert (said["time_ns"], said["problem"]) == (since_ns, SPACE)
    link.report("TERMINATING")
    assert read_json(tmp_path / "state.json")["time_ns"] > since_ns
