from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import msgspec
import pytest
from cyclonedds.core import Policy
from cyclonedds.util import duration

from engine.dataset.groups import DurabilityKind
from engine.dds.endpoints import Endpoint
from engine.dds.qos import EndpointQos
from engine.runtime.monitor import (
    DEVIATIONS,
    DeviationView,
    FellowView,
    GroupView,
    NameSpaceView,
    NodeSnapshot,
    StoreStatus,
    UnkeptView,
)
from ospltool.doctor import diagnosis as diagnosis_module
from ospltool.doctor.diagnosis import Diagnosis, diagnose
from ospltool.doctor.picture import DomainPicture
from ospltool.doctor.report import as_data, as_text
from ospltool.output import envelope
from tests.tables import table_rows

GOOD = EndpointQos(
    reliable=True,
    durability=DurabilityKind.TRANSIENT,
    by_source_timestamp=True,
    autodispose=False,
    representations=(0,),
)
VOLATILE, LOCAL, PERSISTENT = (
    DurabilityKind.VOLATILE,
    DurabilityKind.TRANSIENT_LOCAL,
    DurabilityKind.PERSISTENT,
)
_numbers = itertools.count(1)


def end(
    kind: str,
    *,
    type_name: str = "T",
    type_id: str = "",
    partition: str = "ships",
    host: str = "a",
    **qos: Any,
) -> Endpoint:
    return Endpoint(
        guid=f"{next(_numbers):032x}",
        is_writer=kind == "writer",
        topic="Ship",
        type_name=type_name,
        partitions=(partition,) if partition else (),
        qos=msgspec.structs.replace(GOOD, partitions=(partition,), **qos),  # as announced
        pid=1,
        host=host,
        type_id=type_id,
        is_library=kind == "library",
    )


def space(**changes: Any) -> NameSpaceView:
    view = NameSpaceView(
        name="ships",
        elements=("ships.*",),
        aligner=True,
        alignee="Initial",
        durability="Durable",
        master_priority=1,
        merges=("Merge *",),
        phase="complete",
        complete=True,
        master="",
        confirmed=True,
        epoch="",
        why="",
        merge_id="",
        quality_ns=0,
        count=0,
        digest="",
        groups=0,
    )
    return msgspec.structs.replace(view, **changes)


def node(
    name: str, *fellows: tuple[str, int], spaces: tuple[NameSpaceView, ...] = (space(),), problem: str = ""
) -> NodeSnapshot:
    return NodeSnapshot(
        id=name,
        name=name,
        role="R" + name[-1],
        host="host-" + name,
        pid=1,
        domain_id=0,
        incarnation=1,
        configuration="",
        version="",
        time_ns=1,
        started_ns=1,
        state="COMPLETE",
        update_period_ns=1,
        store=StoreStatus("memory", ""),
        fellows=tuple(
            FellowView(
                other, other, "R" + other[-1], "", "incompatible" if problem else "approved", 1, skew, problem
            )
            for other, skew in fellows
        ),
        name_spaces=spaces,
    )


def check_finds(picture: DomainPicture, *expected: str) -> Diagnosis:
    """Exactly these, as `weight cause`; every one with its reason, its advice and whom it concerns."""
    found = diagnose(picture)
    assert sorted(f"{each.severity.label} {each.name}" for each in found.findings) == sorted(expected)
    assert all(each.message and each.advice and (each.evidence or each.nodes) for each in found.findings)
    assert found.is_good == all(text.startswith("info") for text in expected)
    assert as_text(found).isascii()
    envelope.document("doctor", as_data(found))
    return found


