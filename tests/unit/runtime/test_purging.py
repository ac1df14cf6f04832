"""What a node forgets when its master does."""

from __future__ import annotations

import types

import pytest

from engine.core.name_spaces import Durability, Group
from engine.dataset.dataset import DataSet
from engine.dataset.groups import KEEP_ALL, DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.runtime.housekeeping import PurgedTombstones
from engine.runtime.name_space_data import NameSpaceData

GROUP = GroupDescription(
    Group("stock", "Reading", "type"),
    TypeDescription("depot.Reading", b"", b"", keyed=True),
    GroupQos(DurabilityKind.PERSISTENT, KEEP_ALL, 0, by_source_timestamp=True),
)
STATUS = {"S": DATA, "D": DISPOSE, "U": UNREGISTER}


def samples(text: str, key: bytes = b"k") -> list[Sample]:
    """Samples of one instance, a letter and a source time each."""
    return [make_sample(int(word[1:]), b"w" * 16, STATUS[word[0]], key, b"payload") for word in text.split()]


@pytest.mark.parametrize(
    ("here", "last_of_master", "is_forgotten"),
    [
        ("S1 D2", "D2", True),
        ("S0 S1 D2", "D2", True),
        ("S1 D2 U4", "U4", True),
        ("S1 D2 S3 U4", "U4", False),
        ("S1 D2 S3 D4 U5", "U5", True),
        ("S1 U4", "U4", False),
        ("S1 D2 S5", "D2", False),
        ("", "D2", False),
    ],
)
def test_what_is_not_disposed_here_is_not_forgotten(
    here: str, last_of_master: str, is_forgotten: bool
) -> None:
    state = types.SimpleNamespace(policy=types.SimpleNamespace(durability=Durability.PERSISTENT))
    data = NameSpaceData(state)  # type: ignore[arg-type]  # its policy is all that counts here
    held = samples(here)
    for sample in held:
        data.open_group(GROUP).apply(sample)
    data.purge(GROUP, b"k", samples(last_of_master)[0].digest)
    assert list(data.open_group(GROUP).instance(b"k")) == ([] if is_forgotten else held)


@pytest.mark.parametrize("others", [0, 9], ids=["a gift", "a large set"])
def test_what_is_older_than_a_purge_arrives_disposed(others: int) -> None:
    purged, arrived = PurgedTombstones(), DataSet()
    purged.add(GROUP.group, [samples("S1 D3 U4", key) for key in (b"k", b"new", b"x", b"y")], 0.0)
    group_set = arrived.open_described(GROUP)
    group_set.extend([*samples("S2"), *samples("S5", b"new")])
    group_set.extend([sample for number in range(others) for sample in samples("S1", b"%d" % number)])
    purged.join(arrived)
    assert group_set.disposed == {b"k"}
    assert group_set.count == others + 3
