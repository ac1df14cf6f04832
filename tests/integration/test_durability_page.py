"""Each row of the tables in docs/durability-qos.md, on real processes: a page cannot say what does not hold.

A row is found by its first cells, and its other cells are what is checked, so neither can change alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from engine.capture.unkept import UnkeptReason
from engine.supervisor.policy import EXIT_CONFIGURATION
from tests.integration.configurations import Settings, Space
from tests.integration.test_doctor import application, doctor, reader, writer
from tests.integration.test_large_samples import limited_to
from tests.integration.test_security import SECURED
from tests.tables import DOCS, table_rows

if TYPE_CHECKING:
    from engine.runtime.monitor import GroupView, NodeSnapshot
    from tests.integration.lab import Lab
    from tests.integration.programs import Program

pytestmark = pytest.mark.dds

PAGE: Final = "durability-qos.md"
BEGIN_NS: Final = 1_000
SPACES: Final = (
    Space(elements=("stock*", ".Bare*", ".Mute", ".Early", ".Hasty*")),
    Space("weak", ("weak*",), durability="Transient"),
    Space("off", ("off*",), durability="Volatile"),
)


def rows(heading: str, column: str) -> dict[str, dict[str, str]]:
    """The rows of a table by the cell of this column, which is the first."""
    return {row.pop(column): row for row in table_rows(PAGE, heading)}


def node(lab: Lab) -> NodeSnapshot:
    shown = lab.seen.node("n1")
    assert shown is not None
    return shown


def groups(lab: Lab, topic: str) -> list[GroupView]:
    return [one for one in node(lab).groups if one.topic == topic]


def holds(lab: Lab, topic: str, samples: int, count: int = 1) -> None:
    """Until the node holds this number of samples in this number of groups of a topic."""

    def is_so() -> bool:
        found = groups(lab, topic)
        return len(found) == count and sum(one.samples for one in found) == samples

    lab.seen.wait_for(f"{samples} samples of {topic} are held", is_so)


TABLES: Final = ("Kind", "Between", "Code", "Writer", "Limit", "The writer")
"""The first columns of the tables that tests below try; `tests/client/test_writer_ends.py` tries the last."""


def test_no_table_of_the_page_is_without_a_test() -> None:
    """A new one needs a test that tries its rows."""
    lines = (DOCS / PAGE).read_text(encoding="utf-8").splitlines()
    heads = [above for above, line in itertools.pairwise(lines) if line.startswith("|---")]
    assert tuple(head.split("|")[1].strip() for head in heads) == TABLES


# The kinds.


def test_each_kind_gives_late_joiners_what_the_table_says(lab: Lab) -> None:
    """With a writer that lives, one that has ended, and after the node has started again."""
    table = rows("The DURABILITY QoS", "Kind")
    given = {
        "nothing that was written before": (0, 0, 0),
        "what the writer still has, while it lives; from Cyclone DDS itself": (1, 0, 0),
        "what nodes keep in memory": (1, 1, 0),
        "what nodes keep in memory and on disk": (1, 1, 1),
    }
    lab.start_complete("n1", settings=Settings())
    kinds = {
        name: (number, given[row["What a late joiner gets"]])
        for number, (name, row) in enumerate(table.items())
    }
    assert list(kinds) == ["VOLATILE", "TRANSIENT_LOCAL", "TRANSIENT", "PERSISTENT"]
    # A node does not match the first two; a reader is there for their writers to wait for.
    others = [lab.reader(topic=name, durability=number) for name, (number, _) in list(kinds.items())[:2]]
    writers = {
        name: lab.program("writer", topic=name, durability=number, steps=[{"count": 1, "time": BEGIN_NS}])
        for name, (number, _) in kinds.items()
    }
    for program in writers.values():
        program.answer("done")

    def check(moment: int) -> None:
        late = {name: lab.reader(topic=name, durability=number) for name, (number, _) in kinds.items()}
        for name, (_, counts) in kinds.items():
            late[name].wait(counts[moment])
        lab.wait_delivered()
        got = {name: one.tally()["arrivals"] for name, one in late.items()}
        assert got == {name: counts[moment] for name, (_, counts) in kinds.items()}
        for one in late.values():
            assert one.program.end() == 0

    check(0)
    for program in (*writers.values(), *(one.program for one in others)):
        assert program.end() == 0
    check(1)
    lab.stop("n1")
    lab.start_complete("n1")
    check(2)


# Mismatches.


def test_each_mismatch_is_reported_where_the_table_says(lab: Lab) -> None:
    table = rows("Mismatches", "Between")
    lab.start_complete("n1", settings=Settings(spaces=SPACES))
    lab.write({"count": 1, "time": BEGIN_NS}, topic="Loose", by_source=False)
    holds(lab, "Loose", 1)
    refused = lab.program("refused_writer", durability=3)
    strict = lab.reader(topic="Loose", by_source=True)
    answer = refused.line(30)
    ends = [writer("Apart", reliable=False), writer("Apart"), reader("Apart", durability="Persistent")]
    with application(lab, *ends):
        lab.seen.wait_for("all is counted", lambda: bool(node(lab).counters.get("refused_writers")))
        lab.seen.wait_for("a reader is refused", lambda: bool(node(lab).counters.get("refused")))
        lab.seen.wait_for("its problem is shown", lambda: any(one.problem for one in node(lab).deliveries))
        _, data, _ = doctor(lab, "--json", "--for", "2s", "--topic", "Apart")
    events = lab.trace("n1", "group.qos-mismatch")
    both = "RELIABILITY: offered BEST_EFFORT, requested RELIABLE"
    order = "DESTINATION_ORDER: offered BY_RECEPTION_TIMESTAMP, requested BY_SOURCE_TIMESTAMP"
    causes = {one["cause"] for one in json.loads(data)["data"]["findings"]}
    statuses = {
        "OFFERED_INCOMPATIBLE_QOS": answer["refused"],
        "REQUESTED_INCOMPATIBLE_QOS": strict.tally()["refused"],
    }
    for text, said in ((both, answer["guid"]), (order, "")):
        assert any(text in one["cause"] and said in one["endpoint"] + one["cause"] for one in events), events
        assert text in lab.information("n1")
    assert any(order in one.problem for one in node(lab).deliveries)
    assert all(statuses.values())
    told = " ".join(cell for row in table.values() for cell in row.values())
    named = set(re.findall(r"`([a-z_.-]+)`", told))
    assert named == {
        "group.qos-mismatch",
        "refused_writers",
        "refused",
        "incompatible-durability",
        "incompatible-qos",
    }
    assert {"incompatible-durability", "incompatible-qos"} <= causes
    assert set(re.findall(r"[A-Z]+_INCOMPATIBLE_QOS", told)) == set(statuses)


# What becomes of each writer.


@dataclasses.dataclass(frozen=True)
class Told:
    """What a node, its log and the commands have said in the end."""

    snapshot: NodeSnapshot
    trace: dict[str, list[dict[str, str]]]
    unkept: set[tuple[str, str]]
    doctor: list[dict[str, Any]]
    health: set[str]

    def is_told(self, word: str, topic: str) -> bool:
        """Whether a code, event, counter or cause of the table is told of a topic."""
        if word.startswith("DUL-"):
            return word in self.health
        if "." in word:
            return any(topic in json.dumps(event) for event in self.trace.get(word, ()))
        if word in self.snapshot.counters:
            return bool(self.snapshot.counters[word])
        causes = {one["cause"] for one in self.doctor if topic in (one["topics"] or one["message"])}
        return (topic, word) in self.unkept or word in causes

    def codes(self, topic: str) -> set[str]:
        """The codes of writers of a topic that are not kept."""
        return {code for name, code in self.unkept if name == topic}


PASSING: Final = UnkeptReason.TYPE_AWAITED.value
"""The code of a writer whose type is being looked up: it may be over before anybody looks."""
WORDS: Final = re.compile(r"`([a-z_]+[._-][a-z_.-]+|qos|unmatched|ended|rejected)`|(DUL-[A-Z-]+[A-Z])")


def words(cell: str) -> set[str]:
    """The codes, events, counters and causes that a cell names."""
    return {one or other for one, other in WORDS.findall(cell)}


WRITERS: Final[dict[str, tuple[str, str]]] = {
    "without a key": ("Bare", "yes, as bytes"),
    "announces none, with a key": ("BareKeyed", "no"),
    "the key of its type is a union": ("Union", "yes"),
    "with a key, its type is not known yet": ("Mute", "from the moment"),
    "BEST_EFFORT": ("Reading", "no"),
    "its topic has several types": ("Mixed", "yes, a group for each"),
    "samples above MaxSampleSize": ("Large", "all others"),
    "resource limits of its topic are full": ("Limited", "[with a limit]"),
    "ends soon, and wrote only before": ("Hasty", "no"),
    "writes before a node matches it": ("Early", "from then on"),
    "in no name-space": ("Outside", "no, as configured"),
    "PERSISTENT, in a name-space": ("Weak", "with a limit: in memory only"),
    "in several partitions": ("Several", "yes, in these; each sample once in each"),
    "in a partition with wildcards": ("Wild", "yes"),
}
"""The beginning of a row's first two cells, and the topic that shows it; the others are `ELSEWHERE`."""

