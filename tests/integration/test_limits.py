"""DURABILITY_SERVICE limits on real nodes: three hold the same, whoever wrote, merged or restarted."""

from __future__ import annotations

from typing import Any

import pytest

from ospltool.health.signs.snapshots import of_capture, of_readers
from tests.integration.configurations import Settings
from tests.integration.lab import Lab, Reader
from tests.integration.test_split_brain import EVERYWHERE, SplitLab
from tests.integration.test_split_brain import split as split
from tests.integration.watching import Watch

pytestmark = pytest.mark.dds

KEYS = 10
ROUNDS = 10
CASES = {
    "all three": ((20, 5, 3), 15, 5),
    "max_samples": ((20, -1, -1), 20, KEYS),
    "max_instances": ((-1, 5, -1), 5 * 3 * ROUNDS, 5),
    "max_samples_per_instance": ((-1, -1, 3), KEYS * 3, KEYS),
}


def turns(writer: int, first_round: int = 0) -> list[dict[str, Any]]:
    """Each instance is written once in each round; the times of the three writers interleave."""
    return [
        {"count": KEYS, "time": 1_000 + 1_000 * each + 100 * writer, "value": writer}
        for each in range(first_round, first_round + ROUNDS)
    ]


def is_equal(seen: Watch, names: tuple[str, ...], samples: int, instances: int) -> bool:
    groups = [group for name in names for group in seen.groups(name)]
    held = {(group.samples, group.instances, group.stored) for group in groups}
    return len(groups) == len(names) and held == {(samples, instances, samples)} and seen.are_complete(*names)


def write_at_once(lab: Lab, limits: tuple[int, int, int], first_round: int = 0) -> None:
    programs = [lab.program("writer", depth=0, limits=limits, readers=3) for _ in range(3)]
    for program in programs:
        program.answer("done")
    for number, program in enumerate(programs):
        program.tell(steps=turns(number, first_round))
    for program in programs:
        program.answer("done")
    assert [program.end() for program in programs] == [0, 0, 0]


@pytest.mark.parametrize("case", CASES)
def test_three_nodes_hold_what_limits_allow_and_the_same_after_a_restart(lab: Lab, case: str) -> None:
    limits, samples, instances = CASES[case]
    names = lab.start_three()
    write_at_once(lab, limits)
    lab.seen.wait_for("limits hold", lambda: is_equal(lab.seen, names, samples, instances))
    rejected = 3 * KEYS * ROUNDS - samples
    lab.seen.wait_for(
        "what is rejected is counted",
        lambda: all(
            sum(count for _, count in group.rejected) == rejected == shown.counters["rejected"]
            for name in names
            if (shown := lab.seen.node(name))
            for group in shown.groups
        ),
    )
    for name in names:
        shown = lab.seen.node(name)
        assert shown is not None
        said = [one.what for one in of_capture(shown)]
        assert any(f"{name} rejected samples of stock.Reading: " in text for text in said), said
        assert lab.trace(name, "capture.limited")[0]["group"] == "stock.Reading"
        assert "Resource limits of group stock.Reading rejected" in lab.information(name)
    lab.stop(*names)
    on_disk = [lab.on_disk(name)["stock", "Reading"] for name in names]
    assert len(on_disk[0]) == samples
    assert sorted(on_disk[0]) == sorted(on_disk[1]) == sorted(on_disk[2])
    lab.start_again(*names)
    lab.seen.wait_for("limits hold again", lambda: is_equal(lab.seen, names, samples, instances))
    reader = lab.reader(depth=0)
    reader.wait(samples)
    tally = reader.tally()
    assert (tally["arrivals"], tally["instances"]) == (samples, instances)


def take(reader: Reader) -> None:
    """The application takes what waits, and gets each sample once."""
    reader.program.tell(take=True)
    reader.wait(20)
    tally = reader.tally()
    assert (tally["arrivals"], tally["instances"], tally["repeated"]) == (20, 20, 0)


def reader_without_room(lab: Lab, resources: tuple[int, int, int]) -> Reader:
    """A late joiner that has not acknowledged its history.

    Cyclone DDS in its process can acknowledge samples that arrive out of order together, before it has
    room for them. Such a reader gets them too, and another one is tried.
    """
    for attempt in range(10):
        reader = lab.reader(resources=resources, holds=True)

        def is_decided(former: int = attempt) -> bool:
            ended = lab.trace("n1", "deliver.finished")
            return bool(lab.trace("n1", "align.rejected")) or len(ended) > former

        lab.seen.wait_for("it is rejected, or acknowledged", is_decided)
        if lab.trace("n1", "align.rejected"):
            return reader
        take(reader)
        assert reader.program.end() == 0
    raise AssertionError("every reader acknowledged what it had no room for")


