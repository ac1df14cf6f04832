"""Packed sets: nothing tells them from sets of objects but the memory that they take."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.events import AligneeRequest
from engine.core.messages import Epoch
from engine.dataset import group_set, living, reconciliation, sample_rows
from engine.dataset.blocks import Block, pack_samples
from engine.dataset.group_set import GroupSet
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.rateless import finished
from engine.dataset.sample import DATA, UNTIMED, Sample, make_sample
from engine.dataset.sample_rows import GatheredRows, SampleRows
from engine.runtime import stream
from engine.runtime.incoming import IncomingStreams
from tests.property.samples import DEPTHS, GROUPS, STATUSES, WRITERS, hash_keys_with, pack_early

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

depths = pytest.mark.parametrize("depth", DEPTHS)
KEYS = (*(b"key %d" % number for number in range(9)), b"", b"another key, which is longer")


@contextlib.contextmanager
def packing() -> Iterator[None]:
    """Here, sets are packed as soon as they have a few samples, and many of their instances collide."""
    with pytest.MonkeyPatch.context() as patch:
        hash_keys_with(patch, lambda key: zlib.crc32(key) % 5 + len(key))
        patch.setattr(group_set, "MAX_PACKED_BYTES", 3)
        pack_early(patch)
        yield


def numbered(sample: Sample) -> Sample:
    """The same; one without a source timestamp has the number that only this change of its writer has."""
    if not sample.sequence & UNTIMED:
        return sample
    number = UNTIMED | zlib.crc32(repr((sample.status, sample.key, sample.payload)).encode())
    return make_sample(sample.source_time_ns, sample.writer, *sample[4:], number)


def samples() -> st.SearchStrategy[Sample]:
    """Samples of many instances, most of them plain writes."""
    return st.builds(
        make_sample,
        st.integers(1, 9),
        st.sampled_from(WRITERS),
        st.sampled_from((DATA,) * 12 + STATUSES),
        st.sampled_from(KEYS),
        st.sampled_from((b"", b"x", b"yy", b"too large")),
        st.sampled_from((0, 0, 0, UNTIMED)),
    ).map(numbered)


lists = st.lists(samples(), max_size=12)


@dataclasses.dataclass
class Twins:
    """The same set twice: in objects, and packed."""

    loose: GroupSet
    packed: GroupSet

    @staticmethod
    def of(depth: int) -> Twins:
        loose = GroupSet(depth)
        with packing():
            return Twins(loose, GroupSet(depth))

    def do(self, what: str, *arguments: object) -> None:
        """An operation on both; it says and does the same."""
        before = self.packed.samples()
        here = list(before)
        said = getattr(self.loose, what)(*arguments)
        with packing():
            told = getattr(self.packed, what)(*arguments)
        if what == "raise_floor":
            said, told = sorted(said), sorted(told)
        assert said == told
        assert list(before) == here, "what was taken before stays as it was"
        with packing():
            self.check_alike()

    def check_alike(self) -> None:
        one, other = self.loose, self.packed
        assert sorted(one.samples()) == sorted(other.samples())
        assert len(other.samples()) == other.count == one.count
        assert one.summary() == other.summary()
        assert one.disposed == other.disposed
        assert one.keys() == other.keys()
        assert (one.instance_count, one.payload_bytes) == (other.instance_count, other.payload_bytes)
        assert one.floor_ns == other.floor_ns
        for key in KEYS:
            assert one.instance(key) == other.instance(key)
            assert one.writers(key) == other.writers(key)
            assert (key in one) == (key in other) == bool(one.instance(key))
            for time_ns, digest in {(s.source_time_ns, s.digest) for s in one.instance(key)}:
                assert one.holds(key, time_ns, digest)
                assert other.holds(key, time_ns, digest)
                assert not other.holds(key, time_ns, digest[::-1])
            for writer in WRITERS:
                for time_ns in (3, 6):
                    assert one.is_newest(key, time_ns, writer) == other.is_newest(key, time_ns, writer)


def arriving(made: list[Sample]) -> SampleRows:
    """Samples as a stream brings them."""
    return SampleRows((Block(pack_samples(made).data),) if made else ())


OPERATIONS = st.one_of(
    st.tuples(st.just("apply"), samples()),
    st.tuples(st.just("apply"), samples()),
    st.tuples(st.just("extend"), lists),
    st.tuples(st.just("extend"), lists.map(arriving)),
    st.tuples(st.just("extend"), st.lists(samples(), unique_by=lambda s: s.key).map(arriving)),
    st.tuples(st.just("remove_instance"), st.sampled_from(KEYS)),
    st.tuples(st.just("raise_floor"), st.integers(0, 8)),
)


@depths
@given(st.lists(OPERATIONS, max_size=14))
def test_packed_or_not_makes_no_difference(depth: int, operations: list[tuple[str, object]]) -> None:
    twins = Twins.of(depth)
    for operation in operations:
        twins.do(*operation)


def replayed(chance: random.Random) -> Iterator[tuple[str, object]]:
    """Operations on few instances that get many samples, most of them plain writes in order."""
    keys, span, now = KEYS[: chance.choice((1, 3, 11))], chance.choice((2, 60)), 0

    def some(count: int) -> list[Sample]:
        statuses = (DATA,) * chance.choice((12, 60)) + STATUSES
        return [
            make_sample(
                now + chance.randint(1, span),
                chance.choice(WRITERS),
                chance.choice(statuses),
                chance.choice(keys),
                chance.choice((b"", b"x", b"yy", b"yy", b"too large")[: chance.choice((4, 5))]),
                chance.choice((0, 1 << 63)),
            )
            for _ in range(count)
        ]

    made: list[Sample] = []
    for _ in range(60):
        now += chance.randint(0, 2)
        made += (few := some(chance.choice((1, 1, 1, 6))))
        if chance.random() < 0.2:  # newer ones than all, of each instance a few
            yield from [("remove_instance", key) for key in keys] if chance.random() < 0.5 else ()
            times = range(now + span, now + span + chance.choice((2 * len(keys), 24)))
            newest = [
                make_sample(at, chance.choice(WRITERS), DATA, keys[at % len(keys)], b"x") for at in times
            ]
            yield "extend", arriving(living.by_instance(newest))
            now = times.stop
        yield chance.choice(
            (
                *(("apply", each) for each in few),
                ("apply", chance.choice(made)),
                ("extend", few),
                ("extend", arriving(few)),
                *((("remove_instance", chance.choice(keys)),) if chance.random() < 0.2 else ()),
                *((("raise_floor", now - chance.randint(0, span)),) if chance.random() < 0.2 else ()),
            )
        )


@depths
def test_packed_histories_make_no_difference(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    packed_steps, kept_blocks, extend = 0, [], sample_rows.Histories.extend

    def counting(self: sample_rows.Histories, block: Block, places: Mapping[bytes, Sequence[int]]) -> None:
        kept_blocks.append(block)
        extend(self, block, places)

    monkeypatch.setattr(sample_rows.Histories, "extend", counting)
    for seed in range(12):
        twins = Twins.of(depth)
        for operation in replayed(random.Random(seed)):
            twins.do(*operation)
            rows = twins.packed.samples()
            found = list(living.instances(rows))
            assert len(found) == len(twins.packed.keys()), "the samples of an instance follow each other"
            assert all(history == sorted(history) for history in found)
            packed_steps += any(isinstance(part, GatheredRows) for part in rows.parts)
    assert packed_steps >= (100 if depth != 1 else 0)
    assert len(kept_blocks) >= (10 if depth != 1 else 0)


def filled(depth: int, count: int) -> GroupSet:
    """A set into which samples of 1,000 instances have come in turn."""
    subject = GroupSet(depth)
    for time_ns in range(1, count + 1):
        payload = time_ns.to_bytes(8) + bytes(92)
        key = (time_ns * 7919 % 1_000).to_bytes(4)
        subject.apply(make_sample(time_ns, WRITERS[0], DATA, key, payload))
    return subject


@pytest.mark.parametrize("depth", [0, 10])
def test_a_packed_history_takes_few_bytes(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,000 instances, samples come twice as often as KEEP_LAST keeps them, so blocks are replaced."""
    monkeypatch.setattr(group_set, "MAX_OBJECTS", 500)
    filled(depth, 5_000)  # what is imported for the first one is no part of it
    tracemalloc.start()
    try:
        subject = filled(depth, 20_000)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert subject.count == (20_000 if not depth else 10_000)
    assert taken <= 200 * subject.count