ELSEWHERE: Final = {
    "some of its samples do not fit": "test_samples_that_do_not_fit_their_type_are_counted_and_named",
    "sends no source timestamps": "test_samples_without_a_source_timestamp_are_kept_in_their_order",
    "on another implementation of DDS": "`make foreign`",
    "does not match the built-in reader": "no application can bring it about; a unit test does",
    "in a domain with DDS Security": "test_a_node_with_security_refuses_to_start",
}


def of_row(row: str, cases: dict[str, Any]) -> list[str]:
    return [begin for begin in cases if row.startswith(begin)]


HASTY: Final = {f"Hasty{number}" for number in range(3)}
ONE: Final[dict[str, Any]] = {"count": 1, "time": BEGIN_NS}
HELD: Final = {
    "Bare": (1, 1),
    "Union": (1, 1),
    "Mixed": (2, 2),
    "Large": (1, 1),
    "Limited": (2, 1),
    "Weak": (1, 1),
    "Several": (2, 2),
    "Wild": (1, 1),
}
"""Samples and groups that the node holds of a topic."""


def write_one_of_each(lab: Lab) -> tuple[Program, Program]:
    """Let each kind of writer write; returns those of `Mute` and `Early`, which may go on."""

    def bare(topic: str, *, keyed: bool = False, **options: Any) -> Program:
        return lab.program("untyped", topic=topic, keyed=keyed, count=1, durability=3, **options)

    def typed(topic: str, *steps: dict[str, Any], **options: Any) -> Program:
        return lab.program("writer", topic=topic, steps=list(steps), durability=3, **options)

    mute, early = bare("Mute", keyed=True, mute=True), bare("Early")
    hasty = [bare(topic) for topic in HASTY]
    bare("BareKeyed", keyed=True)
    bare("Bare", readers=1)
    bare("Outside", keyed=True)
    for partition in ("elsewhere", "off"):
        typed("Outside", {**ONE, "partitions": [partition]})
    refused = lab.program("refused_writer", durability=3)
    for each in (early, *hasty):
        each.answer("guid")
    lab.seen.wait_for("it knows them", lambda: {group.topic for group in node(lab).groups} >= HASTY)
    for each in hasty:
        each.kill()
    sent = [
        typed("Union", {**ONE, "type": "ByUnion", "count": 2}),
        typed("Mixed", ONE),
        typed("Mixed", {**ONE, "type": "Keyless"}),
        typed("Large", ONE, {**ONE, "first": 1, "text_bytes": 2_000_000}),
        typed("Limited", {**ONE, "count": 5}, limits=(2, -1, -1), depth=0),
        typed("Weak", {**ONE, "partitions": ["weak"]}),
        typed("Several", {**ONE, "partitions": ["stock", "elsewhere", "stock2"]}),
        typed("Wild", {**ONE, "partitions": ["stock?"]}, latency_budget_ns=500_000_000),
    ]
    for each in sent:
        each.answer("done")
    assert refused.line(30)["refused"]
    return mute, early


