"""Streams: a set arrives whole and unchanged, or not at all (every batch damaged, lost, moved, made up)."""

from __future__ import annotations

import itertools
import json
import struct
import zlib

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.core.events import AligneeRequest
from engine.core.messages import Epoch
from engine.core.name_spaces import Group
from engine.dataset import blocks
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import NO_FLOOR
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.dataset.sample_rows import SampleRows
from engine.runtime import stream
from engine.runtime.incoming import IncomingStream, IncomingStreams
from engine.runtime.stream import GroupBegin, StreamBegin, StreamEnd, StreamFault, Unpacker
from tests.property.samples import GROUPS, contents, samples
from tests.property.values import values

NODE = "alignee"
NUMBER = bytes(range(16))
BEGIN = StreamBegin("all", "aligner", Epoch(3, "aligner"), (AligneeRequest(NODE, 7, "initial"),), 0, 0)
DEPTH = 2


def description(group: Group) -> GroupDescription:
    """A group with some type and QoS."""
    qos = GroupQos(DurabilityKind.TRANSIENT, history_depth=DEPTH)
    return GroupDescription(group, TypeDescription("T", b"information", b"mapping", keyed=True), qos)


def data_set(arrived: list[tuple[Group, Sample]], floors: dict[Group, int] | None = None) -> DataSet:
    """A set into which these samples came."""
    result = DataSet()
    for group, sample in arrived:
        result.open_group(group, DEPTH).apply(sample)
    for group, floor_ns in (floors or {}).items():
        result.open_group(group, DEPTH).raise_floor(floor_ns)
    return result