PERIODIC: dict[str, Any] = {"deadline_ns": 10_000_000}
CASES = [
    ([], [end("writer"), end("reader")]),
    (["warning reliability"] * 2, [end("writer", reliable=False), end("reader", reliable=False)]),
    (["warning reliability"], [end("writer"), end("reader", reliable=False)]),
    (["warning reliability", "error incompatible-qos"], [end("writer", reliable=False), end("reader")]),
    (["info reliability"], [end("writer", **PERIODIC), end("reader", reliable=False)]),
    (["warning reliability"], [end("writer", **PERIODIC), end("writer"), end("reader", reliable=False)]),
    (["warning durability"] * 2, [end("writer", durability=VOLATILE), end("reader", durability=VOLATILE)]),
    (["info durability"], [end("writer", **PERIODIC), end("reader", durability=VOLATILE)]),
    (
        ["warning durability", "error incompatible-durability"],
        [end("writer", durability=LOCAL), end("reader")],
    ),
    (["error incompatible-durability"], [end("writer"), end("reader", durability=PERSISTENT)]),
    (["warning destination-order"], [end("writer"), end("reader", by_source_timestamp=False)]),
    (
        ["info destination-order", "error incompatible-qos"],
        [end("writer", by_source_timestamp=False), end("reader")],
    ),
    (
        ["warning destination-order", "error incompatible-qos"],
        [*(end("writer", by_source_timestamp=False) for _ in "12"), end("reader")],
    ),
    (
        ["info destination-order", "warning nobody-keeps", "error incompatible-qos"],
        [
            *(end("writer", partition="x", by_source_timestamp=False) for _ in "12"),
            end("reader", partition="x"),
        ],
    ),
    (
        ["warning nobody-keeps"],
        [end("writer", partition="x"), end("reader", partition="x", by_source_timestamp=False)],
    ),
    ([], [end("writer"), end("library", by_source_timestamp=False, durability=VOLATILE)]),
    (["error different-types"], [end("writer"), end("reader", type_name="U")]),
    (["error different-types"], [end("writer"), end("writer", type_name="U")]),
    (["error different-types"], [end("writer"), end("writer", type_name="U"), end("reader"), end("reader")]),
    (["warning different-types"], [end("writer", type_id="1"), end("writer", type_id="2")]),
    (["warning different-types"], [end("writer", type_id="1"), end("reader", type_id="2")]),
    ([], [end("writer", type_id="1"), end("reader", type_name="U", type_id="1")]),
    (["warning different-types"], [end("writer", type_id="1"), end("reader", type_name="U", type_id="2")]),
    (["error different-types"], [end("writer", type_id="1"), end("reader", type_name="U")]),
    ([], [end("writer", type_id="1"), end("reader")]),
    ([], [end("writer"), end("reader", partition="s*")]),
    (["error incompatible-qos"], [end("writer"), end("reader", partition="s*", deadline_ns=5)]),
    (["info partition"], [end("writer"), end("reader", partition="boats", durability=PERSISTENT)]),
    (["warning partition"], [end("writer"), end("reader", partition="ship")]),
    (["warning partition"], [end("writer"), end("reader", partition="Ships")]),
    (["warning partition"], [end("writer"), end("reader", partition="")]),
    (
        ["warning partition", "warning nobody-keeps"],
        [end("writer"), end("writer", partition="ship"), end("reader")],
    ),
    (
        ["info partition", "warning nobody-keeps"],
        [end("writer", partition="ship2"), end("reader", partition="ship1")],
    ),
    (
        ["warning partition", "warning nobody-keeps"],
        [end("writer", partition="sh*s"), end("reader", partition="s*")],
    ),
    (["warning writers-disagree"], [end("writer"), end("writer", durability=PERSISTENT)]),
    (["warning writers-disagree"], [end("writer"), end("writer", service_history_depth=9)]),
    (["info dies-with-writer"], [end("writer", autodispose=True)]),
    (["warning nobody-keeps"], [end("writer", partition="boats")]),
    (["info history-cut"], [end("writer", history_depth=5), end("reader")]),
    (["info history-cut"], [end("writer", history_depth=0), end("reader", history_depth=0)]),
    (["warning history-cut"], [end("writer"), end("reader", history_depth=5)]),
    (["warning history-cut"], [end("writer", service_history_depth=3), end("reader", history_depth=5)]),
    ([], [end("writer", history_depth=5, service_history_depth=5), end("reader", history_depth=5)]),
    ([], [end("writer", history_depth=0, service_history_depth=0), end("reader", history_depth=0)]),
    (["info partition"], [end("writer"), end("reader", history_depth=5, partition="boats")]),
    ([], [end("writer"), end("library", history_depth=5)]),
]


@pytest.mark.parametrize(("expected", "endpoints"), CASES)
def test_each_policy_that_breaks_consistency_is_found(expected: list[str], endpoints: list[Endpoint]) -> None:
    check_finds(DomainPicture(tuple(endpoints), nodes=(node("n1"),), participants=2), *expected)


KEPT = GroupView("ships", "ships", "Ship", "T", "TRANSIENT", 1, 1, 1, "", 0, 0, 0)
REFUSES = "refuses what nodes keep in partition 'ships' ("


