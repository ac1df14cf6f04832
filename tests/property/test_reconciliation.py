"""Differences of sets: found exactly, whatever the sets; nonsense is never taken for a difference."""

from __future__ import annotations

import math
import random
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.exchange import Side, align
from engine.core.events import ExpectSet
from engine.core.name_spaces import Group
from engine.dataset import rateless, reconciliation
from engine.dataset.dataset import DataSet
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.rateless import Symbols, finished
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.dataset.sample_rows import SampleRows
from engine.runtime.reconciling import messages as notes
from engine.runtime.reconciling.aligner import FIRST_SYMBOLS, FORGET_S, MAX_SKETCHES
from tests.property.samples import GROUPS, contents

if TYPE_CHECKING:
    from collections.abc import Callable

SALT = b"s" * 16
MAX_WORD = (1 << 64) - 1
WORDS = st.sets(st.integers(0, 2**64 - 1) | st.integers(0, 40), max_size=60)
KINDS = (DATA, DATA, DATA, DISPOSE, UNREGISTER, DATA | DISPOSE)


def words(values: set[int]) -> rateless.Words:
    return np.array(sorted(values), dtype=np.uint64)


def symbols(values: set[int], end: int) -> Symbols:
    return finished(rateless.Encoder(words(values)).until(end))


def check_same(one: Symbols, other: Symbols) -> None:
    assert one.first == other.first
    for left, right in ((one.counts, other.counts), (one.sums, other.sums), (one.checks, other.checks)):
        assert left.tolist() == right.tolist()


@given(WORDS, WORDS)
def test_enough_symbols_tell_the_difference_exactly(ours: set[int], theirs: set[int]) -> None:
    found, end = None, 4
    while found is None and end < 2000:
        found = finished(rateless.solve(symbols(ours, end) - symbols(theirs, end)))
        end += end // 4
    assert found is not None
    assert set(found.only_ours.tolist()) == ours - theirs
    assert set(found.only_theirs.tolist()) == theirs - ours


@given(WORDS, WORDS, st.integers(1, 30))
def test_too_few_symbols_tell_nothing_wrong(ours: set[int], theirs: set[int], end: int) -> None:
    found = finished(rateless.solve(symbols(ours, end) - symbols(theirs, end)))
    if found is not None:
        assert set(found.only_ours.tolist()) == ours - theirs
        assert set(found.only_theirs.tolist()) == theirs - ours


@given(WORDS, WORDS, st.integers(0, 50), st.integers(0, 50))
def test_symbols_are_linear_and_may_be_made_piece_by_piece(
    ours: set[int], theirs: set[int], middle: int, more: int
) -> None:
    end = middle + more
    both = symbols(ours - theirs, end) - symbols(theirs - ours, end)
    check_same(symbols(ours, end) - symbols(theirs, end), both)
    encoder = rateless.Encoder(words(ours))
    pieces = finished(encoder.until(middle)) + finished(encoder.until(end))
    check_same(pieces, symbols(ours, end))


@given(WORDS, WORDS, WORDS)
def test_what_the_other_lacks_by_its_word_may_be_wrong(
    ours: set[int], theirs: set[int], told: set[int]
) -> None:
    told -= theirs
    found, end = None, 16
    while found is None:
        assert end < 2000
        found = finished(rateless.solve(symbols(ours, end) - symbols(theirs | told, end)))
        end *= 2
    exact = rateless.without(found, words(told))
    assert set(exact.only_ours.tolist()) == ours - theirs
    assert set(exact.only_theirs.tolist()) == theirs - ours


def mixed(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & MAX_WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & MAX_WORD
    return word ^ word >> 31


@given(WORDS, st.integers(0, 90))
def test_symbols_are_those_that_every_node_makes(ours: set[int], end: int) -> None:
    """Their definition, which nodes must share: the C code is held against it."""
    expected = [[0, 0, 0] for _ in range(end)]
    for identity in ours:
        state, at = identity, 0
        while at < end:
            for place, value in enumerate((1, identity, mixed(identity ^ 0xD6E8FEB86659FD93) >> 32)):
                expected[at][place] += value
            state = mixed(state + 0x9E3779B97F4A7C15 & MAX_WORD)
            skip = math.ceil((at + 1.5) * (1 / math.sqrt(((state >> 32) + 1) / (1 << 32)) - 1))
            at += max(skip, 1)
    made = symbols(ours, end)
    for one, (count, total, check) in enumerate(expected):
        found = made.counts[one], made.sums[one], made.checks[one]
        assert found == (count, total & MAX_WORD, check % (1 << 32))


@given(WORDS, st.integers(0, 50), st.integers(0, 100_000))
def test_symbols_cross_the_wire_unchanged(ours: set[int], end: int, count: int) -> None:
    made = symbols(ours, end)
    check_same(Symbols.from_bytes(made.to_bytes(count), 0, end, count), made)


@pytest.mark.parametrize("count", [-1, 1 << 48, 1 << 128])
def test_symbols_of_a_set_that_cannot_be_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="symbols"):
        Symbols.from_bytes(symbols({1, 2}, 5).to_bytes(2), 0, 5, count)


