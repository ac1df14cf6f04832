"""What ordinary readers see when two sides that evolved apart merge: every policy, order and reader.

The table is that of docs/readers.md. One split serves all cells: each merge policy has a name-space of its
own on both nodes. Far follows near.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.configurations import Settings, Space
from tests.integration.hosts import HostsLab, hosts_lab
from tests.integration.programs import Program
from tests.tables import table_rows

pytestmark = [pytest.mark.dds, pytest.mark.netns]

POLICIES = ("Ignore", "Delete", "Merge", "Replace", "Catchup")
ORDERS = {"by source": True, "by reception": False}
READERS = (*ORDERS, "library")
"""Ordinary readers of both orders, and `DurableReader`."""
SIDES = {"near": "n1", "far": "n2"}
TABLE = table_rows("readers.md", "When two sides merge")
KINDS = (
    "not written",
    "updated on the master's side",
    "updated on the other side",
    "updated on both, last on the master's",
    "updated on both, last on the other",
    "new on the master's side",
    "new on the other side",
    "disposed on the master's side",
    "disposed on the other side",
)
"""What happened to an instance during the split; instance 0 is of the first kind, and so on."""
assert tuple(row["During the split the instance was"] for row in TABLE) == KINDS
COMMON = [0, 1, 2, 3, 4, 7, 8]
VALUES = {0: "c", 1: "n", 2: "f"}
STEPS: dict[str, list[dict[str, Any]]] = {
    "near": [
        {"first": 1, "time": 3_001, "value": 1},
        {"first": 3, "time": 5_003, "value": 1},
        {"first": 4, "time": 4_004, "value": 1},
        {"first": 5, "time": 3_005, "value": 1},
        {"first": 7, "time": 3_007, "op": "dispose"},
    ],
    "far": [
        {"first": 2, "time": 3_002, "value": 2},
        {"first": 3, "time": 4_003, "value": 2},
        {"first": 4, "time": 5_004, "value": 2},
        {"first": 6, "time": 3_006, "value": 2},
        {"first": 8, "time": 3_008, "op": "dispose"},
    ],
}
"""Value 0 is common to both sides; 1 is near's and 2 is far's."""

LETTERS = {"common": "c", "master's": "n", "other's": "f", "D": "D", "none": "-"}
"""An instance's value that is alive (common, near's, far's), D if it is disposed, - if there is none."""


def on_far(age: int, policy: str) -> str:
    """What readers of the far side see by the table, a letter for each kind; age 0 are the early ones."""
    return "".join(LETTERS[row[policy].split(", ")[age * (", " in row[policy])]] for row in TABLE)


NEAR = "cncnnn-Dc"
"""Near's set, which its readers see with Ignore, Replace and Catchup."""
SETS = {
    policy: {"near": NEAR if policy in ("Ignore", "Replace", "Catchup") else far, "far": far}
    for policy in POLICIES
    for far in (on_far(1, policy),)
}
EARLY = {
    policy: {"near": {"Merge": far, "Delete": "DDDDDD-DD"}.get(policy, NEAR), "far": far}
    for policy in POLICIES
    for far in (on_far(0, policy),)
}
"""What readers see that were there all the time: their set, and as disposed what was in it."""


OWNED = {
    "Merge": {"near": "cncnnnfDc", "far": "cnfffnfDD"},
    "Replace": {"near": NEAR, "far": "cnfffnfDD"},
    "Catchup": {"near": NEAR, "far": "cnfffnfDD"},
}
"""What early readers see with OWNERSHIP EXCLUSIVE: what the owner wrote, which lives; near's is stronger."""


def name_of(policy: str, order: str) -> str:
    return f"{policy} {order}"


def readers_of() -> list[dict[str, Any]]:
    keeping = {"name": "all", "topic": "Tall", "partition": "merge"}
    return [
        keeping,
        *(
            {"name": f"{policy} exclusive", "topic": "Texc", "partition": policy.lower(), "exclusive": True}
            for policy in OWNED
        ),
        *(
            {
                "name": name_of(policy, order),
                "topic": "T" + order[3:6],
                "partition": policy.lower(),
                "by_source": by_source,
            }
            for policy in POLICIES
            for order, by_source in ORDERS.items()
        ),
    ]


