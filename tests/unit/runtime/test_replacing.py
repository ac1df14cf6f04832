"""What readers are shown of a set that took the place of theirs, in letters."""

from __future__ import annotations

import types

import pytest

from engine.core.name_spaces import Group
from engine.dataset.dataset import DataSet
from engine.dataset.groups import KEEP_ALL, DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.living import whole
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.runtime.name_space_data import NameSpaceData, dispose_of
from engine.runtime.replacing import replaced

GROUP = Group("stock", "Reading", "type")
STATUS = {"S": DATA, "D": DISPOSE, "U": UNREGISTER}
LETTER = {status: letter for letter, status in STATUS.items()}


def set_of(text: str) -> DataSet:
    """Samples of one instance, a letter and a source time each."""
    data = DataSet()
    group_set = data.open_group(GROUP, KEEP_ALL)
    for word in text.split():
        group_set.apply(make_sample(int(word[1:]), b"w" * 16, STATUS[word[0]], b"k", b"payload"))
    return data


def words(samples: list[Sample]) -> str:
    return " ".join(f"{LETTER[each.status]}{each.source_time_ns}" for each in samples)


def difference(before: DataSet, after: DataSet) -> list[Sample]:
    """As `NameSpaceData.replace` makes it for Catchup, with its dispose at time 99."""
    if not after.groups[GROUP].count:
        return [dispose_of(b"k", 99)]
    seen = set(before.groups[GROUP].samples().each_digest())
    return list(after.groups[GROUP].samples().without(seen))


@pytest.mark.parametrize(
    ("before", "after", "disposes_all", "new", "instead", "told"),
    [
        ("S1", "S1", False, "", "", ""),
        ("S1", "S1 S3", False, "S3", "", "S3"),
        ("S1 S7", "S1", False, "", "S1", "U99 S1"),
        ("S1 S7", "S1 S3", False, "", "S3", "U99 S1 S3"),
        ("S1 D7", "S1", False, "", "S1", "U99 S1"),
        ("S1 D7", "S1 D3", False, "", "D3", "U99 S1 D3"),
        ("S1 S7 U8", "S1 S7", False, "", "", ""),
        ("S1 S7", "S1 S9", False, "", "S9", "U99 S1 S9"),
        ("S1 S7", "", False, "", "D7", "D99"),
        ("S1 S7", "S1", True, "", "D7 S1", "D99 S1"),
        ("S1", "S1", True, "", "D1 S1", "D99 S1"),
        ("", "S1", True, "S1", "", "S1"),
    ],
)
def test_what_readers_by_source_time_are_shown_and_clients_told(
    before: str, after: str, disposes_all: bool, new: str, instead: str, told: str
) -> None:
    old, target = set_of(before), set_of(after)
    described = {GROUP: description(by_source=True)}
    shown = replaced(
        old, target, {GROUP: difference(old, target)}, described, 99, disposes_all=disposes_all, tells=True
    )
    assert words(shown.new.get(GROUP, [])) == new
    assert words(shown.instead.get(GROUP, [])) == instead
    assert words(shown.told.get(GROUP, [])) == told
    if instead:
        assert shown.times[GROUP] == {b"k": max(int(word[1:]) for word in before.split())}


@pytest.mark.parametrize(
    ("before", "after", "new", "told"),
    [
        ("S1 D7", "S1", "S1", "U99 S1"),
        ("S1 S7", "S1 S3", "S3", "U99 S1 S3"),
        ("S1 S7", "", "D99", "D99"),
        ("S1", "S1", "", ""),
    ],
)
def test_what_readers_by_reception_are_shown_and_clients_told(
    before: str, after: str, new: str, told: str
) -> None:
    old, target = set_of(before), set_of(after)
    described = {GROUP: description(by_source=False)}
    shown = replaced(
        old, target, {GROUP: difference(old, target)}, described, 99, disposes_all=False, tells=True
    )
    assert words(shown.new.get(GROUP, [])) == new
    assert not shown.instead
    assert words(shown.told.get(GROUP, [])) == told


def test_what_replaces_an_instance_goes_one_way() -> None:
    """Two writers may overtake each other: all that is given of an instance must come from one of them."""
    state = types.SimpleNamespace(policy=types.SimpleNamespace(persists=True))
    data = NameSpaceData(state)  # type: ignore[arg-type]  # its policy is all that counts here
    data.working, other = DataSet(), DataSet()
    for each in (data.working, other):
        for number in range(3):
            sample = make_sample(number, b"w" * 16, DATA, b"%d" % number, b"payload")
            each.open_group(GROUP, KEEP_ALL).apply(sample)
    described = {GROUP: description(by_source=False)}
    difference, _ = data.replace(other, None, 99, lambda _: True, described)
    steps = [
        (step.sample.key, step.sample.status, step.is_written)
        for step in whole(difference[GROUP], frozenset((b"w" * 16,)))
    ]
    assert steps == [(b"%d" % number, status, True) for number in range(3) for status in (DISPOSE, DATA)]


def description(*, by_source: bool) -> GroupDescription:
    qos = GroupQos(
        durability=DurabilityKind.PERSISTENT, by_source_timestamp=by_source, history_depth=KEEP_ALL
    )
    return GroupDescription(GROUP, TypeDescription("depot.Reading", b"", b"", keyed=True), qos)