@given(st.binary(max_size=200), st.integers(-1, 20))
def test_bytes_that_are_no_symbols_are_refused_or_solved_without_harm(data: bytes, length: int) -> None:
    try:
        made = Symbols.from_bytes(data, 0, length, 3)
    except ValueError:
        return
    finished(rateless.solve(made))
    rateless.estimate(made)


@given(WORDS, st.integers(0, 29), st.integers(0, 63))
def test_a_flipped_bit_is_no_difference(ours: set[int], at: int, bit: int) -> None:
    made = symbols(ours, 30)
    sums = made.sums.copy()
    sums[at] ^= np.uint64(1 << bit)
    changed = Symbols(0, made.counts, sums, made.checks)
    assert finished(rateless.solve(changed - made)) is None


@pytest.mark.parametrize(("more_here", "more_there"), [(700, 700), (1400, 0), (0, 900), (5000, 100)])
def test_few_symbols_tell_how_many_differ(more_here: int, more_there: int) -> None:
    draw = random.Random(more_here + more_there)
    common, here, there = (
        {draw.getrandbits(64) for _ in range(count)} for count in (1000, more_here, more_there)
    )
    left = symbols(common | here, 256) - symbols(common | there, 256)
    differing = more_here + more_there
    assert finished(rateless.solve(left)) is None
    assert 0.6 * differing < rateless.estimate(left) < 1.6 * differing


def test_identities_depend_on_salt_and_group_and_content() -> None:
    samples = [make_sample(1, b"w" * 16, DATA, b"k", b"x"), make_sample(1, b"w" * 16, DATA, b"k", b"y")]
    made = [
        finished(reconciliation.identities([(group, SampleRows.coerce(samples))], salt)).tolist()
        for group in (Group("p", "T"), Group("q", "T"))
        for salt in (b"1" * 16, b"2" * 16)
    ]
    assert len({identity for identities in made for identity in identities}) == 8


@given(st.lists(st.integers(0, 9), max_size=12), st.sets(st.integers(0, 12)))
def test_places_are_told_only_where_there_is_one(here: list[int], wanted: set[int]) -> None:
    places = finished(reconciliation.positions(np.array(here, dtype=np.uint64), words(wanted)))
    if all(here.count(each) == 1 for each in wanted):
        assert places is not None
        assert [here[at] for at in places.tolist()] == sorted(wanted)
    else:
        assert places is None


# Two nodes.

DESCRIBE = {
    group: GroupDescription(
        group,
        TypeDescription("T", b"i", b"m", keyed=True),
        GroupQos(DurabilityKind.PERSISTENT, history_depth=2),
    )
    for group in GROUPS
}


def data_set(arrived: list[tuple[Group, Sample]]) -> DataSet:
    made = DataSet()
    for group in GROUPS:
        made.open_group(group, 2)
    for group, sample in arrived:
        made.groups[group].apply(sample)
    return made


def many(count: int, seed: int) -> list[tuple[Group, Sample]]:
    """Samples of all kinds in all groups."""
    draw = random.Random(seed)
    return [
        (
            draw.choice(GROUPS),
            make_sample(
                draw.randrange(1, 10**6),
                b"w" * 16,
                draw.choice(KINDS),
                bytes(draw.choices(range(9), k=3)),
                b"x",
            ),
        )
        for _ in range(count)
    ]


def content(data: DataSet | None) -> dict[Group, set[Sample]]:
    assert data is not None
    return {group: set(part.samples()) for group, part in data.groups.items() if part.count}


def check_aligned(
    ours: DataSet, theirs: DataSet, change: Callable[[bytes], bytes] = bytes
) -> tuple[int, int]:
    """The alignee ends with the aligner's set, at once or when it asks again."""
    aligner, alignee = Side("a" * 32, ours, DESCRIBE), Side("b" * 32, theirs, DESCRIBE)
    cost = align(aligner, alignee, 1, change)
    if alignee.result is None:
        align(aligner, alignee, 2)
    assert content(alignee.result) == content(ours)
    return cost