@dataclasses.dataclass
class Split:
    """Two sides after their split; readers by age, side, and whether they are of the library."""

    hosts: HostsLab
    readers: dict[tuple[str, str, bool], Program]
    autodispose: bool
    deadline: float

    def look(self, age: str, side: str, policy: str, order: str) -> dict[str, Any]:
        """What a reader of a side has seen of each instance."""
        program = self.readers[age, side, order == "library"]
        program.tell(look=True)
        found: dict[str, Any] = program.answer("timelines")[name_of(policy, order)]
        return found

    def words(self, age: str, side: str) -> str:
        """What a reader has seen of instance 0 of the topic that keeps everything."""
        self.readers[age, side, False].tell(look=True)
        found = self.readers[age, side, False].answer("timelines")["all"]
        return " ".join(found.get("0", {"words": []})["words"])

    def letters(self, age: str, side: str, policy: str, order: str) -> str:
        return "".join(
            "-" if one is None else VALUES[one["value"]] if one["state"] == "A" else one["state"][0]
            for seen in [self.look(age, side, policy, order)]
            for one in [seen.get(str(number)) for number in range(len(KINDS))]
        )

    def check(self, age: str, side: str, policy: str, order: str, wanted: str) -> None:
        """The reader comes to see what is wanted."""
        while (seen := self.letters(age, side, policy, order)) != wanted:
            found = self.look(age, side, policy, order)
            if time.monotonic() > self.deadline:
                raise AssertionError(f"{seen}, not {wanted}: {found}")
            time.sleep(0.1)


def start_readers(hosts: HostsLab, age: str) -> dict[tuple[str, str, bool], Program]:
    library = [
        {"name": name_of(policy, "library"), "topic": "Tsou", "partition": policy.lower()}
        for policy in POLICIES
    ]
    programs = {
        (age, side, is_library): hosts.lab.program(
            "timelines", prefix=hosts.lab.prefixes[node], readers=readers, library=is_library
        )
        for side, node in SIDES.items()
        for is_library, readers in ((False, readers_of()), (True, library))
    }
    for program in programs.values():
        program.answer("ready")
    return programs


def steps_of(partition: str, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**step, "partitions": [partition]} for step in steps]


