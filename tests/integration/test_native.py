"""Real nodes with the compiled library and without it: both keep the same, and each says which it is."""

from __future__ import annotations

import pytest

from engine import native
from engine.runtime.monitor import CaptureView
from tests.integration.configurations import Settings
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

COUNT = 500
WITHOUT = {native.CHOICE: "no"}


def captures(lab: Lab, name: str) -> CaptureView:
    shown = lab.seen.node(name)
    assert shown is not None
    assert shown.addresses == ("127.0.0.1",)
    return shown.capture


def test_a_node_without_the_library_captures_the_same_and_says_so(lab: Lab) -> None:
    """It is the one that captures: the other has what it gives."""
    if native.absence():
        pytest.skip(f"there is no library: {native.absence()}")
    lab.configure("n1", Settings().with_priority(200))
    lab.configure("n2", Settings())
    lab.start("n1", environ=WITHOUT)
    lab.start("n2")
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n1", "n2"))
    lab.write({"count": COUNT, "time": 1_000}, readers=2)
    lab.seen.wait_for("all is on disk", lambda: lab.seen.stored("n1") == lab.seen.stored("n2") == COUNT)
    assert captures(lab, "n1") == CaptureView("python", "OSPLTOOL_NATIVE=no")
    assert captures(lab, "n2") == CaptureView("compiled")
    assert lab.stop("n1", "n2") == [0, 0]
    assert lab.on_disk("n1") == lab.on_disk("n2")

    (slow,) = lab.trace("n1", "lifecycle.capture-in-python", "lifecycle.capture")
    assert slow == {"event": "lifecycle.capture-in-python", "cause": "OSPLTOOL_NATIVE=no"}
    (fast,) = lab.trace("n2", "lifecycle.capture-in-python", "lifecycle.capture")
    assert fast == {"event": "lifecycle.capture", "path": str(native.LIBRARY)}
    said = "Samples are captured in Python, without the compiled library: OSPLTOOL_NATIVE=no"
    assert said in lab.information("n1")
    assert "captures samples with the compiled library" in lab.information("n2")


def test_status_says_that_a_node_captures_in_python(lab: Lab) -> None:
    lab.environ.update(WITHOUT)
    lab.configure("n1", Settings())
    assert lab.ospltool("n1", "start")[0] == 0
    try:
        lab.seen.wait_for("n1 is complete", lambda: lab.seen.are_complete("n1"))
        lab.seen.wait_for("status says so", lambda: lab.status("n1")["capture"] == "python")
        assert lab.status("n1")["capture_reason"] == "OSPLTOOL_NATIVE=no"
        code, text = lab.ospltool("n1", "status")
        assert code == 0
        assert "is operational; it captures samples in Python: OSPLTOOL_NATIVE=no" in text
    finally:
        lab.ospltool("n1", "stop")


def test_a_node_does_not_start_with_a_demand_that_it_does_not_know(lab: Lab) -> None:
    lab.configure("n1", Settings())
    process = lab.launch("n1", {native.CHOICE: "perhaps"})
    assert process.wait(60) != 0
    assert "OSPLTOOL_NATIVE must be no, required or empty, not 'perhaps'" in lab.errors("n1") + lab.output(
        "n1"
    )