@pytest.mark.parametrize(
    ("kept", "endpoints", "expected", "said"),
    [
        ({}, [end("reader")], [], ""),
        ({}, [end("reader", deadline_ns=5, presentation=1, liveliness=2)], [], ""),
        ({}, [end("reader", durability=PERSISTENT)], ["error incompatible-durability"], REFUSES),
        ({}, [end("reader", exclusive=True)], ["error incompatible-qos"], REFUSES),
        ({"by_source_timestamp": False}, [end("reader")], ["error incompatible-qos"], REFUSES),
        ({"representations": (2,)}, [end("reader")], ["error incompatible-qos"], REFUSES),
        ({}, [end("reader", partition="ship")], ["warning partition"], "the topic is in partition 'ships'"),
        ({}, [end("reader", type_name="U")], ["warning different-types"], "another type than nodes keep, T"),
        ({}, [end("library", durability=PERSISTENT)], [], ""),
        (
            {},
            [end("writer"), end("reader", deadline_ns=5)],
            ["error incompatible-qos"],
            "late gets what nodes",
        ),
        (
            {},
            [end("writer"), end("reader", durability=PERSISTENT)],
            ["error incompatible-durability"],
            "so no data flows from one to the other",
        ),
    ],
)
def test_what_nodes_keep_of_writers_that_are_gone_is_compared_with_what_readers_ask_for(
    kept: dict[str, Any], endpoints: list[Endpoint], expected: list[str], said: str
) -> None:
    nodes = tuple(
        msgspec.structs.replace(node(name), groups=(msgspec.structs.replace(KEPT, **kept),))
        for name in ("n1", "n2")
    )
    found = check_finds(DomainPicture(tuple(endpoints), nodes=nodes, participants=2), *expected)
    for finding in found.findings:
        assert said in finding.message
        assert finding.message.endswith(("later", "other", "that", "'ships'", "compatible")), "all of it"


@pytest.mark.parametrize(
    "blind",
    [
        {"foreign_services": 1},
        {"nodes": (msgspec.structs.replace(node("n1"), groups_left_out=1),)},
        {"nodes": (node("n1", ("n2", 0)),)},  # a fellow that was not heard
    ],
)
def test_nothing_is_called_absent_where_what_is_kept_is_unknown(blind: dict[str, Any]) -> None:
    ends = end("writer"), end("reader", partition="ship")
    check_finds(DomainPicture(ends, participants=2, **blind))


ROS: dict[str, Any] = {"by_source_timestamp": False, "type_name": "std_msgs::msg::dds_::String_"}


@pytest.mark.parametrize(
    ("count", "durability", "expected", "advice"),
    [
        (1, VOLATILE, ["warning durability"] * 2, "TRANSIENT_LOCAL in the QoSProfile of both sides, and a "),
        (5, LOCAL, ["warning durability"] * 2 + ["info destination-order"] * 2, "a publisher that stays: "),
    ],
)
def test_topics_of_ros_get_only_advice_that_they_do_not_follow_yet(
    count: int, durability: DurabilityKind, expected: list[str], advice: str
) -> None:
    ends = [end(kind, durability=durability, **ROS) for kind in ("reader", *("writer",) * count)]
    found = check_finds(DomainPicture(tuple(ends), participants=2), *expected)
    given = {each.advice for each in found.findings if each.name == "durability"}
    assert [each[: len(advice)] for each in given] == [advice]
    assert all("service" not in each.message for each in found.findings), "nobody keeps it"
    assert as_text(found).endswith("and 1 of 1 reader are not certain to become consistent\n")


def test_what_is_the_same_for_many_topics_of_ros_is_said_once_and_can_be_followed() -> None:
    ends = [
        dataclasses.replace(end(kind, durability=durability, **ROS), topic=f"rt/t{number:02}")
        for number in range(47)
        for kind, durability in (("writer", LOCAL if number else VOLATILE), ("reader", VOLATILE))
    ]
    found = check_finds(DomainPicture(tuple(ends), participants=2), *["warning durability"] * 3)
    assert {len(each.topics) for each in found.findings} == {1, 46, 47}
    assert "topics rt/t00, rt/t01, rt/t02, rt/t03, rt/t04 and 42 more\n" in as_text(found)
    assert all("ROS 2" in each.advice for each in found.findings)
    assert (found.inconsistent(writers=True), found.inconsistent(writers=False)) == (47, 47)


