"""Nothing durable is silently not kept: each writer is kept, or the node says that it is not, and why."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.configurations import Settings, Space
from tests.integration.programs import ROOT

if TYPE_CHECKING:
    from engine.runtime.monitor import GroupView, NodeSnapshot
    from tests.integration.lab import Lab
    from tests.integration.programs import Program

pytestmark = pytest.mark.dds

COUNT = 20


@pytest.fixture
def started(lab: Lab) -> Lab:
    lab.configure("n1", Settings(spaces=(Space(elements=("*",)),)))
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    return lab


def node_of(lab: Lab) -> NodeSnapshot:
    shown = lab.seen.node("n1")
    assert shown is not None
    return shown


@pytest.mark.parametrize(
    ("options", "partitions", "reads"),
    [
        ({"latency_budget_ns": 500_000_000}, ["stock"], ["stock"]),
        ({"latency_budget_ns": (1 << 63) - 1}, ["stock"], ["stock"]),
        ({}, ["st*"], ["stock"]),
        ({}, ["st?ck"], ["stock"]),
        ({}, ["*"], [""]),
        ({}, ["st*", "depot"], ["depot"]),
    ],
    ids=["latency budget", "infinite latency budget", "A*", "A?B", "*", "A* and B"],
)
def test_what_is_legal_is_kept(
    started: Lab, options: dict[str, Any], partitions: list[str], reads: list[str]
) -> None:
    """Whatever the writer offers beyond the usual, a late reader that matches it gets everything once."""
    step = {"count": COUNT, "time": 1_000, "partitions": partitions}
    started.write(step, **options)
    reader = started.reader(partitions=reads)
    reader.wait(COUNT)
    assert (reader.tally()["arrivals"], reader.tally()["repeated"]) == (COUNT, 0)
    assert node_of(started).unkept == ()


def test_two_expressions_do_not_meet(started: Lab) -> None:
    """A reader in `s*` does not match a writer in `st*` while it lives, and gets nothing of it later."""
    started.write({"count": COUNT, "time": 1_000, "partitions": ["st*"]})
    reader = started.reader(partitions=["s*"])
    other = started.reader(partitions=["stock"])
    other.wait(COUNT)
    assert reader.tally()["arrivals"] == 0
    for partitions in ((), ("--partition", "st*"), ("--partition", "stock")):
        done = command_of(started, "cat", "Reading", str(started.home("n1") / "ospl.xml"), *partitions)
        assert (done.returncode, done.stdout.count("\n")) == (0, COUNT), done


REFUSED, WIDE = "widen", ("wide1", "wide2", "wide3")
"""Partitions of an expression that is kept but for one of them, where a content filter does not fit."""
STEPS: dict[tuple[str, ...], tuple[int, int]] = {
    ("private1",): (0, 0),
    ("elsewhere",): (0, 0),
    (REFUSED,): (0, 0),
    ("stock1",): (1, 1),
    (WIDE[0],): (1, 1),
    (WIDE[1],): (1, 1),
    ("stock2", "elsewhere", "stock1"): (1, 2),
    (WIDE[0], REFUSED, WIDE[1]): (1, 2),
    ("stock3", "private1", WIDE[2]): (1, 2),
    (WIDE[2],): (1, 1),
}
"""Partitions of each writer, the nodes that keep it, and in how many groups."""


def test_nodes_match_only_what_they_keep_and_once(lab: Lab) -> None:
    """Outside all name-spaces, under Volatile, or where a filter does not fit, a writer sees no node."""
    spaces = (
        Space("private", ("private*",), durability="Volatile"),
        Space(elements=("stock*", "wide*")),
    )
    lab.start_complete("n1", settings=Settings(spaces=spaces, filters=(("depth > 0", f"{REFUSED}.*"),)))
    program = lab.program("kept", topic="Reading", depth=0)
    for partitions, (nodes, _) in STEPS.items():
        program.tell(partitions=partitions, nodes=nodes, count=3)
        assert program.answer("kept"), partitions
    program.tell(each=True)
    found = dict(zip(STEPS, program.answer("each"), strict=True))
    for partitions, (nodes, _) in STEPS.items():
        matched, keepers = found[partitions]
        assert keepers == [node_of(lab).id] * nodes, partitions
        assert bool(matched) == bool(nodes), partitions
        # A writer in several partitions matches one reader, unless no expression says what is kept.
        assert matched <= 1 or not {*WIDE}.isdisjoint(partitions), (partitions, matched)
    held = {partition: 0 for partitions in STEPS for partition in partitions}
    for partitions, (nodes, _) in STEPS.items():
        for partition in partitions if nodes else ():
            held[partition] += 3 * partition.startswith(("stock", "wide")) * (partition != REFUSED)
    kept = {partition: count for partition, count in held.items() if count}
    lab.seen.wait_for(
        "each sample is kept once in each group",
        lambda: {group.partition: group.samples for group in node_of(lab).groups} == kept,
    )
    assert node_of(lab).counters["captured"] == 3 * sum(nodes for nodes, _ in STEPS.values())
    assert node_of(lab).unkept == ()
    assert node_of(lab).counters["unkept_writers"] == 0
    told = {str(event["group"]) for event in lab.trace("n1", "group.outside", "filter.refused")}
    assert told == {f"{partition}.Reading" for partition in held.keys() - kept.keys()}


def test_what_is_written_once_three_nodes_keep_it_reaches_every_late_reader(lab: Lab) -> None:
    """Of a new topic, with a subscriber that is there first: its match says nothing about nodes."""
    names = lab.start_three(Settings(spaces=(Space(elements=("*",)),)))
    ids = sorted(shown.id for name in names if (shown := lab.seen.node(name)))
    for number in range(4):
        options: dict[str, Any] = {"topic": f"New{number}", "depth": 0}
        lab.reader(durability=0, **options)
        program = lab.program("kept", **options)
        program.tell(partitions=["stock"], nodes=3, count=3)
        assert program.answer("kept")
        program.tell(each=True)
        assert program.answer("each") == [[4, ids]]
        assert program.end() == 0
        lab.reader(**options).wait(3)


def test_a_keyed_writer_without_type_information_is_named(started: Lab) -> None:
    """With a code: in the counters, the trace, ospl-info.log and what consoles see, until it is gone."""
    why = "untyped-keyed"
    program = started.program("untyped", topic="Bare", keyed=True, count=COUNT)
    guid = program.answer("guid")
    started.seen.wait_for("it is shown", lambda: bool(node_of(started).unkept))
    (unkept,) = node_of(started).unkept
    assert (unkept.writer, unkept.topic, unkept.why) == (guid, "Bare", why)
    assert node_of(started).counters["unkept_writers"] == 1
    (event,) = started.trace("n1", "group.not-kept")
    assert (event["writer"], event["topic"]) == (guid, "Bare")
    assert f"Writer {guid} of topic Bare" in started.information("n1")
    assert why in started.information("n1")
    # That another writer of the topic is kept does not mean that this one is.
    typed = started.program("untyped", topic="Bare", keyed=True, typed=True, durability=3, count=1, readers=1)
    assert typed.answer("tags") == [f"ospltool-node/1:{node_of(started).id}"]
    started.seen.wait_for("that is kept", lambda: started.seen.stored("n1") == 1)
    program.tell(tags=True)
    assert program.answer("tags") == []
    assert program.end() == 0
    started.seen.wait_for("it is not shown any more", lambda: not node_of(started).unkept)


def test_a_writer_whose_type_nobody_tells_is_named_until_somebody_does(started: Lab) -> None:
    """Its owner does not answer; a later participant knows the type, and the node asks again."""
    options: dict[str, Any] = {"topic": "Bare", "durability": 3, "keyed": True}
    program = started.program("untyped", mute=True, count=1, **options)
    guid = program.answer("guid")

    def unkept() -> list[tuple[str, str]]:
        return [(one.writer, one.why) for one in node_of(started).unkept]

    started.seen.wait_for("it is given up", lambda: unkept() == [(guid, "type-unknown")])
    assert node_of(started).counters["unkept_writers"] == 1
    (event,) = started.trace("n1", "group.not-kept")
    assert (event["writer"], event["topic"]) == (guid, "Bare")
    assert "type-unknown" in started.information("n1")
    knowing = started.program("untyped_reader", typed=True, **options)
    knowing.answer("ready")
    started.seen.wait_for("it is kept", lambda: unkept() == [])
    started.seen.wait_for("that is told", lambda: bool(started.trace("n1", "group.kept-after-all")))
    (event,) = started.trace("n1", "group.kept-after-all")
    assert (event["writer"], event["topic"]) == (guid, "Bare")
    assert "is kept from now on; it was not: type-unknown" in started.information("n1")
    program.tell()
    assert program.answer("wrote") == 1
    started.seen.wait_for("its sample is stored", lambda: started.seen.stored("n1") == 1)
    assert program.end() == 0
    late = started.program("untyped_reader", typed=True, **options)
    late.answer("ready")

    def numbers() -> list[int]:
        late.tell()
        got: list[int] = late.answer("numbers")
        return got

    started.seen.wait_for("a late reader has it", lambda: numbers() == [1])


def test_what_a_writer_wrote_before_it_was_matched_is_kept_or_told(started: Lab) -> None:
    """It does not wait, and the node finds it mostly too late for its sample; later it is killed."""
    guids, programs = {}, []
    for number in range(3):
        topic = f"Hasty{number}"
        programs.append(started.program("untyped", topic=topic, durability=3, keyed=False, count=1))
        guids[topic] = programs[-1].answer("guid")
    started.seen.wait_for(
        "the node knows all", lambda: {group.topic for group in node_of(started).groups} == guids.keys()
    )
    for program in programs:
        program.kill()

    def known() -> dict[str, set[str]]:
        kept = {group.topic for group in node_of(started).groups if group.samples}
        return {"kept": kept, "told": {event["topic"] for event in started.trace("n1", "group.not-kept")}}

    started.seen.wait_for("each is known", lambda: set.union(*known().values()) == guids.keys())
    assert not set.intersection(*known().values())
    told = {event["writer"] for event in started.trace("n1", "group.not-kept")}
    assert told == {guids[topic] for topic in known()["told"]}
    started.seen.wait_for(
        "they are counted", lambda: node_of(started).counters["unkept_writers"] == len(told)
    )
    started.seen.wait_for("they are shown", lambda: {one.writer for one in node_of(started).unkept} == told)
    assert ("ended: it ended before a sample of it was captured" in started.information("n1")) == bool(told)


def test_a_keyless_writer_without_type_information_is_kept(lab: Lab) -> None:
    """Late readers get its last sample, typed or not, from every node, and from the disk."""
    for name in ("n1", "n2"):
        lab.configure(name, Settings(spaces=(Space(elements=("*",)),)))
    lab.start("n1", "n2")
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n1", "n2"))
    options: dict[str, Any] = {"topic": "Bare", "durability": 3}
    writer = lab.program("untyped", keyed=False, count=COUNT, readers=2, **options)
    writer.answer("guid")
    lab.seen.wait_for("both hold it", lambda: lab.seen.stored("n1") == lab.seen.stored("n2") == 1)
    assert writer.end() == 0
    check_bare(lab, **options)
    lab.kill("n1")
    check_bare(lab, **options)
    lab.kill("n2")
    lab.start("n2")
    lab.seen.wait_for("n2 is complete again", lambda: lab.seen.are_complete("n2"))
    check_bare(lab, **options)


@pytest.mark.parametrize("order", [("typed", "bare"), ("bare", "typed"), ("mute", "bare")], ids=" then ".join)
def test_one_topic_with_and_without_type_information(started: Lab, order: tuple[str, str]) -> None:
    """Applications of two releases write one topic: one group, whether or not somebody tells its type."""
    options: dict[str, Any] = {"topic": "Bare", "durability": 3, "keyed": False}
    for number, kind in enumerate(order):
        facts: dict[str, Any] = {"typed": kind == "typed", "mute": kind == "mute"}
        program = started.program("untyped", first=number, count=1, readers=1, **facts, **options)
        program.answer("guid")
        assert program.end() == 0
        started.seen.wait_for("it is held", lambda: started.seen.stored("n1") == 1)
    late = started.program("untyped_reader", typed=order[1] == "typed", **options)
    late.answer("ready")

    def numbers() -> list[int]:
        late.tell()
        got: list[int] = late.answer("numbers")
        return got

    started.seen.wait_for("the late reader has the last one", lambda: numbers() == [1])
    started.wait_delivered()
    assert numbers() == [1]
    assert len(node_of(started).groups) == 1
    assert bool(started.trace("n1", "group.typed")) == ("typed" in order)
    assert not node_of(started).counters.get("unkept_writers")
    assert node_of(started).unkept == ()


def test_samples_that_do_not_fit_their_type_are_counted_and_named(started: Lab) -> None:
    """The type that their writer announces has another layout; they vanish in every reader of Cyclone DDS."""
    program = started.program(
        "untyped", topic="Bare", durability=3, keyed=True, broken=True, count=3, readers=1
    )
    guid = program.answer("guid")

    def unkept() -> list[tuple[str, str]]:
        return [(one.writer, one.why) for one in node_of(started).unkept]

    started.seen.wait_for("it is named", lambda: unkept() == [(guid, "refused")])
    started.seen.wait_for("all count", lambda: node_of(started).counters["refused_samples"] == 3)
    assert "3 samples are no values of its type (the last has 8 bytes" in node_of(started).unkept[0].text
    assert (node_of(started).counters["captured"], node_of(started).counters["unkept_writers"]) == (0, 1)
    assert f"Writer {guid} of topic Bare" in started.information("n1")
    program.tell()
    assert program.answer("wrote") == 3
    started.seen.wait_for("it counts, too", lambda: node_of(started).counters["refused_samples"] == 4)
    assert len(started.trace("n1", "group.not-kept")) == 1


def test_samples_without_a_source_timestamp_are_kept_in_their_order(lab: Lab) -> None:
    """Three nodes hold each of them once, with one time, and a late reader gets the last ones."""
    nodes = ("n1", "n2", "n3")
    for name in nodes:
        lab.configure(name, Settings(spaces=(Space(elements=("*",)),)))
    lab.start(*nodes)
    lab.seen.wait_for("all are complete", lambda: lab.seen.are_complete(*nodes))
    options: dict[str, Any] = {"topic": "Bare", "durability": 3, "keyed": False, "depth": 5}
    began_ns = time.time_ns()
    writer = lab.program("untyped", untimed=True, count=COUNT, readers=3, **options)
    writer.answer("guid")
    assert writer.end() == 0

    def groups() -> list[GroupView]:
        return [group for name in nodes if (shown := lab.seen.node(name)) for group in shown.groups]

    lab.seen.wait_for("all hold 5", lambda: [group.samples for group in groups()] == [5, 5, 5])
    lab.seen.wait_for("the same", lambda: len({group.digest for group in groups()}) == 1)
    assert all(began_ns < group.newest_ns < time.time_ns() for group in groups())
    for name in nodes:
        late = lab.program("untyped_reader", **options)
        late.answer("ready")
        lab.seen.wait_for("it has the last ones", partial(has_numbers, late, [*range(COUNT - 5, COUNT)]))
        late.end()
        lab.kill(name)


def has_numbers(reader: Program, wanted: list[int]) -> bool:
    reader.tell()
    return bool(reader.answer("numbers") == wanted)


def test_what_has_no_type_information_is_shown_as_bytes(started: Lab) -> None:
    """`cat` says that no type was announced, `store show` has the bytes, `store verify` finds no damage."""
    options: dict[str, Any] = {"topic": "Bare", "durability": 3}
    started.program("untyped", keyed=False, count=1, readers=1, **options).answer("guid")
    started.seen.wait_for("it is stored", lambda: started.seen.stored("n1") == 1)
    commands = [
        (
            ["cat", "Bare", str(started.home("n1") / "ospl.xml")],
            1,
            "bare::Keyless announced no type information",
        ),
        (["store", "verify", str(started.home("n1") / "store")], 0, ""),
        (["store", "show", str(started.home("n1") / "store")], 0, "00 01 00 00"),
    ]
    for arguments, code, wanted in commands:
        done = command_of(started, *arguments)
        assert done.returncode == code, done
        assert wanted in done.stdout + done.stderr, done


def command_of(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a command prints, with the settings of the nodes."""
    command = [sys.executable, "-m", "ospltool.cli.app", *arguments]
    return subprocess.run(command, env=lab.environ, cwd=ROOT, capture_output=True, text=True, timeout=60)