def twins_of(depth: int, made: list[list[Sample]]) -> Twins:
    """Both, after samples came in blocks and then some once more, one by one."""
    twins = Twins.of(depth)
    for part in made:
        twins.do("extend", arriving(part))
    for sample in made[0][::2] if made else ():
        twins.do("apply", make_sample(sample.source_time_ns + 3, WRITERS[1], DATA, sample.key, b"z"))
    return twins


blocks = st.lists(st.lists(samples(), min_size=1, max_size=9, unique_by=lambda s: s.key), max_size=3)


@depths
@given(blocks)
def test_a_packed_set_travels_as_the_other_does(depth: int, made: list[list[Sample]]) -> None:
    twins = twins_of(depth, made)
    qos = GroupQos(DurabilityKind.TRANSIENT, history_depth=depth)
    group = GroupDescription(GROUPS[0], TypeDescription("T", b"i", b"m", keyed=True), qos)
    begin = stream.StreamBegin(
        "all", "aligner", Epoch(3, "aligner"), (AligneeRequest("alignee", 7, "initial"),), 0, 0
    )
    for subject in (twins.loose, twins.packed):
        groups = [(stream.GroupBegin(group, subject.floor_ns), subject.samples())]
        streams = IncomingStreams("alignee")
        with packing():
            for batch in stream.batches(bytes(16), begin, groups):
                last = streams.receive(begin.aligner, batch, 0)
            assert last is not None
            assert last.is_whole
            arrived = last.data.groups[GROUPS[0]]
            Twins(subject, arrived).check_alike()


