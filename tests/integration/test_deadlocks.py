"""A thread that hangs is named, whichever it is, and the lease is withheld until it moves again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from engine.dds.activity import BEAT_S, IDLE_BEATS
from tests.integration import hanging
from tests.integration.configurations import Settings
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds


class Hanging:
    """Node n1, which hangs where it is told to."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self._lab, self._directory = lab, directory
        path = lab.configure("n1", Settings(terminate_s=2.0))
        scheduling = "<Scheduling><Class>Default</Class><Priority>0</Priority></Scheduling>"
        watched = f'<Watchdog deadlockDetection="true">{scheduling}</Watchdog></DurabilityService>'
        lease = '<Lease><ExpiryTime update_factor="0.1">2</ExpiryTime></Lease></Domain>'
        text = path.read_text().replace("</DurabilityService>", watched)
        path.write_text(text.replace("</Domain>", lease))
        lab.start("n1", environ=hanging.environ(directory))
        lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))

    def named(self, event: str) -> str:
        """The activities that events of a kind name."""
        return " ".join(
            fields.get("activity", fields.get("activities", "")) for fields in self._lab.trace("n1", event)
        )

    def check(self, place: str, activity: str, work: Callable[[], object], *, withholds: bool = True) -> None:
        """What hangs there while it is made to work is named, and withholds the lease until it moves."""
        file = self._directory / place
        file.touch()
        work()
        withheld = ("watch.lease-withheld",) if withholds else ()
        for event in ("watch.progress-lost", *withheld, "watch.progress-back"):
            if event == "watch.progress-back":
                file.unlink()
            self._lab.seen.wait_for(f"{event}: {activity}", partial(self._is_named, event, activity))

    def check_type_of_nobody(self) -> None:
        """A writer is gone before its type was asked for: that its group can not be had is told."""
        lab, file = self._lab, self._directory / "look-up"
        file.touch()
        writer = lab.program("writer", steps=[{"count": 1, "time": 1_000, "type": "OtherPlain"}])
        named = partial(self._is_named, "watch.progress-lost", "OtherPlain")
        lab.seen.wait_for("it is looked up", named)
        writer.kill()
        file.unlink()
        lab.seen.wait_for("it is not found", lambda: bool(lab.trace("n1", "group.not-kept")))

    def check_unwritten(self) -> None:
        """The store hangs as the node ends: in time, and it says how much it has not written."""
        (self._directory / "store").touch()
        lab = self._lab
        before = self._captured()
        lab.write({"first": 100, "count": 7, "time": 1_000})
        lab.seen.wait_for("it is captured", lambda: self._captured() == before + 7)
        assert lab.stop("n1") == [0]
        (left,) = lab.trace("n1", "store.not-flushed")
        assert int(left["samples"]) > 0

    def _captured(self) -> int:
        shown = self._lab.seen.node("n1")
        return shown.counters["captured"] if shown else 0

    def _is_named(self, event: str, activity: str) -> bool:
        return activity in self.named(event)

    def check_stopped(self, *names: str) -> None:
        """Threads that are stopped, wherever they are, are named in time and withhold the lease."""
        pid = self._lab.pid("n1")
        found = {name: tid for tid, name in hanging.threads(pid).items() if name in names}
        assert {*found} == {*names}
        began_s = time.monotonic()
        hanging.stop_threads(pid, *found.values())

        def are_named() -> bool:
            lost = {fields["activity"]: int(fields["tid"]) for fields in self._lab.trace("n1", LOST)}
            return all(
                any(
                    activity.startswith(ACTIVITIES[name]) and tid == found[name]
                    for activity, tid in lost.items()
                )
                for name in names
            )

        while not are_named():
            assert time.monotonic() - began_s < BOUND_S, (names, self.named(LOST))
            time.sleep(0.1)  # what a file has is told by nobody
        assert names == ("watch",) or self.named("watch.lease-withheld")
        for name in names:
            hanging.continue_thread(pid, found[name])


LOST = "watch.progress-lost"
ACTIVITIES = {
    "python": "ospl_durability",
    "persistentData": "persistentDataListener",
    "past": "past (writes store.past)",
    "heartbeat": "dcpsHeartbeatListener",
    "sender": "statusThread",
    "dds-pump": "AdminEventDispatcher",
    "worker_0": "worker_0",
    "watch": "watch",
    "recv": "recv of Cyclone DDS",
    "dq.builtins": "dq.builtins of Cyclone DDS",
    "tev": "tev of Cyclone DDS",
}
"""The activity that names each thread."""
UNWATCHED = {"gc", "dq.user"}
"""Threads that may have nothing to do for ever; see `engine.dds.library_threads`."""
BOUND_S = 30.0
"""Far more than the limit of these nodes, which is three seconds, on a busy machine."""


def wait_for_threads(lab: Lab) -> None:
    """Until all threads of the node are there, each with its name; there are none that nobody watches."""
    seen: set[str] = set()

    def are_there() -> bool:
        seen.clear()
        seen.update(hanging.threads(lab.pid("n1")).values())
        return {*ACTIVITIES} <= seen

    lab.seen.wait_for("its threads have their names", are_there)
    assert seen == {*ACTIVITIES, *UNWATCHED}


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_every_thread_that_is_stopped_is_named(lab: Lab, tmp_path: Path, is_busy: bool) -> None:
    node = Hanging(lab, tmp_path)
    lab.write({"count": 1, "time": 1_000})
    wait_for_threads(lab)
    if is_busy:
        lab.program("writer", steps=[{"count": 100_000, "every_s": 0.05}])
    time.sleep(2 * IDLE_BEATS * BEAT_S)  # nothing is named meanwhile
    assert not node.named(LOST)
    node.check_stopped("watch")
    node.check_stopped(*ACTIVITIES.keys() - {"watch", "python"})
    node.check_stopped("python")
    lab.kill("n1")  # it cannot end


def test_a_process_that_is_stopped_and_goes_on_names_no_thread(lab: Lab, tmp_path: Path) -> None:
    node = Hanging(lab, tmp_path)
    os.kill(lab.pid("n1"), signal.SIGSTOP)
    time.sleep(2 * IDLE_BEATS * BEAT_S)
    os.kill(lab.pid("n1"), signal.SIGCONT)
    time.sleep(IDLE_BEATS * BEAT_S)
    assert not node.named(LOST)


def test_every_thread_that_hangs_is_named(lab: Lab, tmp_path: Path) -> None:
    node = Hanging(lab, tmp_path)
    lab.write({"count": 1, "time": 1_000})
    lab.configure("n2", Settings())

    def write(**step: object) -> None:
        lab.program("writer", steps=[{"count": 1, "time": 1_000, **step}])

    node.check("look-up", "groupCreationThread (type of topic", partial(write, type="Keyless"))
    node.check_type_of_nobody()
    node.check("delivery", "resendQueue (delivery", lab.reader)
    node.check("stream", "sampleRequestHandler (", partial(lab.start, "n2"))
    node.check("store", "persistentDataListener", partial(write, first=5))
    node.check("pump", "AdminEventDispatcher (discovery)", lab.check)
    node.check("turn", "ospl_durability", lab.check)
    node.check("past", "past (writes store.past)", partial(lab.stop, "n2"), withholds=False)
    assert "past" not in node.named("watch.lease-withheld")
    for activity in ("statusThread", "dcpsHeartbeatListener"):  # both hang; the first withholds the lease
        node.check("sender", activity, lab.check, withholds=False)
    withheld = node.named("watch.lease-withheld")
    assert "statusThread" in withheld or "dcpsHeartbeatListener" in withheld
    node.check_unwritten()
