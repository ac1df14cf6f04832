"""A thread of a persistence service that hangs is named."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.integration import hanging
from tests.integration.lab import Lab
from tests.redundancy.replicas import Replicas

pytestmark = pytest.mark.dds


def test_a_store_that_hangs_is_said_and_shown(lab: Lab, replicas: Replicas, tmp_path: Path) -> None:
    lab.environ.update(hanging.environ(tmp_path))
    replicas.start("a")
    (tmp_path / "service-store").touch()
    lab.write({"count": 1, "time": 1_000})
    replicas.wait_for("it shows it", lambda: "store does not proceed" in replicas.shown()["a"].problems)
    (tmp_path / "service-store").unlink()
    replicas.wait_for("it is over", lambda: not replicas.shown()["a"].problems)
    replicas.wait_equal("a", count=1)


ACTIVITIES = {
    "store": "store",
    "past": "past (writes store.past)",
    "exchange": "exchange (with ",
    "worker_0": "worker_0",
    "dds-pump": "AdminEventDispatcher",
    "watch": "watch",
    "recv": "recv of Cyclone DDS",
    "dq.builtins": "dq.builtins of Cyclone DDS",
    "tev": "tev of Cyclone DDS",
}
"""The activity that names each thread of a service, except its own, which is `service`."""
BOUND_S = 30.0


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_every_thread_of_a_service_that_is_stopped_is_named(
    lab: Lab, replicas: Replicas, tmp_path: Path, is_busy: bool
) -> None:
    lab.environ.update(hanging.environ(tmp_path))
    if is_busy:  # settings in a file count as well: they say how often `tev` runs
        (tmp_path / "cyclonedds.xml").write_text(lab.uri)
        lab.environ["CYCLONEDDS_URI"] = f"file://{tmp_path}/cyclonedds.xml"
    replicas.start("a", "b")
    replicas.wait_connected("a", "b")
    lab.write({"count": 1, "time": 1_000}, readers=2)
    pid, names = replicas.pid("a"), {*ACTIVITIES, "gc", "dq.user"}
    replicas.wait_for("its threads are there", lambda: names <= {*hanging.threads(pid).values()})
    found = {name: tid for tid, name in hanging.threads(pid).items() if tid != pid}
    assert all(one in names or one.startswith("worker_") for one in found)
    if is_busy:
        lab.program("writer", readers=2, steps=[{"count": 100_000, "every_s": 0.05}])
    assert "Progress changed" not in replicas.log("a").read_text()
    check_named(replicas, {"watch": found["watch"]}, pid)
    check_named(replicas, {name: found[name] for name in ACTIVITIES if name != "watch"}, pid)
    check_named(replicas, {"service": pid}, pid)
    replicas.kill("a")


def check_named(replicas: Replicas, threads: dict[str, int], pid: int) -> None:
    """Threads that are stopped are named in time; then those of Python go on."""
    hanging.stop_threads(pid, *threads.values())
    wanted = [(f'changed: "{ACTIVITIES.get(name, name)}', f"({tid}):d:") for name, tid in threads.items()]
    until_s = time.monotonic() + BOUND_S
    while not are_said(replicas.log("a").read_text().splitlines(), wanted):
        assert time.monotonic() < until_s, (wanted, replicas.log("a").read_text())
        time.sleep(0.1)  # what a file has is told by nobody
    for tid in threads.values():
        hanging.continue_thread(pid, tid)


def are_said(lines: list[str], wanted: list[tuple[str, str]]) -> bool:
    """Whether there is a line with both parts of each."""
    return all(any(one in line and other in line for line in lines) for one, other in wanted)


def test_what_writes_its_past_is_watched_as_well(lab: Lab, replicas: Replicas, tmp_path: Path) -> None:
    lab.environ.update(hanging.environ(tmp_path))
    (tmp_path / "past-whole").touch()
    replicas.start("a")
    problem = "past (writes store.past) does not proceed"
    replicas.wait_for("it shows it", lambda: problem in replicas.shown()["a"].problems)
    (tmp_path / "past-whole").unlink()
    replicas.wait_for("it is over", lambda: not replicas.shown()["a"].problems)
