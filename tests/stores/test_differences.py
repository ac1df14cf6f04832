"""Whatever differs between stores is found, and nothing else is."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("duckdb", reason="the local engine needs the extra `sql`")
pytest.importorskip("cyclonedds", reason="fields of our stores need the extra `dds`")

from engine.dataset.groups import GroupDescription
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.store.interface import DamageLog
from ospltool.stores.describe import group_code
from ospltool.stores.diff.causes import Cause
from ospltool.stores.diff.compare import CompareOptions, compare
from ospltool.stores.diff.report import ReportData, Verdict
from ospltool.stores.diff.sides import ComparedPart, DiffError
from ospltool.stores.model import GroupName, StoreUnreadable
from ospltool.stores.opening import open_reader
from ospltool.stores.snapshot import write_snapshot
from tests.stores.making import BASE_NS, LAYOUTS, Held, Message, Version, write_kv, write_kvmt, write_xml
from tests.stores.own_stores import described, write_ours

GROUPS = (described("a"), described("b"), described("c"))
Content = dict[GroupDescription, set[Sample]]
Place = tuple[str, str]


def sample(key: int, at: int, payload: int = 0, status: int = DATA) -> Sample:
    return make_sample(BASE_NS + at, bytes(16), status, key.to_bytes(2), payload.to_bytes(4), sequence=at)


BASE = [sample(key, at) for key in range(6) for at in range(3)]


def remove(content: Content, group: int, pick: int) -> None:
    """It is only in the others."""
    held = content[GROUPS[group]]
    if held:
        held.remove(sorted(held)[pick % len(held)])


def add(content: Content, group: int, pick: int) -> None:
    """It is only here: a later sample, or an instance that nobody has."""
    content[GROUPS[group]].add(sample(pick % 9, 100 + pick))


def change(content: Content, group: int, pick: int) -> None:
    """The same write has other content."""
    held = content[GROUPS[group]]
    if held:
        old = sorted(held)[pick % len(held)]
        held.remove(old)
        held.add(sample(int.from_bytes(old.key), old.sequence, 1_000 + pick))


def dispose(content: Content, group: int, pick: int) -> None:
    """It is disposed here only."""
    content[GROUPS[group]].add(sample(pick % 6, 50, status=DISPOSE))


def move(content: Content, group: int, pick: int) -> None:
    """It is in another group: count, sum and exclusive or of all digests stay what they were."""
    held = content[GROUPS[group]]
    if held:
        moved = sorted(held)[pick % len(held)]
        held.remove(moved)
        content[GROUPS[(group + 1) % 3]] ^= {moved}


def swap(content: Content, group: int, pick: int) -> None:
    """Two groups change places: all digests of the store together are the same."""
    one, other = GROUPS[group], GROUPS[(group + 1 + pick % 2) % 3]
    content[one], content[other] = content[other], content[one]


PLANTED = (remove, add, change, dispose, move, swap)
planted = st.tuples(st.sampled_from(PLANTED), st.integers(0, 2), st.integers(0, 40))
plans = st.lists(st.lists(planted, max_size=4), min_size=1, max_size=2)


def fresh(most: int = 3) -> Content:
    """What all stores hold at first: of each instance at most so many samples."""
    third = {sample(1, 500 + at) for at in range(most)}
    kept = [one for one in BASE if one.sequence < most]
    return {GROUPS[0]: set(kept), GROUPS[1]: set(kept[: len(kept) // 2]), GROUPS[2]: third}


def truth(contents: Sequence[Content]) -> set[Place]:
    """The instances that are not the same everywhere, one by one."""
    found = set()
    for group in GROUPS:
        for key in {one.key for content in contents for one in content[group]}:
            held = {frozenset(one for one in content[group] if one.key == key) for content in contents}
            if len(held) > 1:
                found.add((group.group.partition, key.hex()))
    return found


def found_in(report: ReportData) -> set[Place]:
    return {(one.partition, one.key) for one in report.instances}


def reports(stores: Sequence[str], *, contents: bool = False) -> ReportData:
    """Everything that differs."""
    return compare(stores, CompareOptions(None, contents))


@settings(max_examples=settings().max_examples // 3)
@given(
    st.lists(st.lists(planted, max_size=4), min_size=1, max_size=2), st.booleans(), st.sampled_from([1, 3])
)
@example([[(move, 0, 3)]], False, 1)
@example([[(swap, 0, 0)]], True, 1)
@example([[(remove, 0, 0)], [(remove, 0, 0)]], False, 1)
@example([[(change, 0, 0)], []], False, 1)
@example([[(dispose, 0, 15), (swap, 0, 0)]], False, 3)
def test_every_planted_difference_is_found_and_nothing_else(
    planned: list[list[tuple[object, int, int]]], through_snapshot: bool, most: int
) -> None:
    contents = [fresh(most)]
    for plan in planned:
        content = fresh(most)
        for plant, group, pick in plan:
            assert callable(plant)
            plant(content, group, pick)
        contents.append(content)
    expected = truth(contents)
    with tempfile.TemporaryDirectory() as directory:
        stores = [str(write_ours(Path(directory, str(n)), content)) for n, content in enumerate(contents)]
        if through_snapshot:
            reader = open_reader(Path(stores[0]))
            write_snapshot(reader, Path(directory, "snapshot"), reader.facts.sets, DamageLog())
            reader.close()
            stores[0] = str(Path(directory, "snapshot"))
        report = reports(stores)
    assert found_in(report) == expected
    assert report.differing == len(expected)
    assert (report.verdict is Verdict.DIFFER) == bool(expected)
    assert Cause.UNKNOWN not in report.causes
    for one in report.groups:
        here = {key for partition, key in expected if partition == one.partition}
        assert one.differing == len(here)
        keys = {each.key for content in contents for each in content[described(one.partition)]}
        assert one.equal == len(keys) - len(here)
        assert one.samples == tuple(len(content[described(one.partition)]) for content in contents), (
            "every sample is counted"
        )


def test_one_group_number_is_that_of_one_group() -> None:
    names = [("a", "b", "c"), ("a.b", "", "c"), ("a", "b.c", ""), ("", "a", "b"), ('a"', "b", "c")]
    assert len({group_code(GroupName(*name)) for name in names}) == len(names)


# What is no difference.

WRITES = (
    Message(1, text="one"),
    Message(2, text="", time_ns=BASE_NS + 5),
    Message(3, status=DATA | DISPOSE, time_ns=BASE_NS + 6),
)


def test_the_same_writes_are_the_same_in_every_layout_whatever_was_in_their_padding(tmp_path: Path) -> None:
    noisy = tuple(
        dataclasses.replace(one, padding=0xA5, allocated_ns=77_000_000_000) for one in reversed(WRITES)
    )
    stores = [str(write(tmp_path / name, Version((Held(WRITES),)))) for name, write in LAYOUTS.items()]
    stores.append(str(write_kv(tmp_path / "noisy", Version((Held(noisy),), version=3, quality_ns=1))))
    report = reports(stores)
    assert report.verdict is Verdict.EQUAL
    assert [side.samples for side in report.sides] == [3, 3, 3, 3]


def test_a_group_without_samples_is_no_difference_to_a_store_that_does_not_know_it(tmp_path: Path) -> None:
    one = write_kv(tmp_path / "a", Version((Held(WRITES), Held((), topic="Empty"))))
    other = write_kv(tmp_path / "b", Version((Held(WRITES),)))
    report = reports([str(one), str(other)])
    assert report.verdict is Verdict.EQUAL
    assert {group.topic: group.verdict for group in report.groups} == {
        "Items": Verdict.EQUAL,
        "Empty": Verdict.MISSING,
    }


# Causes.


@dataclasses.dataclass(frozen=True)
class Case:
    """Two stores, and what the difference between them comes from."""

    left: Version
    right: Version
    cause: Cause
    evidence: str
    damaged: int = 0


OTHER = Message(9, time_ns=BASE_NS + 50)
LATER = Message(1, text="later", time_ns=BASE_NS + 20, sequence=2)


def both(left: tuple[Message, ...], right: tuple[Message, ...], **held: int) -> tuple[Version, Version]:
    return Version((Held(left, **held),)), Version((Held(right, **held),))  # type: ignore[arg-type]  # numbers only


CASES = {
    "damage": Case(*both(WRITES, WRITES), Cause.DAMAGE, "1 record of the group cannot be read in B", 1),
    "policy": Case(
        Version((Held(WRITES),), name_space="here"),
        Version((Held(WRITES, partition="p"),), name_space="there"),
        Cause.POLICY,
        "keeps nothing of the name-space",
    ),
    "never aligned": Case(*both((*WRITES, OTHER), WRITES), Cause.NEVER_ALIGNED, "A has it from"),
    "nothing of it": Case(*both(WRITES, ()), Cause.NEVER_ALIGNED, "B has nothing of the group"),
    "disposed": Case(
        *both((Message(1), Message(1, status=DISPOSE, time_ns=BASE_NS + 9)), (Message(1),), cleanup_s=99),
        Cause.DISPOSED,
        "A knows the dispose of",
    ),
    "cleanup delay": Case(
        *both((OTHER, Message(1, status=DISPOSE)), (OTHER,)), Cause.CLEANUP_DELAY, "due after 0 s"
    ),
    "history depth": Case(
        *both((Message(1), LATER), (LATER,)), Cause.HISTORY_DEPTH, "1 older than the 1 that the depth keeps"
    ),
    "history depth, and a writer left": Case(
        *both((Message(1), LATER), (LATER, Message(1, status=UNREGISTER, time_ns=BASE_NS + 21))),
        Cause.HISTORY_DEPTH,
        "1 older than the 1 that the depth keeps",
    ),
    "unregistered": Case(
        *both((*WRITES, Message(1, status=UNREGISTER, time_ns=BASE_NS + 1)), WRITES),
        Cause.UNREGISTERED,
        "the data in B is the same",
    ),
    "stale": Case(*both((OTHER, *WRITES[:2]), (OTHER, *WRITES[:1])), Cause.STALE, "but other data of"),
    "a gap": Case(
        *both((Message(1), LATER), (LATER,), depth=0), Cause.STALE, "has later data of the instance"
    ),
    "content": Case(
        *both((Message(1, text="x"),), (Message(1, text="y"),)), Cause.CONTENT, "with different content"
    ),
}


@pytest.mark.parametrize("mirrored", [False, True], ids=["as it is", "mirrored"])
@pytest.mark.parametrize("name", CASES)
def test_a_difference_tells_its_cause_and_why(name: str, mirrored: bool, tmp_path: Path) -> None:
    case = CASES[name]
    left = str(write_kv(tmp_path / "left", case.left))
    right = str(write_kv(tmp_path / "right", case.right, damaged=case.damaged))
    report = reports([right, left] if mirrored else [left, right])
    assert report.causes, "there is a difference"
    assert set(report.causes) == {case.cause.value}
    evidence = report.instances[0].evidence
    if mirrored:
        evidence = evidence.translate(str.maketrans("AB", "BA"))
    if case.cause is not Cause.POLICY or not mirrored:
        assert case.evidence in evidence


# Reports.


def test_of_three_stores_the_odd_one_out_is_named(tmp_path: Path) -> None:
    usual, odd = Version((Held(WRITES),)), Version((Held((*WRITES, OTHER)),))
    stores = [
        str(write_kv(tmp_path / "a", usual)),
        str(write_xml(tmp_path / "b", odd)),
        str(write_kvmt(tmp_path / "c", usual)),
    ]
    report = reports(stores)
    assert (report.odd, report.instances[0].odd, report.groups[0].odd) == ("B", "B", "B")
    assert report.groups[0].only == (0, 1, 0)
    assert report.groups[0].absent == (1, 0, 1)
    assert [one.stores for one in report.instances[0].samples] == ["B"]


def test_where_three_differ_nobody_is_odd(tmp_path: Path) -> None:
    stores = [
        str(write_kv(tmp_path / text, Version((Held((Message(1, text=text),)),)))) for text in ("x", "y", "z")
    ]
    report = reports(stores, contents=True)
    assert (report.odd, report.instances[0].odd) == ("", "")
    assert [(one.path, one.values) for one in report.instances[0].fields] == [("text", ("x", "y", "z"))]
    assert report.instances[0].key_fields == {"id": 1}


def test_what_is_not_listed_is_counted(tmp_path: Path) -> None:
    many = tuple(Message(number) for number in range(30))
    stores = [
        str(write_kv(tmp_path / "a", Version((Held(many),)))),
        str(write_kv(tmp_path / "b", Version((Held(()),)))),
    ]
    report = compare(stores, CompareOptions(instances=7))
    assert (len(report.instances), report.differing, report.left_out) == (7, 30, 23)


def test_little_memory_gives_the_same_report(tmp_path: Path) -> None:
    content = {GROUPS[0]: [sample(key, at) for key in range(500) for at in range(50)]}
    less = {GROUPS[0]: content[GROUPS[0]][7:-5]}
    stores = [str(write_ours(tmp_path / "a", content)), str(write_ours(tmp_path / "b", less))]
    wanted = compare(stores, CompareOptions(None))
    assert wanted.differing == 2
    assert compare(stores, CompareOptions(None, memory_bytes=64 << 20)) == wanted


def test_what_can_not_be_compared_is_refused(tmp_path: Path) -> None:
    store = str(write_kv(tmp_path / "a", Version((Held(WRITES),)), Version((Held(WRITES),), version=1)))
    with pytest.raises(DiffError, match="2 to 26 stores"):
        compare([store], CompareOptions())
    with pytest.raises(DiffError, match="2 to 26 stores"):
        compare([store] * 27, CompareOptions())
    with pytest.raises(StoreUnreadable, match="PATH@NUMBER"):
        compare([f"{store}@0,1", store], CompareOptions())
    with pytest.raises(StoreUnreadable, match="there is no set 7"):
        compare([f"{store}@7", store], CompareOptions())
    assert reports([f"{store}@0", f"{store}@1"]).verdict is Verdict.EQUAL


def test_stores_with_damage_that_agree_otherwise_are_not_called_equal(tmp_path: Path) -> None:
    stores = [str(write_kv(tmp_path / name, Version((Held(WRITES),)), damaged=1)) for name in ("a", "b")]
    report = reports(stores)
    assert report.verdict is Verdict.UNREADABLE
    assert [side.damaged for side in report.sides] == [1, 1]
    assert report.groups[0].verdict is Verdict.UNREADABLE
    assert report.differing == 0


def test_a_group_whose_topic_cannot_be_read_is_damaged_and_not_missing(tmp_path: Path) -> None:
    write_kv(tmp_path / "a", Version((Held(WRITES),)))
    write_xml(tmp_path / "b", Version((Held(WRITES),)))
    next((tmp_path / "b").glob("*/*_meta.xml")).write_bytes(b"\xff<<")
    for names in (["a", "b"], ["b", "a"], ["b", "b"]):
        report = reports([str(tmp_path / name) for name in names])
        (group,) = report.groups
        assert group.samples == tuple(len(WRITES) if name == "a" else 0 for name in names)
        assert group.damaged == tuple(int(name == "b") for name in names)
        assert report.causes == ({"damage": group.differing} if "a" in names else {})
        assert bool(group.type_name) == ("a" in names)


@pytest.mark.parametrize("left", ComparedPart)
def test_what_a_snapshot_could_not_take_over_is_damage(left: ComparedPart, tmp_path: Path) -> None:
    """Also where a part of the samples is compared."""
    whole = write_kv(tmp_path / "a", Version((Held(WRITES),)))
    reader = open_reader(write_kv(tmp_path / "b", Version((Held(WRITES[:1]),)), damaged=1))
    write_snapshot(reader, tmp_path / "snapshot", list(reader.facts.current()), DamageLog())
    reader.close()
    stores = [str(whole), str(tmp_path / "snapshot")]
    report = compare(stores, CompareOptions(None, left=left))
    assert report.groups[0].damaged == (0, 1)
    assert set(report.causes) == {"damage"}
    assert [side.damaged for side in report.sides] == [0, 1]