@pytest.mark.parametrize("resources", [(-1, 5, -1), (5, -1, -1)], ids=["max_instances", "max_samples"])
@pytest.mark.parametrize("lives", [False, True], ids=["writer gone", "writer lives"])
def test_what_a_reader_has_no_room_for_is_tried_again_until_it_takes(
    lab: Lab, resources: tuple[int, int, int], lives: bool
) -> None:
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    writer = lab.program("writer", steps=[{"count": 20, "time": 1_000}])
    writer.answer("done")
    if not lives:
        assert writer.end() == 0
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == 20)
    reader = reader_without_room(lab, resources)

    def waits() -> bool:
        shown = lab.seen.node("n1")
        said = [one.why for one in of_readers(shown)] if shown else []
        return (
            shown is not None and shown.counters["resent"] >= 2 and any("RESOURCE_LIMITS" in s for s in said)
        )

    lab.seen.wait_for("it is tried again, counted and shown", waits)
    assert [one["group"] for one in lab.trace("n1", "align.rejected")] == ["stock.Reading"]
    assert lab.trace("n1", "align.resent") == []
    take(reader)
    lab.wait_delivered()
    assert len(lab.trace("n1", "align.resent")) == 1
    shown = lab.seen.node("n1")
    assert shown is not None
    # The reader is KEEP_ALL, and one sample of each instance is kept: that is another sign.
    signs = [one for one in (*of_capture(shown), *of_readers(shown)) if one.code != "DUL-HISTORY-CUT"]
    said = [one.what for one in signs]
    is_said = ["not kept ALIVE" in text for text in said]
    assert is_said == ([True] if lives and resources[1] > 0 else []), said


@pytest.mark.parametrize(("most", "state"), [(KEYS, "A"), (KEYS - 1, "NW")], ids=["room", "no room"])
def test_late_readers_see_living_instances_alive_where_max_instances_has_room_for_all(
    lab: Lab, most: int, state: str
) -> None:
    """One reader of a process decides for all of them; where it has no room, that is counted."""
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    writer = lab.program("writer", topic="Reading", by_source=True, steps=[{"count": KEYS, "time": 1_000}])
    writer.answer("done")
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == KEYS)
    readers = [
        {"name": "bounded", "topic": "Reading", "resources": (-1, most, -1)},
        {"name": "free", "topic": "Reading"},
    ]
    reader = lab.program("timelines", readers=readers, takes=True)
    lab.wait_delivered()
    reader.tell(look=True)
    found = reader.answer("timelines")
    assert {seen["state"] for seen in found["free"].values()} == {state}, found
    assert len(found["free"]) == len(found["bounded"]) == KEYS
    kept = state == "A"
    lab.seen.wait_for(
        "it is counted",
        lambda: (shown := lab.seen.node("n1")) and (shown.counters["not_kept"] == 0) == kept,
    )
    shown = lab.seen.node("n1")
    assert shown is not None
    assert [one.counts for one in shown.deviations] == ([] if kept else [{"not_kept": 1}])


@pytest.mark.netns
@pytest.mark.parametrize("split", ["unicast"], indirect=True)
@pytest.mark.parametrize("case", ["all three", "max_samples"])
def test_what_is_merged_is_held_to_the_limits_on_all_nodes(split: SplitLab, case: str) -> None:
    limits, samples, instances = CASES[case]
    near, far = split.views["n1"], split.views["n3"]
    split.lab.start(*EVERYWHERE)
    split.wait_complete("n3", *EVERYWHERE)
    writers = {
        name: split.lab.program("writer", prefix=split.lab.prefixes[name], depth=0, limits=limits, readers=3)
        for name in ("n1", "n3")
    }

    def write(first_round: int) -> None:
        for number, program in enumerate(writers.values()):
            program.tell(steps=turns(number, first_round))
        for program in writers.values():
            program.answer("done")

    for program in writers.values():
        program.answer("done")
    write(0)
    far.wait_for("limits hold", lambda: is_equal(far, EVERYWHERE, samples, instances))
    split.network.cut("a")
    near.wait_for("n1 is alone", lambda: not near.fellows("n1", "approved"))
    far.wait_for("n2 is master of the others", lambda: far.master("n3") == far.master("n2") == "n2")
    write(ROUNDS)
    near.wait_for("n1 has its side", lambda: is_equal(near, ("n1",), samples, instances))
    far.wait_for("the others have theirs", lambda: is_equal(far, ("n2", "n3"), samples, instances))
    split.network.heal("a")
    far.wait_for("limits hold after the merge", lambda: is_equal(far, EVERYWHERE, samples, instances))
    split.lab.stop(*EVERYWHERE)
    on_disk = [sorted(split.lab.on_disk(name)["stock", "Reading"]) for name in EVERYWHERE]
    assert on_disk[0] == on_disk[1] == on_disk[2]
    assert len(on_disk[0]) == samples