def sent(data: DataSet, batch_bytes: int, number: bytes = NUMBER) -> list[bytes]:
    """The batches of a set."""
    groups = [(GroupBegin(description(g), part.floor_ns), part.samples()) for g, part in data.groups.items()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BATCH_BYTES", batch_bytes)
        return list(stream.batches(number, BEGIN, groups))


def received(batches: list[bytes], streams: IncomingStreams | None = None) -> IncomingStream | None:
    """The stream that became whole; None when none did. A fault ends it, as in a node."""
    streams = streams or IncomingStreams(NODE)
    for batch in batches:
        incoming = streams.receive(BEGIN.aligner, batch, 0)
        if incoming is not None and incoming.is_whole:
            return incoming
    return None


def check_same(incoming: IncomingStream | None, data: DataSet) -> None:
    """The whole set has arrived."""
    assert incoming is not None
    assert incoming.begin == BEGIN
    assert incoming.data.summary().same_content(data.summary())
    assert incoming.samples == data.summary().count
    arrived, original = (
        {group: (set(part.samples()), part.floor_ns) for group, part in each.groups.items()}
        for each in (incoming.data, data)
    )
    assert arrived == original


def whole_or_none(batches: list[bytes]) -> IncomingStream | None:
    """The stream that became whole; None when there was a fault, too. Nothing else may happen."""
    try:
        return received(batches)
    except StreamFault:
        return None


def check_whole_or_nothing(batches: list[bytes], data: DataSet) -> None:
    """Whatever came, it is nothing or the whole set."""
    incoming = whole_or_none(batches)
    if incoming is not None:
        assert incoming.data.summary().same_content(data.summary())
        assert incoming.begin.name_space == BEGIN.name_space


SIZES = st.sampled_from((1, 100, 1 << 20))


@given(contents(), st.dictionaries(st.sampled_from(GROUPS), st.integers(0, 6)), SIZES)
def test_a_set_arrives_as_it_was_sent(
    arrived: list[tuple[Group, Sample]], floors: dict[Group, int], size: int
) -> None:
    data = data_set(arrived, floors)
    check_same(received(sent(data, size)), data)


def test_a_large_sample_goes_in_pieces() -> None:
    large = make_sample(1, b"w" * 16, DATA, b"k", bytes(10 * stream.BATCH_BYTES))
    data = data_set([(GROUPS[0], large)])
    pieces = sent(data, stream.BATCH_BYTES)
    assert max(map(len, pieces)) < 3 * stream.BATCH_BYTES
    check_same(received(pieces), data)
    del pieces[3]
    assert whole_or_none(pieces) is None


@given(values(StreamBegin), values(GroupBegin))
def test_whatever_is_said_of_a_set_arrives(begin: StreamBegin, group: GroupBegin) -> None:
    unpacker = Unpacker()
    items = [
        item
        for batch in stream.batches(NUMBER, begin, [(group, SampleRows())])
        for item in unpacker.items(batch)
    ]
    assert items == [begin, (group, None), StreamEnd(0, 0)]


@given(contents(6), SIZES, st.data())
def test_one_byte_changed_is_noticed_or_does_no_harm(
    arrived: list[tuple[Group, Sample]], size: int, data: st.DataObject
) -> None:
    original = data_set(arrived)
    batches = sent(original, size)
    which = data.draw(st.integers(0, len(batches) - 1))
    at = data.draw(st.integers(0, len(batches[which]) - 1))
    mask = data.draw(st.integers(1, 255))
    damaged = bytearray(batches[which])
    damaged[at] ^= mask
    check_whole_or_nothing([*batches[:which], bytes(damaged), *batches[which + 1 :]], original)


def test_every_byte_of_a_batch_counts() -> None:
    kinds = (DATA, DISPOSE, UNREGISTER, DATA | DISPOSE)
    made = [make_sample(t, b"w" * 16, status, bytes([t]), b"payload", t) for t, status in enumerate(kinds)]
    original = data_set([(GROUPS[0], sample) for sample in made])
    batches = sent(original, 1)
    assert len(batches) > 3
    for which, at in [(which, at) for which, batch in enumerate(batches) for at in range(len(batch))]:
        damaged = bytearray(batches[which])
        damaged[at] ^= (0x01, 0x80, 0xFF)[at % 3]
        assert whole_or_none([*batches[:which], bytes(damaged), *batches[which + 1 :]]) is None


@given(contents(8), st.data())
def test_a_cut_batch_is_a_fault(arrived: list[tuple[Group, Sample]], data: st.DataObject) -> None:
    batches = sent(data_set(arrived), 100)
    which = data.draw(st.integers(0, len(batches) - 1))
    at = data.draw(st.integers(0, len(batches[which]) - 1))
    with pytest.raises(StreamFault):
        received([*batches[:which], batches[which][:at]])


@given(contents(8).filter(lambda arrived: len({g for g, _ in arrived}) > 1), st.data())
def test_a_missing_or_repeated_or_moved_batch_is_a_fault_and_the_set_is_asked_for_again(
    arrived: list[tuple[Group, Sample]], data: st.DataObject
) -> None:
    original = data_set(arrived)
    batches = sent(original, 1)
    which = data.draw(st.integers(1, len(batches) - 2))
    wrong = data.draw(
        st.sampled_from(
            [
                batches[:which] + batches[which + 1 :],
                batches[: which + 1] + batches[which:],
                [*batches[:which], *reversed(batches[which:])],
            ]
        )
    )
    streams = IncomingStreams(NODE)
    with pytest.raises(StreamFault):
        received(wrong, streams)
    assert received(batches[1:], streams) is None
    check_same(received(sent(original, 100, b"n" * 16), streams), original)


def test_the_store_shares_the_payloads_of_large_samples_with_the_set() -> None:
    large = [make_sample(number, b"w" * 16, DATA, b"%d" % number, bytes(1 << 20)) for number in range(1, 4)]
    incoming = received(sent(data_set([(GROUPS[0], sample) for sample in large]), stream.BATCH_BYTES))
    assert incoming is not None
    kept = {id(sample.payload) for sample in incoming.data.groups[GROUPS[0]].samples()}
    assert kept == {id(sample.payload) for _, samples in incoming.fresh for sample in samples}


@given(contents(6))
def test_a_stream_without_its_end_is_nothing(arrived: list[tuple[Group, Sample]]) -> None:
    batches = sent(data_set(arrived), 1)
    assert received(batches[:-1]) is None


@given(contents(6), contents(6))
def test_streams_may_be_mixed(left: list[tuple[Group, Sample]], right: list[tuple[Group, Sample]]) -> None:
    ours, theirs = data_set(left), data_set(right)
    streams = IncomingStreams(NODE)
    pairs = itertools.zip_longest(sent(ours, 1), sent(theirs, 1, b"n" * 16))
    done = [
        i for pair in pairs for b in pair if b and (i := streams.receive(BEGIN.aligner, b, 0)) and i.is_whole
    ]
    assert len(done) == 2
    assert {s.data.summary().digest for s in done} == {ours.summary().digest, theirs.summary().digest}


def as_json(value: object) -> bytes:
    """A value as a record carries it."""
    return json.dumps(msgspec.to_builtins(value)).encode()


def made_up(kind: int, record: bytes) -> bytes:
    """A record as it stands in a batch."""
    return struct.pack("<BI", kind, len(record)) + record


def packed(sample: Sample) -> bytes:
    """A sample as it stands in a batch."""
    return made_up(3, blocks.pack_samples([sample]).data)


def batch_of(body: bytes, index: int = 0, number: bytes = NUMBER) -> bytes:
    """A batch whose checksum is right, whatever is in it."""
    return struct.pack("<4sBB16sII", b"OSPL", 2, 0, number, index, zlib.crc32(body)) + body


OURS = sent(DataSet(), 1)[0]
OPENING = OURS[struct.calcsize("<4sBB16sII") :]
OPENING = OPENING[: struct.calcsize("<BI") + struct.unpack_from("<BI", OPENING)[1]]
"""The first record of a stream that is for us."""
NESTED = b"[" * 100_000
RECORDS = st.lists(
    st.builds(made_up, st.integers(0, 5), st.binary(max_size=60) | values(GroupBegin).map(as_json)),
    max_size=4,
)


@given(st.binary() | st.builds(batch_of, st.binary(), st.integers(0, 2)))
def test_random_bytes_are_no_stream(data: bytes) -> None:
    check_whole_or_nothing([data, batch_of(OPENING), data], DataSet())


@given(RECORDS, RECORDS)
@example([made_up(2, NESTED)], [])
@example([made_up(4, b'{"count": 0, "digest": 1e999}')], [])
def test_made_up_records_are_a_fault_or_a_set(first: list[bytes], second: list[bytes]) -> None:
    incoming = whole_or_none([batch_of(OPENING + b"".join(first)), batch_of(b"".join(second), 1)])
    assert incoming is None or incoming.data.summary().count == incoming.samples


@given(values(GroupBegin), st.integers() | st.integers(-3, 3), contents(8))
def test_any_group_that_is_taken_in_can_be_worked_with(
    group: GroupBegin, depth: int, arrived: list[tuple[Group, Sample]]
) -> None:
    document = msgspec.to_builtins(group)
    document["description"]["qos"]["history_depth"] = depth
    body = OPENING + made_up(2, json.dumps(document).encode())
    own = [packed(sample) for _, sample in arrived]
    incoming = whole_or_none([batch_of(body + b"".join(own))])
    assert incoming is None


@pytest.mark.parametrize("status", [0, 8, 255])
def test_a_sample_that_says_nothing_is_a_fault(status: int) -> None:
    sample = make_sample(1, b"w" * 16, status, b"k", b"payload")
    group = GroupBegin(description(GROUPS[0]), NO_FLOOR)
    with pytest.raises(StreamFault):
        received(list(stream.batches(NUMBER, BEGIN, [(group, SampleRows.coerce([sample]))])))


def test_a_slow_wire_gets_compressed_batches_and_a_fast_one_does_not() -> None:
    made = [make_sample(t, b"w" * 16, DATA, t.to_bytes(4), bytes(1000)) for t in range(3000)]
    original = data_set([(GROUPS[0], sample) for sample in made])
    groups = [(GroupBegin(description(GROUPS[0]), NO_FLOOR), SampleRows.coerce(made))]
    sizes = {}
    for name, step_s in (("slow", 10.0), ("fast", 0.0)):
        batches = list(stream.batches(NUMBER, BEGIN, groups, itertools.count(0, step_s).__next__))
        check_same(received(batches), original)
        assert len(batches) > 2
        sizes[name] = [len(batch) for batch in batches]
    assert sizes["slow"][0] == sizes["fast"][0]
    assert sizes["slow"][1] < sizes["fast"][1] / 10


def test_what_expands_beyond_all_bounds_is_a_fault() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "MAX_BATCH_BYTES", 1000)
        body = zlib.compress(bytes(100_000))
        header = struct.pack("<4sBB16sII", b"OSPL", 2, 1, NUMBER, 0, zlib.crc32(body))
        with pytest.raises(StreamFault):
            received([header + body])


@given(st.lists(samples(), min_size=1, max_size=20, unique=True))
def test_a_block_carries_every_kind_of_sample(made: list[Sample]) -> None:
    block = blocks.Block(blocks.pack_samples(made).data)
    assert block.samples() == [block.sample(place) for place in range(len(made))] == made
    pieces = list(blocks.pieces(made, 30))
    assert [sample for piece in pieces for sample in piece] == made
