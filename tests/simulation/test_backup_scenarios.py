"""A set that is replaced with a reason to keep it: reported with counts, on disk, there after restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine.core.namespaces import MergeType
from engine.runtime.holdings import Holdings
from engine.store.backups import replaced
from engine.store.interface import SetState
from tests.simulation.scenarios import Scenario, node

if TYPE_CHECKING:
    from engine.runtime.persistence import Turn
    from engine.runtime.sets import NameSpaceData

WHY = "merge policy Replace"


@pytest.fixture(autouse=True)
def keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every set that takes the place of another has a reason to keep it."""
    write_set = Holdings.write_set

    def keeps_all(self: Holdings, data: NameSpaceData, turn: Turn | None = None, *, keeps: str = "") -> None:
        write_set(self, data, turn, keeps=keeps or WHY)

    monkeypatch.setattr(Holdings, "write_set", keeps_all)


def kept(scenario: Scenario, name: str) -> list[set[int]]:
    """The instances in each back-up on a node's disk."""
    versions = scenario.node(name).medium.versions.values()
    return [
        {row.key[-1] for group in each.groups.values() for row in group.rows.values()}
        for each in versions
        if each.state is SetState.KEPT
    ]


def test_a_merge_by_replace_leaves_a_backup_and_a_warning() -> None:
    plans = [node(name, priority=ord(name), merges={"*": MergeType.REPLACE}) for name in "ab"]
    scenario = Scenario(*plans)
    scenario.start()
    scenario.until(scenario.complete)
    for name in "ab":
        scenario.writer(name)
    scenario.write("a", 1, 2)
    scenario.split("a", "b")
    scenario.write("a", 3)
    scenario.write("b", 4)
    healed = scenario.now
    scenario.heal()
    scenario.settle()
    (loser,) = [name for name in "ab" if scenario.traced("store.backup", name, healed)]
    (fields,) = scenario.traced("store.backup", loser, healed)
    assert (fields["samples"], fields["total"]) == (3, 3)
    assert WHY in str(fields["cause"])
    own = {1, 2, 3} if loser == "a" else {1, 2, 4}
    assert kept(scenario, loser) == [own]
    scenario.kill(loser)
    scenario.start(loser)
    scenario.settle()
    assert own in kept(scenario, loser)
    (mark,) = [
        each.mark
        for each in scenario.node(loser).medium.versions.values()
        if each.state is SetState.KEPT and each.number == fields["version"]
    ]
    note = replaced(mark)
    assert note is not None
    assert (note.by, note.why, note.before, note.after) == (f"node {loser}", fields["cause"], 3, 3)
    assert note.at_ns > 0