def check_bare(lab: Lab, **options: Any) -> None:
    """Late readers with and without type information get the last number, once."""
    bare = lab.program("untyped_reader", **options)
    bare.answer("ready")
    typed = lab.reader(types=["Keyless"], partitions=[""], depth=1, by_source=False, **options)
    typed.wait(1)

    def has_number() -> bool:
        bare.tell()
        return bool(bare.answer("numbers") == [COUNT - 1])

    lab.seen.wait_for("the reader without type information has it", has_number)
    tally = typed.tally(detailed=True)
    assert tally["arrivals"] == 1
    ((_, text),) = next(iter(tally["samples"].values()))
    assert text == f"Keyless(number={COUNT - 1})"
    bare.end()
    typed.program.end()


def test_a_best_effort_writer_is_named(started: Lab) -> None:
    program = started.program("refused_writer", durability=2)
    started.check_refused(program, "n1", "RELIABILITY: offered BEST_EFFORT, requested RELIABLE")
    started.seen.wait_for("it is gone", lambda: not node_of(started).unkept)
    assert node_of(started).counters["unkept_writers"] == 1


def test_what_is_not_to_be_kept_is_no_fault_whatever_the_writer(lab: Lab) -> None:
    """In no name-space, a writer that could not be kept either is information, not a row and a warning."""
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    lab.program("untyped", topic="NoType", keyed=True, count=1).answer("guid")
    lab.program("untyped", topic="Mute", keyed=True, mute=True, count=1).answer("guid")
    lab.seen.wait_for("they are told", lambda: node_of(lab).counters["outside_groups"] == 2)
    assert node_of(lab).unkept == ()
    assert node_of(lab).counters["unkept_writers"] == 0
    assert {str(event["group"]) for event in lab.trace("n1", "group.outside")} == {".NoType", ".Mute"}
    assert not lab.trace("n1", "group.not-kept")