def steps_in_all(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [step for policy in POLICIES for step in steps_of(policy.lower(), steps)]


def steps_owned(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [step for policy in OWNED for step in steps_of(policy.lower(), steps)]


def tell(writer: Program, step: dict[str, Any]) -> None:
    """Let a writer of the topic that keeps everything write, where the policy is Merge."""
    writer.tell(steps=[{**step, "partitions": ["merge"]}])
    writer.answer("done")


def holds(hosts: HostsLab, view: str, node: str, count: int) -> bool:
    return hosts.views[view].samples(node) == count


def counts(hosts: HostsLab, node: str, cause: str, count: int) -> bool:
    shown = hosts.views[node].node(node)
    if shown is None:
        return False
    return shown.counters[cause] == sum(each.counts.get(cause, 0) for each in shown.deviations) == count


def leads_itself(hosts: HostsLab, node: str) -> bool:
    shown = hosts.views[node].node(node)
    return shown is not None and all(space.master == shown.id for space in shown.name_spaces)


def are_merged(hosts: HostsLab) -> bool:
    """Whether both nodes show the same lineages, complete, and name the same master."""
    view = hosts.views["n1"]
    shown = [view.node(name) for name in hosts.names]
    if any(node is None or view.fellows(node.name, "approved") == set() for node in shown):
        return False
    spaces = [
        {
            (space.name, space.complete, space.confirmed, space.master, space.merge_id)
            for space in node.name_spaces
        }
        for node in shown
        if node is not None
    ]
    return spaces[0] == spaces[1] and all(one[1] and one[2] for one in spaces[0])


@pytest.fixture(scope="module", params=[False, True], ids=["not autodispose", "autodispose"])
def split(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Split]:
    with hosts_lab(tmp_path_factory.mktemp("merge"), "ab", multicast="true") as hosts:
        for name, priority in (("n1", 200), ("n2", 100)):
            spaces = tuple(
                Space(each.lower(), (each.lower(),), priority=priority, merge=((each, "*"),))
                for each in POLICIES
            )
            hosts.lab.configure(name, Settings(spaces=spaces, clients=True))
        hosts.start()
        yield apart_and_together(hosts, autodispose=request.param)


def apart_and_together(hosts: HostsLab, *, autodispose: bool) -> Split:
    lab = hosts.lab
    readers = start_readers(hosts, "early")
    writers = {
        (side, order): lab.program(
            "writer",
            prefix=lab.prefixes[node],
            readers=6 if by_source else 4,
            topic="T" + order[3:6],
            by_source=by_source,
            autodispose=autodispose,
        )
        for side, node in SIDES.items()
        for order, by_source in ORDERS.items()
    }
    common = [{"first": each, "time": 1_000 + each} for each in COMMON]
    for (side, _), writer in writers.items():
        writer.answer("done")
        # The writers of both sides match everybody before the split.
        writer.tell(steps=steps_in_all(common if side == "near" else [{"first": 0, "time": 900}]))
        writer.answer("done")
    keeping = {
        side: lab.program("writer", prefix=lab.prefixes[node], readers=4, topic="Tall", depth=0)
        for side, node in SIDES.items()
    }
    for number, writer in enumerate(keeping.values()):
        writer.answer("done")
        tell(writer, {"first": number, "time": 1_000})
    owners = {
        side: lab.program(
            "writer",
            prefix=lab.prefixes[node],
            readers=4,
            topic="Texc",
            exclusive=True,
            strength=strength,
            autodispose=autodispose,
        )
        for (side, node), strength in zip(SIDES.items(), (2, 1), strict=True)
    }
    for side, owner in owners.items():
        owner.answer("done")
        owner.tell(steps=steps_owned(common if side == "near" else [{"first": 0, "time": 900}]))
        owner.answer("done")
    held = len(COMMON) * (len(POLICIES) * len(ORDERS) + len(OWNED)) + 2
    for name in hosts.names:
        hosts.views["n1"].wait_for("all have it", functools.partial(holds, hosts, "n1", name, held))
    hosts.network.cut("b")
    for name in hosts.names:
        hosts.views[name].wait_for("each leads itself", functools.partial(leads_itself, hosts, name))
    for (side, _), writer in writers.items():
        writer.tell(steps=steps_in_all(STEPS[side]))
        writer.answer("done")
    for side, owner in owners.items():
        owner.tell(steps=steps_owned(STEPS[side]))
        owner.answer("done")
    tell(keeping["near"], {"first": 0, "time": 3_000})
    tell(keeping["far"], {"first": 0, "time": 5_000})
    held = (len(COMMON) + 2) * (
        len(POLICIES) * len(ORDERS) + len(OWNED)
    ) + 3  # one more instance, and a dispose
    for name in hosts.names:
        hosts.views[name].wait_for("it is held", functools.partial(holds, hosts, name, name, held))
    hosts.network.heal("b")
    hosts.views["n1"].wait_for("they have merged", lambda: are_merged(hosts))
    readers.update(start_readers(hosts, "late"))
    return Split(hosts, readers, autodispose, time.monotonic() + 20.0)


@pytest.mark.parametrize("order", READERS)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_an_early_reader_sees_after_a_merge(split: Split, policy: str, side: str, order: str) -> None:
    split.check("early", side, policy, order, EARLY[policy][side])


@pytest.mark.parametrize("order", READERS)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_late_reader_sees_after_a_merge(split: Split, policy: str, side: str, order: str) -> None:
    # The library asks the master of the name-space, which is near.
    asked = "near" if order == "library" else side
    split.check("late", side, policy, order, SETS[policy][asked])


@pytest.mark.parametrize("order", READERS)
def test_replace_disposes_every_instance_and_catchup_those_that_are_no_more(split: Split, order: str) -> None:
    if split.autodispose:
        pytest.skip("the instances were disposed when their writers were lost")
    for policy, wanted in (("Replace", "11111-111"), ("Catchup", "00000-111")):
        split.check("early", "far", policy, order, EARLY[policy]["far"])
        found = split.look("early", "far", policy, order)
        disposed = "".join(
            str(int(found[str(number)]["generations"][0] > 0 or found[str(number)]["state"] == "D"))
            for number in range(len(KINDS))
        )
        assert disposed[:5] + "-" + disposed[6:] == wanted, found


def test_what_takes_the_place_of_a_newer_sample_has_its_time_which_is_counted(split: Split) -> None:
    for policy in ("Replace", "Catchup"):
        for order, times in (("by source", (3_002, 5_004, 3_008)), ("by reception", (1_002, 4_004, 1_008))):
            split.check("early", "far", policy, order, EARLY[policy]["far"])
            found = split.look("early", "far", policy, order)
            for number, wanted in zip((2, 4, 8), times, strict=True):
                assert found[str(number)]["words"][-1] == f"S{wanted}", (policy, order, found)
            unchanged = [word for word in found["0"]["words"] if word[0] == "S"][-1]
            assert unchanged == "S1000", "what did not change has its own time"
    for name, count in (("n1", 0), ("n2", 6)):
        view = split.hosts.views[name]
        view.wait_for("it is counted", functools.partial(counts, split.hosts, name, "shown_later", count))
        traced = split.hosts.lab.trace(name, "deliver.deviates")
        assert sum(int(found["count"]) for found in traced if "later" in found["reason"]) == count


@pytest.mark.parametrize("policy", OWNED)
def test_an_owner_that_lives_is_not_overruled(split: Split, policy: str) -> None:
    for side in SIDES:
        split.check("early", side, policy, "exclusive", OWNED[policy][side])
        split.check("late", side, policy, "exclusive", SETS[policy][side])


def test_owners_that_are_not_overruled_are_counted(split: Split) -> None:
    for name, count in (("n1", 0), ("n2", 10)):
        view = split.hosts.views[name]
        view.wait_for("it is counted", functools.partial(counts, split.hosts, name, "owned", count))


def test_what_a_reader_that_keeps_all_cannot_take_in_between_is_counted(split: Split) -> None:
    ends = {("early", "near"): "S5000", ("early", "far"): "S5000", ("late", "far"): "S3000 S5000"}
    for (age, side), wanted in ends.items():
        while not (words := split.words(age, side)).endswith(wanted):
            assert time.monotonic() < split.deadline, (age, side, words)
            time.sleep(0.1)
    assert "S3000" in split.words("early", "near")
    assert "S3000" not in split.words("early", "far")
    for name, count in (("n1", 0), ("n2", 1)):
        view = split.hosts.views[name]
        view.wait_for("it is counted", functools.partial(counts, split.hosts, name, "refused_older", count))


def test_after_a_replacement_an_instance_comes_back_with_its_writer(split: Split) -> None:
    cases = [(policy, order) for policy in ("Replace", "Catchup") for order in READERS]
    for policy, order in cases:
        split.check("early", "far", policy, order, EARLY[policy]["far"])
    split.hosts.network.cut("b")
    # Far's writers wrote the others, too, and live.
    lost = "DDDDDDDDD" if split.autodispose else "cNcnnNDDc"
    split.deadline = time.monotonic() + 20.0
    for policy, order in cases:
        split.check("early", "far", policy, order, lost)
    # Nodes lose fellows later than writers. A cut that only readers notice is another matter, see docs.
    for name in split.hosts.names:
        alone = functools.partial(leads_itself, split.hosts, name)
        split.hosts.views[name].wait_for("nodes have noticed it, too", alone)
    split.hosts.network.heal("b")
    split.deadline = time.monotonic() + 30.0
    for policy, order in cases:
        split.check("early", "far", policy, order, EARLY[policy]["far"])