def what_is_told(lab: Lab, expected: set[tuple[str, str]]) -> Told:
    """What the node, the doctor and health say, once the node says at least this of topics."""
    unkept: set[tuple[str, str]] = set()

    def are_told() -> bool:
        unkept.update((view.topic, view.why) for view in node(lab).unkept)
        told = {event["topic"] for event in lab.trace("n1", "group.not-kept") if "ended" in event["cause"]}
        unkept.update(("Hasty", "ended") for _ in told)
        captured = {one.topic for one in node(lab).groups if one.samples}
        return expected <= unkept and told | captured >= HASTY

    lab.seen.wait_for("they are told", are_told)
    _, found, _ = doctor(lab, "--json", "--for", "3s")
    _, health = lab.ospltool("n1", "health", "--json")
    (domain,) = json.loads(health)["data"]
    events = ("group.not-kept", "group.outside", "group.memory-only", "capture.too-large", "capture.limited")
    return Told(
        node(lab),
        {name: lab.trace("n1", name) for name in events},
        unkept,
        json.loads(found)["data"]["findings"],
        {one["code"] for one in domain["incidents"]},
    )


def test_what_becomes_of_each_writer_is_what_the_table_says(lab: Lab) -> None:
    """One node, and a writer of each kind; what it says in the end is compared with each row."""
    table = rows("What becomes of each writer", "Writer")
    known = {**WRITERS, **ELSEWHERE}
    assert [len(of_row(row, known)) for row in table] == [1] * len(known)
    lab.start_complete("n1", settings=dataclasses.replace(limited_to("1 MB"), spaces=SPACES))
    mute, early = write_one_of_each(lab)
    for topic, (samples, count) in HELD.items():
        holds(lab, topic, samples, count)
    early.tell()
    assert early.answer("wrote") == 1
    holds(lab, "Early", 1)
    told = what_is_told(lab, {("BareKeyed", "untyped-keyed"), ("Mute", "type-unknown"), ("Reading", "qos")})
    wrong = {}
    for row, cells in table.items():
        for begin in of_row(row, WRITERS):
            topic, becomes = WRITERS[begin]
            named = words(cells["Told"]) - {PASSING}
            silent = {word for word in named if not told.is_told(word, topic)}
            if topic == "Hasty" and ("Hasty", "ended") not in told.unkept:
                silent = set()  # the node was quicker than all of them
            loud = told.codes(topic) - named - {PASSING}
            if silent or loud or not cells["Kept"].startswith(becomes):
                wrong[row] = (silent, loud, cells["Kept"])
    assert not wrong, told

    # The type becomes known: the writer is kept from then on.
    knowing = lab.program("untyped_reader", topic="Mute", keyed=True, typed=True, durability=3)
    knowing.answer("ready")
    lab.seen.wait_for("it is kept", lambda: all(view.topic != "Mute" for view in node(lab).unkept))
    mute.tell()
    assert mute.answer("wrote") == 1
    holds(lab, "Mute", 1)