@depths
@given(blocks, st.integers(1, 5), st.data())
def test_samples_that_were_taken_can_be_cut_and_picked(
    depth: int, made: list[list[Sample]], size: int, data: st.DataObject
) -> None:
    twins = twins_of(depth, made)
    ours, theirs = twins.loose.samples(), twins.packed.samples()
    salt = bytes(16)
    identities = [
        sorted(finished(reconciliation.identities([(GROUPS[0], each)], salt))) for each in (ours, theirs)
    ]
    assert identities[0] == identities[1]
    everything = list(theirs)
    assert [sample for part in theirs.split(size) for sample in part] == everything
    places = [(sample.source_time_ns, sample.digest) for sample in everything]
    assert [place for some in theirs.places(size) for place in some] == places
    assert all(len(some) <= size for some in theirs.places(size))
    in_blocks = [sample for block in theirs.blocks(size) for sample in block.samples()]
    assert living.by_instance(in_blocks) == living.by_instance(everything), "those of each instance in order"
    assert list(theirs.each_digest()) == [sample.digest for sample in everything]
    assert theirs.payload_bytes == sum(len(sample.payload) for sample in everything)
    assert theirs.newest_ns() == max((sample.source_time_ns for sample in everything), default=0)
    assert list(theirs.after(4)) == [sample for sample in everything if sample.source_time_ns > 4]
    numbers = sorted(data.draw(st.sets(st.integers(0, max(0, len(everything) - 1))))) if everything else []
    picked = theirs.at(numbers)
    assert picked == [everything[number] for number in numbers]
    left = theirs.without({sample.digest for sample in picked})
    assert list(left) == [sample for sample in everything if sample not in picked]
    copied = GroupSet(depth)
    with packing():
        copied.extend(left)
    assert sorted(copied.samples()) == sorted(left)


@depths
def test_many_instances_are_packed_and_those_touched_are_not(depth: int) -> None:
    """With the bounds that hold in a node: what is packed grows, is written again, and goes."""
    made = [make_sample(t, WRITERS[0], DATA, t.to_bytes(4), bytes(8)) for t in range(1, 30_001)]
    subject = GroupSet(depth)
    for sample in made:
        subject.apply(sample)
    loose = group_set.MAX_OBJECTS
    assert len(subject.samples().parts[-1].samples()) <= loose
    assert [subject.instance(sample.key) for sample in made[::500]] == [(sample,) for sample in made[::500]]
    newer = [s._replace(source_time_ns=s.source_time_ns + 40_000, digest=s.digest[::-1]) for s in made[::3]]
    for sample in newer:
        assert subject.apply(sample)[1] == ([] if depth != 1 else [made[sample.source_time_ns - 40_001]])
    expected = {*newer, *(made if depth != 1 else (s for n, s in enumerate(made) if n % 3))}
    assert set(subject.samples()) == expected
    for sample in made:
        subject.remove_instance(sample.key)
    assert subject.summary().count == subject.summary().digest == subject.payload_bytes == 0