@given(contents(30), contents(30), st.integers(0, 60))
def test_an_alignee_gets_the_set_of_its_aligner(
    ours: list[tuple[Group, Sample]], theirs: list[tuple[Group, Sample]], common: int
) -> None:
    shared = many(common, common)
    check_aligned(data_set([*shared, *ours]), data_set([*shared, *theirs]))


@pytest.mark.parametrize("here", [0, 1, 40, 400, 4000])
@pytest.mark.parametrize("there", [0, 1, 40, 400, 4000])
def test_any_difference_is_made_good(here: int, there: int) -> None:
    shared = many(3000, 1)
    check_aligned(data_set([*shared, *many(here, 2)]), data_set([*shared, *many(there, 3)]))


def test_equal_sets_move_no_data() -> None:
    both = many(3000, 1)
    sent, _ = check_aligned(data_set(both), data_set(both))
    assert sent < 8_000


def test_a_small_difference_costs_little() -> None:
    shared = many(20_000, 1)
    whole, _ = check_aligned(data_set(shared), data_set([]))
    sent, _ = check_aligned(data_set([*shared, *many(20, 2)]), data_set(shared))
    assert sent < whole / 8


def lie_about_what_is_too_much(data: bytes) -> bytes:
    """Batches of a difference that name other samples than those that go, checksum and all."""
    head = struct.Struct("<4sBB16sII")
    if not data.startswith(b"OSPL"):
        return data
    magic, version, compressed, stream, index, _ = head.unpack_from(data)
    body = bytearray(data[head.size :])
    at = 0
    while at < len(body):
        kind, size = struct.unpack_from("<BI", body, at)
        if kind == 5 and size:
            body[at + 5] ^= 1
        at += 5 + size
    return head.pack(magic, version, compressed, stream, index, zlib.crc32(body)) + bytes(body)


def test_a_difference_that_does_not_fit_is_never_used_and_all_is_asked_for() -> None:
    shared = many(2000, 1)
    ours, theirs = data_set([*shared, *many(30, 2)]), data_set([*shared, *many(30, 3)])
    aligner, alignee = Side("a" * 32, ours, DESCRIBE), Side("b" * 32, theirs, DESCRIBE)
    before = content(theirs)
    align(aligner, alignee, 1, lie_about_what_is_too_much)
    assert alignee.failed
    assert alignee.result is None
    assert content(theirs) == before
    assert alignee.shared.counters["comparisons_failed"] == 1
    align(aligner, alignee, 2)
    assert content(alignee.result) == content(ours)


def test_where_notes_are_lost_the_next_request_is_for_everything() -> None:
    ours, theirs = data_set(many(100, 1)), data_set(many(100, 2))
    aligner, alignee = Side("a" * 32, ours, DESCRIBE), Side("b" * 32, theirs, DESCRIBE)

    def lose(data: bytes) -> bytes:
        return b"" if data.startswith(notes.MAGIC) else data

    align(aligner, alignee, 1, lose)
    assert alignee.result is None
    alignee.now = aligner.now = 40.0
    alignee.shared.core.expects = lambda *_: False
    alignee.transfers.keep_wanted()
    aligner.transfers.work(aligner.now)
    assert aligner.transfers.next_s is None
    assert not aligner.sent
    alignee.shared.core.expects = lambda *_: True
    _, messages = align(aligner, alignee, 2)
    assert messages == 1
    assert content(alignee.result) == content(ours)


def apart(count: int, seed: int, payload: bytes = b"x") -> list[tuple[Group, Sample]]:
    """Samples that take no other's place."""
    keys = (b"%d %d" % (seed, number) for number in range(count))
    return [(GROUPS[0], make_sample(1, b"w" * 16, DATA, key, payload)) for key in keys]


def check_both_ways(*, moves: bool, forgets: bool = False) -> int:
    """One takes what the other has, and then the other; with `moves` both sets change in between.

    With `forgets` the first aligner has lost what it found to lack. Returns the bytes that comparing took on
    the second way.
    """
    shared, here, there = (apart(count, seed) for count, seed in ((20_000, 1), (500, 2), (500, 3)))
    near = Side("a" * 32, data_set([*shared, *here]), DESCRIBE)
    far = Side("b" * 32, data_set([*shared, *there]), DESCRIBE)
    align(near, far)
    if forgets:
        near.now = far.now = FORGET_S
    both = [*shared, *here, *there]
    if moves:  # here two came and one of them is new there too; there one came and one went
        near.space.working = data_set([*shared, *here, there[0], *(newer := apart(1, 4))])
        both = [*both[:-1], *newer, *apart(1, 5)]
    far.space.working = data_set(both)
    near.shared.counters.clear(), far.shared.counters.clear()
    align(far, near, request=2)
    assert near.result is not None
    assert content(near.result) == content(far.space.working)
    assert not near.shared.counters["comparisons_failed"]
    return sum(side.shared.counters["comparison_bytes_sent"] for side in (near, far))


