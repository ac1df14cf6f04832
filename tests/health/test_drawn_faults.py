"""Systems and faults drawn from seeds: no incident is told twice, and after recovery all have ended."""

from __future__ import annotations

import itertools

import pytest

from engine.simulator.options import Fault, draw
from engine.simulator.schedule import START_NS
from ospltool.health.health import Health
from ospltool.health.incidents import Incident
from ospltool.live.model import SystemModel
from ospltool.live.simulated import SimulatedFeed
from tests.fake import SECOND_NS as S

STANDING = {
    "DUL-REJECTED",
    "DUL-CAPTURE-LOSS",
    "DUL-STORE-DAMAGED",
    "DUL-READER-NOT-SERVED",
    "DUL-READER-DEVIATES",
    "DUL-CONFIG-DIFFERS",
    "DUL-PRIORITIES-MIXED",
    "DUL-INCOMPATIBLE",
    "DUL-MASTER-IMPOSSIBLE",
    "DUL-SET-DIFFERS",
}
"""What may remain after everything has healed: it is how the system was drawn, or cannot be made undone."""

FAULTS = (Fault.CRASH, Fault.PARTITION)
STEP_NS = S // 4


class Played:
    """A run from beginning to end, with its health looked at four times a second."""

    def __init__(self, seed: int, *faults: Fault) -> None:
        self.clock_ns = 0
        feed = SimulatedFeed(draw(seed, faults, nodes=3, minutes=0.5), title="t", clock=lambda: self.clock_ns)
        self.model = SystemModel()
        self.health = Health(self.model)
        self.told: dict[str, Incident] = {}
        while not self.model.ended_ns:
            self.clock_ns += STEP_NS
            update = feed.poll()
            self.model.apply(update, feed.now_ns())
            if not self.model.ended_ns:
                self.health.update(feed.now_ns())
                self.told.update({one.key: one for one in (*self.health.open, *self.health.closed)})
        feed.close()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll goes as far as it should, however slow the machine is."""
    monkeypatch.setattr("ospltool.live.simulated.WORK_S", 60.0)


@pytest.mark.parametrize("seed", range(1, 7))
def test_after_recovery_all_incidents_have_ended_and_none_was_told_twice(seed: int) -> None:
    played = Played(seed, *FAULTS)
    assert [(one.code.id, one.what) for one in played.health.open if one.code.id not in STANDING] == []
    for one, other in itertools.combinations(played.told.values(), 2):
        if (one.code.cause, one.who) == (other.code.cause, other.who):
            first, second = sorted((one, other), key=lambda each: each.since_ns)
            assert 0 < first.until_ns <= second.since_ns, (first, second)
    assert all(one.since_ns >= START_NS for one in played.told.values())


@pytest.mark.parametrize("seed", range(5, 9))
def test_without_faults_nothing_is_wrong(seed: int) -> None:
    played = Played(seed)
    found = {(one.code.id, one.what) for one in played.told.values()}
    assert {(code, what) for code, what in found if code not in STANDING} == set()