def test_the_codes_of_the_page_are_those_of_nodes() -> None:
    codes = {
        code.strip("`"): row["What to do"] for code, row in rows("Writers that are not kept", "Code").items()
    }
    assert list(codes) == [reason.value for reason in UnkeptReason]
    assert all(codes.values())


def test_a_node_with_security_refuses_to_start(lab: Lab) -> None:
    (row,) = (
        cells for row, cells in rows("What becomes of each writer", "Writer").items() if "DDS Security" in row
    )
    assert row["Kept"].startswith("no: a node cannot enter it")
    lab.configure("n1", Settings())
    lab.start("n1", environ={"CYCLONEDDS_URI": SECURED})
    assert lab.process("n1").wait(30) == EXIT_CONFIGURATION


# Resource limits.

LIMITS: Final[dict[str, tuple[tuple[int, int, int], list[list[int]]]]] = {
    # The third number of each instance is the newest; all of instance 0 are older than all of instance 1.
    "max_samples_per_instance": ((-1, -1, 2), [[1, 2], [1, 2], [1, 2]]),
    "max_instances": ((-1, 2, -1), [[0, 1, 2], [0, 1, 2]]),
    "max_samples": ((4, -1, -1), [[], [2], [0, 1, 2]]),
    "max_samples and max_instances": ((4, 2, -1), [[1, 2], [1, 2]]),
}
KEPT_BY: Final = {
    "max_samples_per_instance": "the newest writes of each instance",
    "max_instances": "the instances whose keys come first in the byte order of the serialized key",
    "max_samples": "the newest writes of the group",
    "max_samples and max_instances": "of the instances that come first, "
    "the newest max_samples / max_instances writes each",
}


def test_limits_keep_what_the_table_says(lab: Lab) -> None:
    """Three values of three instances, written in three orders: what is kept does not depend on it."""
    table = {row: cells["What is kept"] for row, cells in rows("Resource limits", "Limit").items()}
    assert {row: text.partition(", as with")[0] for row, text in table.items()} == KEPT_BY
    lab.start_complete("n1", settings=Settings(spaces=(Space(elements=("stock*",)),)))
    steps = [
        {"first": key, "count": 1, "time": BEGIN_NS + 10 * key + value, "value": value}
        for key in range(3)
        for value in range(3)
    ]
    programs = {}
    for row, (limits, _) in LIMITS.items():
        for order, ordered in enumerate((steps, steps[::-1], steps[1::2] + steps[::2])):
            name = f"{'And'.join(word.replace('_', '') for word in row.split(' and '))}{order}"
            programs[row, name] = lab.program("writer", topic=name, steps=ordered, limits=limits, depth=0)
    for program in programs.values():
        program.answer("done")
    for row, name in programs:
        _, wanted = LIMITS[row]
        holds(lab, name, sum(map(len, wanted)))
        late = lab.reader(topic=name, depth=0)
        late.wait(sum(map(len, wanted)))
        samples = late.tally(detailed=True)["samples"]
        values = [
            sorted(int(re.findall(r"value=(\d+)", text)[0]) for _, text in samples.get(f"Reading {key}", ()))
            for key in range(len(wanted))
        ]
        assert (values, sum(map(len, samples.values()))) == (wanted, sum(map(len, wanted))), name
        assert late.program.end() == 0