@pytest.mark.parametrize("moves", [False, True])
def test_the_way_back_tells_what_the_first_way_found(moves: bool) -> None:
    assert check_both_ways(moves=moves) < 0.8 * check_both_ways(moves=moves, forgets=True)


def test_an_aligner_that_asks_for_fewer_symbols_than_it_was_sent_gets_no_more() -> None:
    """It may have forgotten them, or its question overtook the last ones."""
    alignee = Side("b" * 32, data_set(apart(1_000, 1)), DESCRIBE)
    alignee.transfers.expect(ExpectSet("all", 1, "a" * 32, "replace"))
    alignee.work()
    alignee.sent.clear()
    alignee.transfers.batch("c" * 32, notes.encode(notes.More("all", 1, 16)))
    assert (alignee.shared.counters["malformed"], alignee.sent) == (1, alignee.sent.__class__())
    alignee.transfers.batch("a" * 32, notes.encode(notes.More("all", 1, 16)))
    alignee.work()
    (told,) = (notes.decode(each)[0] for each in alignee.sent)
    assert isinstance(told, notes.Sketch)
    assert (told.first, told.length) == (FIRST_SYMBOLS, 0)


@given(st.binary(max_size=80), st.booleans())
def test_nonsense_for_a_note_is_counted_and_survived(data: bytes, is_magic: bool) -> None:
    side = Side("a" * 32, data_set([]), DESCRIBE)
    side.transfers.batch("b" * 32, (notes.MAGIC if is_magic else b"") + data)
    assert side.shared.counters["malformed"] == 1


def unsolved(_: Symbols) -> rateless.Stepwise[None]:
    """Symbols come to no result."""
    yield


@pytest.mark.parametrize(("here", "there"), [(30, 0), (0, 40), (40, 30), (1, 400)])
@pytest.mark.parametrize("payload", [b"x", b"x" * 100], ids=["whole set", "list"])
def test_where_symbols_fail_the_alignee_gets_the_set_all_the_same(
    monkeypatch: pytest.MonkeyPatch, here: int, there: int, payload: bytes
) -> None:
    """By the list of all identities where that is cheap, else whole."""
    monkeypatch.setattr(rateless, "solve", unsolved)
    shared = apart(5_000, 1, payload)
    ours = data_set([*shared, *apart(here, 2, payload)])
    aligner = Side("a" * 32, ours, DESCRIBE)
    alignee = Side("b" * 32, data_set([*shared, *apart(there, 3, payload)]), DESCRIBE)
    sent, messages = align(aligner, alignee)
    assert content(alignee.result) == content(ours)
    assert not aligner.shared.counters["malformed"] + alignee.shared.counters["malformed"]
    assert messages <= 2 * MAX_SKETCHES + 4
    whole = sum(len(sample.payload) for group in ours.groups.values() for sample in group.samples())
    assert (sent < whole) == (len(payload) > 1)


@pytest.mark.parametrize("pause", range(14))
def test_what_changes_while_sets_are_compared_is_part_of_the_difference(
    pause: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The aligner's set changes after so many steps, by what the alignee has already, too."""
    monkeypatch.setattr(rateless, "STEP", 500)
    shared, theirs, later = many(2000, 1), many(40, 3), many(60, 4)
    held = data_set([*shared, *many(40, 2)])
    aligner = Side("a" * 32, held, DESCRIBE)
    alignee = Side("b" * 32, data_set([*shared, *theirs, *later[:10]]), DESCRIBE)
    steps = aligner.transfers.steps
    steps.budget_s = 0.0
    carry_out, waiting = steps.work, [*later, *theirs[:10]]

    def work() -> None:
        if steps.done == pause:
            while waiting:
                group, sample = waiting.pop()
                held.groups[group].apply(sample)
        carry_out()

    monkeypatch.setattr(steps, "work", work)
    align(aligner, alignee)
    assert not waiting, "there are as many steps"
    assert content(alignee.result) == content(held)
    assert alignee.shared.counters["comparisons_failed"] == 0
