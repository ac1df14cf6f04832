"""A set that is replaced with a reason to keep it: reported with counts, on disk, there after restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from engine.core.name_spaces import MergeType, NameSpace
from engine.dataset.sample import DATA
from engine.runtime.shared_state import SharedState
from engine.simulator.options import NodePlan, TopicPlan
from engine.store.interface import MAX_BACKUPS, SetState, note_of
from tests.simulation.scenarios import NS, Scenario, node

if TYPE_CHECKING:
    from engine.runtime.name_space_data import NameSpaceData
    from engine.runtime.store_queue import Conversion

WHY = "merge policy Replace"


@pytest.fixture(autouse=True)
def keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every set that takes the place of another has a reason to keep it."""
    write_set = SharedState.write_set

    def keeps_all(
        self: SharedState, data: NameSpaceData, conversion: Conversion | None = None, *, keeps: str = ""
    ) -> None:
        write_set(self, data, conversion, keeps=keeps or WHY)

    monkeypatch.setattr(SharedState, "write_set", keeps_all)


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
    note = note_of(mark)
    assert note is not None
    assert (note.by, note.why, note.before, note.after) == (f"node {loser}", fields["cause"], 3, 3)
    assert note.at_ns > 0


def replacing() -> Scenario:
    """b replaces what a has, at each end of a split."""
    scenario = Scenario(*(node(name, priority=ord(name), merges={"*": MergeType.REPLACE}) for name in "ab"))
    scenario.start()
    scenario.until(scenario.complete)
    for name in "ab":
        scenario.writer(name)
    return scenario


def test_what_is_dropped_for_a_newer_backup_is_said() -> None:
    scenario = replacing()
    for number in range(MAX_BACKUPS + 1):
        scenario.split("a", "b")
        scenario.write("a", 10 * number)
        scenario.write("b", 10 * number + 1)
        scenario.heal()
        scenario.settle()
    backups = [each["samples"] for each in scenario.traced("store.backup", "a")]
    dropped = scenario.traced("store.backup-dropped", "a")
    assert len(backups) - len(dropped) == len(kept(scenario, "a"))
    assert [each["samples"] for each in dropped] == backups[: len(dropped)] != []
    assert {each["cause"] for each in dropped} == {"a newer back-up takes its place"}


def test_a_set_for_which_a_full_disk_has_no_room_beside_the_new_one_is_said_to_be_gone() -> None:
    scenario = replacing()
    scenario.write("a", *range(20), size=1_000)
    scenario.split("a", "b")
    scenario.write("a", 30, size=1_000)
    scenario.write("b", 31, size=1_000)
    medium = scenario.node("a").medium
    medium.capacity_bytes = medium.used_bytes + 5_000
    scenario.heal()
    scenario.settle()
    (lost,) = scenario.traced("store.not-kept", "a")
    assert (lost["samples"], lost["total"]) == (21, 21)
    assert kept(scenario, "a") == []


def test_groups_that_a_narrower_name_space_leaves_out_are_kept_as_a_backup_and_harm_nobody() -> None:
    def configured(expression: str) -> NodePlan:
        plan = node("a")
        spaces = (NameSpace.parse(NS, expression),)
        return msgspec.structs.replace(
            plan, settings=msgspec.structs.replace(plan.settings, name_spaces=spaces)
        )

    scenario = Scenario(configured("*.Reading"), topics=[TopicPlan(part, "Reading") for part in ("p1", "q1")])
    scenario.start()
    scenario.until(scenario.complete)
    writer = scenario.writer("a")
    for topic in (0, 1):
        writer.write(topic, DATA, topic)
    scenario.run(1.0)
    scenario.end_writer("a")
    scenario.stop("a")
    scenario.configure(configured("q1.Reading"))
    scenario.start("a")
    scenario.until(scenario.complete)
    scenario.writer("a").write(1, DATA, 2)
    reader = scenario.cluster.open_reader("a", "Reading", "*")
    scenario.until(lambda: bool(reader.served))
    ((_, _, samples),) = reader.served
    assert {sample.key[-1] for sample in samples} == {1, 2}
    assert kept(scenario, "a") == [{0, 1}]
    (fields,) = scenario.traced("store.backup", "a")
    assert (fields["samples"], fields["total"]) == (2, 1)
