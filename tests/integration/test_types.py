from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration import application_types as types
from tests.integration.configurations import Settings, Space
from tests.integration.conftest import own_domain, topic_discovery
from tests.integration.dds import sample_types
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

NAMES = [
    *(one.__name__ for one in sample_types.SAMPLES if one is not sample_types.OtherPlain),
    types.ByUnion.__name__,
]
COUNT = 4


def start_alone(lab: Lab, settings: Settings | None = None) -> None:
    lab.configure("n1", settings or Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 is complete", lambda: lab.seen.are_complete("n1"))


def restart_alone(lab: Lab) -> None:
    lab.kill("n1")
    lab.start("n1")
    lab.seen.wait_for("n1 is complete again", lambda: lab.seen.are_complete("n1"))


def expected(name: str) -> list[str]:
    """What a reader makes of the samples: a union's discriminator, for example, is known only on the wire."""
    type_: Any = types.TYPES[name]
    samples = [types.SAMPLES[type_](number) for number in range(COUNT)]
    return sorted(repr(type_.deserialize(sample.serialize())) for sample in samples)


def texts(tally: dict[str, dict[str, list[list[object]]]], name: str) -> list[str]:
    return sorted(
        str(text)
        for instance, samples in tally["samples"].items()
        if instance.split()[0] == name
        for _, text in samples
    )


def test_samples_of_every_kind_of_type_survive_the_writer_and_the_node(lab: Lab) -> None:
    start_alone(lab)
    # Those without a key have one instance, of which depth 1 would keep the last sample only.
    lab.write(*({"type": name, "count": COUNT, "time": 1_000} for name in NAMES), depth=0)
    total = COUNT * len(NAMES)
    lab.seen.wait_for("all are stored", lambda: lab.seen.stored("n1") == total)
    restart_alone(lab)
    assert {group.topic: group.samples for group in lab.seen.groups("n1")} == dict.fromkeys(NAMES, COUNT)
    reader = lab.reader(types=NAMES, depth=0)
    reader.wait(total)
    tally = reader.tally(detailed=True)
    for name in NAMES:
        assert texts(tally, name) == expected(name)


def test_two_types_under_one_topic_name_are_two_groups(lab: Lab) -> None:
    start_alone(lab)
    for name in ("Plain", "OtherPlain"):
        lab.write({"type": name, "count": COUNT, "time": 1_000}, topic="Mixed")
    lab.seen.wait_for("both are stored", lambda: lab.seen.stored("n1") == 2 * COUNT)
    restart_alone(lab)
    groups = [(group.topic, group.type_name, group.samples) for group in lab.seen.groups("n1")]
    assert groups == [("Mixed", "shop::Plain", COUNT)] * 2
    for name in ("Plain", "OtherPlain"):
        reader = lab.reader(types=[name], topic="Mixed")
        reader.wait(COUNT)
        lab.wait_delivered()
        assert texts(reader.tally(detailed=True), name) == expected(name)


PARTITIONS = ("", "a.b", "räume 7", "x" * 250, "<&>'\"")


def test_any_partition_name_is_kept_and_found_again(lab: Lab) -> None:
    start_alone(lab, Settings((Space(elements=("*",)),)))
    for partition in PARTITIONS:
        lab.write({"count": COUNT, "time": 1_000, "partitions": [partition] if partition else []})
    lab.seen.wait_for("all are stored", lambda: lab.seen.stored("n1") == COUNT * len(PARTITIONS))
    restart_alone(lab)
    groups = {group.partition: group.samples for group in lab.seen.groups("n1")}
    assert groups == dict.fromkeys(PARTITIONS, COUNT)
    readers = [lab.reader(partitions=[partition] if partition else []) for partition in PARTITIONS]
    for reader in readers:
        reader.wait(COUNT)
    lab.wait_delivered(len(PARTITIONS))
    assert [reader.tally()["arrivals"] for reader in readers] == [COUNT] * len(PARTITIONS)


@pytest.mark.parametrize("depth", [1, 3, 0], ids=["keep last 1", "keep last 3", "keep all"])
def test_history_is_kept_as_the_durability_service_qos_says(lab: Lab, depth: int) -> None:
    writes, instances = 5, 10
    kept = depth or writes
    start_alone(lab)
    lab.write(
        *({"count": instances, "time": 1_000 * (turn + 1), "value": turn} for turn in range(writes)),
        depth=depth,
    )
    lab.seen.wait_for("all are stored", lambda: lab.seen.stored("n1") == kept * instances)
    restart_alone(lab)
    reader = lab.reader(depth=depth)
    reader.wait(kept * instances)
    lab.wait_delivered()
    tally = reader.tally(detailed=True)
    assert (tally["arrivals"], tally["instances"]) == (kept * instances, instances)
    for number in range(instances):
        assert [time for time, _ in tally["samples"][f"Reading {number}"]] == [
            1_000 * (turn + 1) + number for turn in range(writes - kept, writes)
        ]


TRANSIENT, PERSISTENT = 2, 3
PLACES = [
    ("Persistent", PERSISTENT, 10, 10),
    ("Persistent", TRANSIENT, 10, 0),
    ("Durable", PERSISTENT, 10, 10),
    ("Transient", PERSISTENT, 10, 0),
    ("Volatile", PERSISTENT, 0, 0),
]
"""Policy of the node, durability of the data, samples held, and of those on disk: policies only weaken."""


def captured(lab: Lab) -> int:
    shown = lab.seen.node("n1")
    return shown.counters["captured"] if shown else 0


@pytest.mark.parametrize(("discovers", "kept"), [(True, 3), (False, 1)], ids=["topics", "no topics"])
def test_the_qos_of_the_topic_counts_where_topic_discovery_tells_it(
    tmp_path: Path, discovers: bool, kept: int
) -> None:
    domain, tag = own_domain()
    lab = Lab(tmp_path, domain, tag, topic_discovery(tag, discovers=discovers))
    try:
        lab.configure("n1", Settings())
        lab.start("n1")
        lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
        steps = [{"count": 1, "time": 1_000 * value, "value": value} for value in range(1, 6)]
        lab.write(*steps, depth=1, topic_depth=3)
        lab.seen.wait_for("all is captured", lambda: captured(lab) == 5)
        lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == kept)
    finally:
        lab.close()


def test_what_is_on_disk_follows_from_the_data_and_from_the_policy(lab: Lab) -> None:
    partitions = [f"p{number}" for number in range(len(PLACES))]
    spaces = tuple(
        Space(f"space_{partition}", (partition,), durability=place[0])
        for partition, place in zip(partitions, PLACES, strict=True)
    )
    start_alone(lab, Settings(spaces))
    last = partitions[0]
    for partition, (_, durability, samples, _) in [
        *zip(partitions[1:], PLACES[1:], strict=True),
        (last, PLACES[0]),
    ]:
        step = {"count": 10, "time": 1_000, "partitions": [partition]}
        lab.write(step, durability=durability, readers=int(samples > 0))

    def shown() -> dict[str, tuple[int, int]]:
        return {group.partition: (group.samples, group.stored) for group in lab.seen.groups("n1")}

    lab.seen.wait_for("what was written last is stored", lambda: shown().get(last) == (10, 10))
    held = {partition: place[2:] for partition, place in zip(partitions, PLACES, strict=True) if place[2]}
    assert shown() == held
    restart_alone(lab)
    assert {name: samples for name, (samples, _) in shown().items()} == {
        partition: disk for partition, (_, disk) in held.items() if disk
    }