def test_both_sides_of_an_incompatible_offer_are_named() -> None:
    writer, reader = end("writer"), end("reader", durability=PERSISTENT)
    found = check_finds(
        DomainPicture((reader, writer), nodes=(node("n1"),), participants=2), "error incompatible-durability"
    )
    assert found.findings[0].evidence == (writer, reader)
    assert "offered TRANSIENT, requested PERSISTENT" in found.findings[0].message
    assert f"writer {writer.guid}" in as_text(found)
    assert f"reader {reader.guid}" in as_text(found)
    assert (found.inconsistent(writers=True), found.inconsistent(writers=False)) == (1, 1)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"durability": PERSISTENT}, "a service keeps all data as the highest"),
        ({"service_history_depth": 9}, "depends on which of them it saw first"),
    ],
)
def test_what_counts_where_writers_disagree_is_said(other: dict[str, Any], said: str) -> None:
    picture = DomainPicture((end("writer"), end("writer", **other)), nodes=(node("n1"),), participants=2)
    assert said in check_finds(picture, "warning writers-disagree").findings[0].message


def test_without_any_service_durable_data_is_not_kept_and_others_are_not_judged() -> None:
    alone = DomainPicture((end("writer"),), participants=1)
    found = check_finds(alone, "warning nobody-keeps")
    assert "none was heard" in found.findings[0].message
    check_finds(dataclasses.replace(alone, foreign_services=1))
    kept_nowhere = node("n1", spaces=(space(durability="Volatile"),))
    check_finds(dataclasses.replace(alone, nodes=(kept_nowhere,)), "warning nobody-keeps")


SECOND = 1_000_000_000
CLOCKS = [
    ((0, -2_000_000), (0, -2_000_000), []),
    ((0, -SECOND), (0, -SECOND), []),  # slow messages both ways are no difference of clocks
    ((0, 90_000_000), (0, -95_000_000), []),
    ((0, SECOND), (0, -SECOND - 5_000_000), ["info clocks"]),
    ((0, -SECOND - 5_000_000), (0, SECOND), ["info clocks"]),
]


@pytest.mark.parametrize(("of_n1", "of_n2", "expected"), CLOCKS)
def test_clocks_are_judged_by_what_is_certain(
    of_n1: tuple[int, int], of_n2: tuple[int, int], expected: list[str]
) -> None:
    nodes = (node("n1", ("n2", of_n1[1])), node("n2", ("n1", of_n2[1])))
    check_finds(DomainPicture(nodes=nodes, participants=2), *expected)


def test_clocks_weigh_more_where_a_topic_is_written_on_two_hosts() -> None:
    nodes = (node("n1", ("n2", SECOND)), node("n2", ("n1", -SECOND - 5_000_000)))
    written = (end("writer"), end("writer", host="b"))
    found = check_finds(DomainPicture(written, nodes=nodes, participants=4), "warning clocks")
    message = found.findings[0].message
    assert "clock of n2" in message.partition("ahead of")[0]
    assert "1.000 s at least and 1.005 s at most" in message
    assert "Ship" in message


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        ("Merge *", "Merge *", []),
        ("Ignore *", "Replace *", []),
        ("Ignore *", "Delete *", ["warning not-merged"]),
        ("Merge X", "Merge X", ["warning not-merged"]),
        ("Ignore R?", "Merge X", ["warning not-merged"]),
    ],
)
def test_sets_that_stay_apart_after_a_disconnection_are_found(
    here: str, there: str, expected: list[str]
) -> None:
    nodes = (node("n1", spaces=(space(merges=(here,)),)), node("n2", spaces=(space(merges=(there,)),)))
    check_finds(DomainPicture(nodes=nodes, participants=2), *expected)


def test_nodes_that_do_not_communicate_are_found_once() -> None:
    nodes = (node("n1", ("n2", 0), problem="they overlap"), node("n2", ("n1", 0), problem="they overlap"))
    check_finds(DomainPicture(nodes=nodes, participants=2), "error nodes-incompatible")


def test_a_writer_that_nodes_do_not_keep_is_found_once() -> None:
    writer = end("writer")
    view = UnkeptView(writer.guid, "Ship", "ships", "untyped-keyed", "untyped-keyed: it tells no type")
    nodes = tuple(
        msgspec.structs.replace(node(name, spaces=(space(),)), unkept=(view,)) for name in ("n1", "n2")
    )
    picture = DomainPicture((writer,), nodes=nodes, participants=3)
    (finding,) = (each for each in diagnose(picture).findings if each.name == "not-kept")
    assert finding.evidence == (writer,)
    assert "n1, n2 cannot keep: untyped-keyed" in finding.message


