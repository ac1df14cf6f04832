"""What operators must hear of two nodes: in the trace and in ospl-info.log of real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.dds.uri import cyclone_uri
from tests.integration.configurations import Settings
from tests.integration.conftest import own_domain
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

EXPIRY_S = 12.0
SHIFT_S = 90.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """On loopback; Cyclone DDS itself bears with a process that stands still."""
    domain, tag = own_domain()
    uri = cyclone_uri(tag=tag, peers=("localhost",), lease_s=60.0, spdp_interval_ms=200, environment={})
    made = Lab(tmp_path, domain, tag, uri)
    yield made
    made.close()


def told(lab: Lab, name: str, event: str) -> list[dict[str, str]]:
    """What a node traces of such an event, once it does."""
    lab.seen.wait_for(f"{name} says {event}", lambda: bool(lab.trace(name, event)))
    return lab.trace(name, event)


def silence_s(lab: Lab, name: str) -> float:
    """For how long a node has not heard its fellow, as it shows it."""
    shown = lab.seen.node(name)
    if shown is None or not shown.fellows:
        return 0.0
    return (shown.time_ns - shown.fellows[0].last_heartbeat_ns) / 1e9


def check_late_heartbeat(lab: Lab) -> None:
    """n2 stands still for well over half of what makes it lost: pauses of n1 itself do not count."""
    os.kill(lab.pid("n2"), signal.SIGSTOP)
    try:
        lab.seen.wait_for("it is late", lambda: silence_s(lab, "n1") > 0.7 * EXPIRY_S)
    finally:
        os.kill(lab.pid("n2"), signal.SIGCONT)
    late = told(lab, "n1", "fellow.late")[0]
    assert late["fellow"] == "n2"
    assert EXPIRY_S / 2 < float(late["elapsed_ns"]) < EXPIRY_S
    assert "Heartbeat of fellow n2 came after" in lab.information("n1")
    assert not lab.trace("n1", "fellow.disconnected")


def test_what_operators_must_hear_is_told_by_real_nodes(lab: Lab) -> None:
    settings = Settings(expiry_s=EXPIRY_S)
    lab.configure("n1", settings.with_priority(100))
    lab.configure("n2", settings.with_priority(255))
    lab.shifts_s["n2"] = SHIFT_S
    lab.start("n1")
    lab.seen.wait_for("n1 is complete", lambda: lab.seen.are_complete("n1"))
    lab.start("n2")
    lab.seen.wait_for("n2 is master", lambda: lab.seen.master("n1") == "n2")

    (handed,) = told(lab, "n1", "election.hand-over")
    assert (handed["fellow"], handed["priority"], handed["own_priority"]) == ("n2", "255", "100")

    for name, fellow, sign in (("n1", "n2", 1), ("n2", "n1", -1)):
        (mixed,) = told(lab, name, "election.mixed-priorities")
        assert (mixed["namespace"], mixed["priorities"]) == ("stock", "100, 255")
        skew = told(lab, name, "fellow.clock-skew")[0]
        assert skew["fellow"] == fellow
        assert float(skew["skew_ns"]) == pytest.approx(sign * SHIFT_S, abs=30.0)
        assert "masterPriority 255 (legacy selection) is mixed" in lab.information(name)
        assert f"difference including latency with fellow {fellow}" in lab.information(name)

    check_late_heartbeat(lab)


def test_the_environment_says_what_is_reported_where_the_configuration_does_not(lab: Lab) -> None:
    lab.configure("n1", Settings())
    path = lab.configure("n2", Settings())
    path.write_text(path.read_text("utf-8").replace("<Role>", '<Report verbosity="INFO"/><Role>'), "utf-8")
    lab.start("n1", "n2", environ={"OSPL_VERBOSITY": "WARNING"})
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n1", "n2"))
    lab.stop("n1", "n2")
    assert "Report      : INFO" not in lab.information("n1")
    assert "Report      : INFO" in lab.information("n2")
