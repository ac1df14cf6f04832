"""The FINEST trace of real nodes: one request can be followed through two of them."""

from __future__ import annotations

import dataclasses

import pytest

from tests.integration.configurations import Settings
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

COUNT = 20
ON_THE_WAY = {
    "n2": ("align.request", "align.group-received", "align.completed"),
    "n1": ("align.request-received", "align.answering", "align.group-sent"),
}

WHOLE = ("lifecycle.interface", "watch.threads", "lifecycle.stop-requested", "lifecycle.stopping")
RUN = {"n1": (*WHOLE, "store.opened", "store.flushed"), "n2": (*WHOLE, "store.disabled")}


def test_one_request_is_followed_through_two_nodes(lab: Lab) -> None:
    lab.configure("n1", Settings().with_priority(200))
    lab.configure("n2", dataclasses.replace(Settings(), store=False))
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    lab.write({"count": COUNT, "time": 1_000})
    lab.seen.wait_for("all is on disk", lambda: lab.seen.stored("n1") == COUNT)
    lab.start("n2")
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n1", "n2"))
    lab.stop("n1", "n2")
    (request,) = lab.trace("n2", "align.request")
    for name, events in ON_THE_WAY.items():
        for event in events:
            (found,) = lab.trace(name, event)
            assert found["source"] == request["source"]
            if "samples" in found:
                assert found["samples"] == str(COUNT)
    (answer,) = lab.trace("n1", "align.answering")
    assert answer["purpose"] == "initial"
    (injected,) = lab.trace("n2", "merge.injected")
    assert (injected["group"], injected["total"], injected["writes"]) == ("stock.Reading", "20", "20")
    for name, expected in RUN.items():
        assert [event for event in expected if not lab.trace(name, event)] == []


def test_a_full_disk_of_the_trace_harms_no_node_and_files_rotate(lab: Lab) -> None:
    """n1 traces to a disk that is always full, n2 to files of a few lines."""
    path = lab.configure("n1", Settings())
    text = path.read_text()
    path.write_text(text.replace(f"{lab.home('n1') / 'trace.log'}", "/dev/full"))
    lab.configure("n2", Settings())
    lab.start("n1", environ={"OSPL_INFOFILE": "/dev/full", "OSPLTOOL_TRACE_ROTATION": "1K:1"})
    lab.start("n2", environ={"OSPLTOOL_TRACE_ROTATION": "4K:2"})
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n1", "n2"))
    lab.write({"count": COUNT, "time": 1_000}, readers=2)
    lab.seen.wait_for("all is on disk", lambda: lab.seen.stored("n1") == lab.seen.stored("n2") == COUNT)
    assert lab.stop("n1", "n2") == [0, 0]
    assert not (lab.home("n1") / "trace.log").exists()
    files = sorted(path.name for path in lab.home("n2").glob("trace.log*"))
    assert files == ["trace.log", "trace.log.1", "trace.log.2"]
    assert all((lab.home("n2") / name).stat().st_size <= 4_096 + 2_000 for name in files)