def test_a_writer_that_has_ended_is_found_if_no_node_that_keeps_its_group_has_anything_of_it() -> None:
    view = UnkeptView("01", "Ship", "ships", "ended", "ended: it ended too soon")
    group = GroupView("ships", "ships", "Ship", "S", "TRANSIENT", 1, 1, 1, "", 0, 0, 0)
    lacks = msgspec.structs.replace(node("n1", spaces=(space(),)), unkept=(view,), groups=(group,))
    other = msgspec.structs.replace(node("n2", spaces=(space(),)), groups=(group,))
    found = check_finds(DomainPicture((), nodes=(lacks,), participants=2), "warning not-kept")
    assert "n1 did not keep durable data of writer 01, which has ended: ended" in found.findings[0].message
    check_finds(DomainPicture((), nodes=(lacks, other), participants=3))


def test_nodes_that_refused_large_samples_are_named() -> None:
    """And their topics, of groups that a node shows."""
    kept, refused = (node(name, spaces=(space(),)) for name in ("n1", "n2"))
    refused = msgspec.structs.replace(refused, counters={"too_large": 1_200})
    found = check_finds(DomainPicture((), nodes=(kept, refused), participants=2), "warning not-kept")
    (finding,) = found.findings
    assert finding.nodes == ("n2",)
    assert "did not capture 1,200 samples above its limit" in finding.message
    assert "only if a fellow with a higher limit sends them" in finding.message
    group = GroupView("ships", "ships", "Ship", "S", "PERSISTENT", 1, 1, 1, "", 0, 0, 0, too_large=1_199)
    refused = msgspec.structs.replace(refused, groups=(group,))
    found = diagnose(DomainPicture((), nodes=(kept, refused), participants=2))
    told = {
        one.topics: one.message.partition(" above ")[0] for one in found.findings if one.name == "not-kept"
    }
    assert told == {("Ship",): "n2 did not capture 1,199 samples", (): "n2 did not capture 1 sample"}


def test_persistent_data_in_memory_only_is_information_for_each_reason() -> None:
    weak, disk = space(durability="Transient"), StoreStatus("sqlite", "/s")
    group = GroupView("ships", "ships", "Ship", "S", "PERSISTENT", 1, 1, 1, "", 0, 0, 0)
    many = tuple(msgspec.structs.replace(group, topic=f"T{number}") for number in range(6))
    nodes = tuple(
        msgspec.structs.replace(node(name, spaces=spaces), groups=groups, store=store)
        for name, spaces, groups, store in (
            (
                "n1",
                (weak, space(name="boats")),
                (group, msgspec.structs.replace(group, name_space="boats")),
                disk,
            ),
            ("n2", (weak,), many, disk),
            ("n3", (weak,), (msgspec.structs.replace(group, durability="TRANSIENT"),), disk),
            ("n4", (space(),), (group,), disk),
            ("n5", (space(),), (group,), StoreStatus("memory", "")),
        )
    )
    found = check_finds(DomainPicture((), nodes=nodes, participants=2), *["info memory-only"] * 2)
    by_policy, by_store = found.findings
    assert by_policy.nodes == ("n1", "n2")
    assert "'ships' is Transient: topics Ship, T0, T1, T2, T3 and 2 more" in by_policy.message
    assert by_store.nodes == ("n5",)
    assert "there is no store on disk: topic Ship" in by_store.message


def test_the_page_on_readers_has_every_deviation() -> None:
    rows = table_rows("readers.md", "Limits for ordinary readers")
    assert {row["Counter"].strip("`") for row in rows} == DEVIATIONS.keys()


def test_what_nodes_keep_decides_and_the_line_to_write_is_given() -> None:
    """One finding for the topic; the line leaves everything else as it is, and is one of cyclonedds."""
    kept = GroupView(
        "ships", "ships", "Ship", "S", "TRANSIENT", 1, 1, 1, "", 0, 0, 0,
        depth=0, limits=(100, -1, 2), cleanup_delay_ns=-1,
    )  # fmt: skip
    nodes = tuple(msgspec.structs.replace(node(name), groups=(kept,)) for name in ("n1", "n2"))
    ends = (
        end("writer", history_depth=2, service_history_depth=2),
        end("reader", history_depth=5),
        end("reader", history_depth=3, partition="s*"),
        end("reader", history_depth=2),
    )
    (found,) = check_finds(DomainPicture(ends, nodes=nodes, participants=4), "warning history-cut").findings
    assert found.evidence == ends[1:3]
    assert "HISTORY is KEEP_LAST 3 and KEEP_LAST 5" in found.message
    assert "kept for late joiners is KEEP_LAST 2 of" in found.message
    line = found.advice.partition("writers: ")[2]
    assert eval(line, {"Policy": Policy, "duration": duration}) == Policy.DurabilityService(
        duration(infinite=True), Policy.History.KeepLast(5), 100, -1, 5
    )


