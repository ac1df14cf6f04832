"""A thread that hangs is named, whichever it is, and the lease is withheld until it moves again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.integration import hanging
from tests.integration.configurations import Settings
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds


class Hanging:
    """Node n1, which hangs where it is told to."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self._lab, self._directory = lab, directory
        path = lab.configure("n1", Settings())
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

    def check(self, place: str, activity: str, work: Callable[[], object]) -> None:
        """What hangs there while it is made to work is named, and withholds the lease until it moves."""
        file = self._directory / place
        file.touch()
        work()
        for event in ("watch.progress-lost", "watch.lease-withheld", "watch.progress-back"):
            if event == "watch.progress-back":
                file.unlink()
            self._lab.seen.wait_for(f"{event}: {activity}", partial(self._is_named, event, activity))

    def _is_named(self, event: str, activity: str) -> bool:
        return activity in self.named(event)


def test_every_thread_that_hangs_is_named(lab: Lab, tmp_path: Path) -> None:
    node = Hanging(lab, tmp_path)
    lab.write({"count": 1, "time": 1_000})
    lab.configure("n2", Settings())

    def write(**step: object) -> None:
        lab.program("writer", steps=[{"count": 1, "time": 1_000, **step}])

    node.check("look-up", "groupCreationThread (type of topic", partial(write, type="Keyless"))
    node.check("delivery", "resendQueue (delivery", lab.reader)
    node.check("stream", "sampleRequestHandler (", partial(lab.start, "n2"))
    node.check("store", "persistentDataListener", partial(write, first=5))
    node.check("pump", "AdminEventDispatcher (discovery)", lab.check)
    node.check("turn", "ospl_durability", lab.check)
    node.check("sender", "statusThread", lab.check)
    assert "dcpsHeartbeatListener" in node.named("watch.progress-lost")