@pytest.mark.parametrize(
    ("rejected", "expected"),
    [
        ((("max_samples_per_instance", 7),), "info limited"),
        ((("max_instances", 7), ("max_samples_per_instance", 2)), "warning limited"),
    ],
)
def test_limits_below_what_is_written_are_found_once_for_each_topic(
    rejected: tuple[tuple[str, int], ...], expected: str
) -> None:
    full = GroupView("ships", "ships", "Ship", "S", "TRANSIENT", 1, 1, 1, "", 0, 0, 0, rejected, depth=3)
    nodes = tuple(msgspec.structs.replace(node(name), groups=(full,)) for name in ("n1", "n2"))
    (found,) = check_finds(DomainPicture((), nodes=nodes, participants=2), expected).findings
    assert found.nodes == ("n1", "n2")
    assert f"7 samples by {rejected[0][0]}" in found.message
    assert "Policy.DurabilityService(0, Policy.History.KeepLast(3), -1, -1, -1)" in found.advice


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"shown_later": 2}, "info reader-deviates"),
        ({"refused_older": 3, "shown_later": 2}, "warning reader-deviates"),
        ({"not_kept": 1}, "warning reader-deviates"),
        ({"repeated": 1}, "info reader-deviates"),
    ],
)
def test_readers_that_deviate_from_the_set_are_named(counts: dict[str, int], expected: str) -> None:
    reader, other = end("reader"), end("reader")
    view = DeviationView(reader.guid[:24] + "000001c1", "Ship", "ships", counts)
    nodes = (msgspec.structs.replace(node("n1", spaces=(space(),)), deviations=(view,)),)
    other = dataclasses.replace(other, guid="f" * 32)
    beside = dataclasses.replace(reader, partitions=("ships", "x"), guid=reader.guid[:24] + "f" * 8)
    found = check_finds(DomainPicture((reader, other, beside), nodes=nodes, participants=3), expected)
    (finding,) = found.findings
    assert finding.evidence == (reader,)
    assert "set of n1" in finding.message


def test_what_is_beyond_the_bounds_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis_module, "MAX_FINDINGS", 1)
    ends = (
        end("writer"),
        *(end("reader", durability=PERSISTENT) for _ in range(9)),
        end("reader", reliable=False),
    )
    found = diagnose(DomainPicture(ends, nodes=(node("n1"),), participants=2, left_out=3, faults=1))
    text = as_text(found)
    assert "1 finding more, not shown" in text
    assert "and 4 more readers" in text
    assert "3 endpoints not looked at" in text
    assert "1 message of nodes not understood" in text
    document = json.loads(envelope.document("doctor", as_data(found)))
    assert len(document["data"]["findings"][0]["readers"]) == 9


def test_text_of_others_reaches_the_terminal_harmless() -> None:
    evil = dataclasses.replace(end("writer", reliable=False), topic="\x1b[31m", name="\x07")
    text = as_text(diagnose(DomainPicture((evil,), nodes=(node("n1"),), participants=1)))
    assert "\x1b" not in text
    assert "\x07" not in text


def test_only_the_topics_that_are_wanted_are_looked_at() -> None:
    picture = DomainPicture((end("writer", reliable=False),), nodes=(node("n1"),), participants=1)
    check_finds(picture.only("Boat*"))
    check_finds(picture.only("Sh?p"), "warning reliability")


def test_many_endpoints_in_partitions_of_their_own_are_no_pairs() -> None:
    count = 4_000
    ends = [end("writer", partition=f"p{number}") for number in range(count)]
    ends += [end("reader", partition=f"p{number}", durability=PERSISTENT) for number in range(count)]
    picture = DomainPicture(
        (*ends, end("reader", partition="p4*")), nodes=(node("n1", spaces=(space(elements=("*.*",)),)),)
    )
    found = check_finds(picture, "error incompatible-durability")
    assert len(found.findings[0].evidence) == 2 * count
    assert len(as_text(found).splitlines()) < 20
    check_finds(dataclasses.replace(picture, endpoints=picture.endpoints[:count]))
    (nowhere,) = diagnose(
        dataclasses.replace(picture, endpoints=picture.endpoints[:count], nodes=())
    ).findings
    assert "partition 'p4' and 3995 more" in nowhere.message
