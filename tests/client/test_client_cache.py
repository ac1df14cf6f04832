from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from engine.dataset.instance import Origin, ReaderEntry
from engine.dataset.instance_states import InstanceState
from engine.dataset.sample import DATA, DISPOSE, NO_WRITER, UNREGISTER, Sample, make_sample
from ospltool.client.cache import ResourceLimits, SampleCache

WRITERS = (b"w" * 16, b"x" * 16)
CDR = b"\0\1\0\0"


def sample(time_ns: int, key: int = 0, writer: int = 0, status: int = DATA, body: bytes = b"") -> Sample:
    name = key.to_bytes(4)
    return make_sample(time_ns, WRITERS[writer], status, name, CDR + name + body)


def merge_end(time_ns: int, key: int = 0, status: int = DISPOSE) -> Sample:
    name = key.to_bytes(4)
    return make_sample(time_ns, NO_WRITER, status, name, CDR + name)


def reader(depth: int = 0, limits: ResourceLimits | None = None, *, shows_all: bool = False) -> SampleCache:
    """A reader whose writers live."""
    cache = SampleCache(depth, limits, shows_all=shows_all)
    for writer in WRITERS:
        cache.found(writer)
    return cache


def taken(cache: SampleCache, limit: int = 1_000_000) -> list[Sample]:
    return [look.entry.sample for look in cache.take(limit) if look.entry.sample is not None]


def times(found: list[Sample]) -> list[int]:
    return [one.source_time_ns for one in found]


samples = st.builds(
    sample,
    st.integers(0, 30),
    st.integers(0, 2),
    st.integers(0, 1),
    st.sampled_from([DATA, DISPOSE, UNREGISTER, DATA | DISPOSE]),
)


@hypothesis.given(st.lists(samples, max_size=40), st.lists(samples, max_size=40), st.randoms())
def test_whatever_comes_by_whichever_way_is_given_once_and_in_order(
    live: list[Sample], history: list[Sample], chance: object
) -> None:
    cache = reader(shows_all=True)
    arrivals = [(one, False) for one in live] + [(one, True) for one in [*history, *live]]
    chance.shuffle(arrivals)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    new = sum(cache.add([one], is_historical=is_historical) for one, is_historical in arrivals)
    got = [one for one in taken(cache) if one.status != UNREGISTER]
    assert sorted(got) == sorted(one for one in set(live) | set(history) if one.status != UNREGISTER)
    for key in {one.key for one in got}:
        order = times([one for one in got if one.key == key])
        assert order == sorted(order)
    for one, is_historical in arrivals:
        assert not cache.add([one], is_historical=is_historical)
    assert taken(cache) == []
    assert cache.counters.repeated == 2 * len(arrivals) - new


@hypothesis.given(st.lists(samples, max_size=60), st.integers(1, 7), st.booleans())
def test_taking_in_parts_gives_the_same_as_taking_at_once(
    arrivals: list[Sample], part: int, is_left: bool
) -> None:
    whole, parts = reader(), reader()
    for cache in (whole, parts):
        cache.add(arrivals, is_historical=True)
        if is_left:
            cache.lost(WRITERS[0], 50, autodispose=True)
    collected: list[ReaderEntry] = []
    while some := parts.take(part):
        assert len(some) <= part
        collected += [look.entry for look in some]
    assert collected == [look.entry for look in whole.take(1_000_000)]
    assert parts.count == whole.count == 0


def test_a_reader_with_a_depth_keeps_the_newest_samples_of_an_instance() -> None:
    cache = reader(2)
    cache.add([sample(time_ns) for time_ns in (5, 1, 4, 2, 3)], is_historical=True)
    assert times(taken(cache)) == [4, 5]
    assert (cache.counters.pushed_out, cache.counters.lost_depth) == (1, 2)


def test_what_is_older_than_what_was_taken_is_left_out_and_counted() -> None:
    cache = reader()
    cache.add([sample(2)], is_historical=False)
    cache.add([sample(1)], is_historical=True)
    assert times(taken(cache)) == [1, 2], "inserted back"
    cache.add([sample(5)], is_historical=False)
    assert times(taken(cache)) == [5]
    cache.add([sample(4, writer=1)], is_historical=False)
    cache.add([sample(3)], is_historical=True)
    assert taken(cache) == []
    assert cache.counters.lost_older_than_taken == 2
    assert cache.state_of(sample(1).key) is InstanceState.ALIVE


def test_a_durable_subscription_shows_every_sample_also_an_older_one() -> None:
    cache = reader(shows_all=True)
    cache.add([sample(5), sample(6, status=DISPOSE)], is_historical=False)
    cache.add([sample(7, status=DISPOSE, writer=1)], is_historical=False)
    assert times(taken(cache)) == [5, 6, 7]
    cache.add([sample(4)], is_historical=True)
    assert times(taken(cache)) == [4]
    assert cache.state_of(sample(1).key) is InstanceState.NOT_ALIVE_DISPOSED


def test_a_durable_subscription_shows_no_sample_twice_and_only_the_state_tells_of_lost_writers() -> None:
    cache = reader(shows_all=True)
    cache.add([sample(5)], is_historical=False)
    assert times(taken(cache)) == [5]
    for autodispose in (True, False):
        cache.lost(WRITERS[0], 9, autodispose=autodispose)
        assert cache.state_of(sample(1).key) is not InstanceState.ALIVE
        cache.found(WRITERS[0])
        assert cache.state_of(sample(1).key) is InstanceState.ALIVE
    assert (cache.take(100), cache.count) == ([], 0)


LIMITS = {
    "each": (ResourceLimits(max_samples_per_instance=2), [[3, 3, 4, 4], [5, 5]]),
    "all": (ResourceLimits(max_samples=3), [[3, 4, 5], [3, 4, 5]]),
    "instances": (ResourceLimits(max_instances=1), [[3, 4, 5], [3, 4, 5]]),
}


@pytest.mark.parametrize("name", LIMITS)
def test_what_the_limits_have_no_room_for_comes_when_the_application_takes(name: str) -> None:
    limits, parts = LIMITS[name]
    cache = reader(0, limits)
    cache.add([sample(time_ns, key) for key in (0, 1) for time_ns in (3, 4, 5)], is_historical=True)
    assert cache.is_full
    for part in parts:
        assert sorted(times(taken(cache))) == part
    assert (cache.is_full, cache.count, taken(cache)) == (False, 0, [])
    assert cache.counters.rejected == (2 if name == "each" else 3)
    assert cache.counters.lost_limits == 0


@pytest.mark.parametrize(
    "limits", [ResourceLimits(max_samples_per_instance=2), ResourceLimits(max_samples=2)]
)
def test_an_older_sample_for_which_the_limits_have_no_room_is_lost_and_counted(
    limits: ResourceLimits,
) -> None:
    cache = reader(0, limits)
    cache.add([sample(3), sample(5)], is_historical=False)
    cache.add([sample(4)], is_historical=True)
    assert (times(taken(cache)), taken(cache)) == ([3, 5], [])
    assert (cache.counters.lost_limits, cache.counters.rejected) == (1, 0)


def test_what_is_forgotten_cannot_come_again_as_history() -> None:
    cache = reader()
    cache.group_depth(1)
    arrivals = [sample(time_ns) for time_ns in range(100)]
    assert cache.add(arrivals, is_historical=False) == 100
    assert cache.add(arrivals, is_historical=True) == 0
    assert cache.counters.repeated + cache.counters.outdated == 100
    assert cache.counters.outdated > 50


def test_the_state_of_an_instance_follows_its_last_word_and_its_writers() -> None:
    cache = SampleCache(0)
    cache.found(WRITERS[0])
    history = [
        sample(1, key=0),
        sample(1, key=1),
        sample(2, key=1, status=DISPOSE),
        sample(1, key=2, writer=1),
        sample(1, key=3),
        sample(2, key=3, status=UNREGISTER),
    ]
    cache.add(history, is_historical=True)
    keys = [number.to_bytes(4) for number in range(4)]
    assert [cache.state_of(key) for key in keys] == [
        InstanceState.ALIVE,
        InstanceState.NOT_ALIVE_DISPOSED,
        InstanceState.NOT_ALIVE_NO_WRITERS,
        InstanceState.NOT_ALIVE_NO_WRITERS,
    ]
    cache.found(WRITERS[1])
    assert cache.state_of(keys[2]) is InstanceState.ALIVE
    cache.lost(WRITERS[1], 9, autodispose=True)
    assert cache.state_of(keys[2]) is InstanceState.NOT_ALIVE_DISPOSED
    assert cache.state_of(b"never heard of") is None


def test_history_of_a_writer_that_is_gone_is_no_generation_for_each_sample() -> None:
    cache = SampleCache(0)
    cache.add([sample(time_ns) for time_ns in (1, 2, 3)], is_historical=True)
    looks = cache.take(100)
    assert [(look.entry.time_ns, look.entry.generation, look.state) for look in looks] == [
        (time_ns, 0, InstanceState.NOT_ALIVE_NO_WRITERS) for time_ns in (1, 2, 3)
    ]
    assert cache.take(100) == [], "the state of the last sample told it"
    cache.add([sample(time_ns) for time_ns in (4, 5, 6)], is_historical=True)
    assert [(look.entry.time_ns, look.entry.generation) for look in cache.take(100)] == [
        (4, 1),
        (5, 1),
        (6, 1),
    ]


@pytest.mark.parametrize(("depth", "again"), [(1, [3]), (2, [2, 3]), (0, [1, 2, 3])])
def test_what_services_keep_of_an_instance_is_shown_again(depth: int, again: list[int]) -> None:
    cache = reader()
    cache.group_depth(depth)
    cache.add([sample(time_ns) for time_ns in (1, 2, 3)], is_historical=False)
    assert times(taken(cache)) == [1, 2, 3]
    cache.lost(WRITERS[0], 9, autodispose=False)
    cache.found(WRITERS[0])
    looks = cache.take(100)
    assert [look.entry.time_ns for look in looks] == [9, *again]
    assert [look.entry.generation for look in looks] == [0, *(1 for _ in again)]
    assert cache.counters.again == len(again)


def test_a_merge_that_replaces_shows_the_dispose_and_then_what_there_is() -> None:
    cache = reader()
    cache.add([sample(10, key=0), sample(10, key=1)], is_historical=True)
    taken(cache)
    cache.add_update([merge_end(50, 0), merge_end(50, 1), sample(10, key=0), sample(7, key=0)])
    got = sorted((look.key[-1], look.entry.kind, look.entry.time_ns) for look in cache.take(100))
    assert got == [(0, "D", 50), (0, "S", 7), (0, "S", 10), (1, "D", 50)]
    keys = [number.to_bytes(4) for number in range(2)]
    assert cache.state_of(keys[0]) is InstanceState.ALIVE
    assert cache.state_of(keys[1]) is InstanceState.NOT_ALIVE_DISPOSED
    cache.add([sample(8, key=0)], is_historical=True)
    assert taken(cache) == []


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ([10, 30], [10], [10]),
        ([10, 30], [10, 20], [20]),
        ([10, 20, 30], [10, 20], [20]),
        ([30], [10, 20], [10, 20]),
    ],
)
def test_a_merge_that_takes_samples_back_shows_what_holds_instead_of_them(
    before: list[int], after: list[int], shown: list[int]
) -> None:
    cache = reader()
    cache.add([sample(time_ns) for time_ns in before], is_historical=False)
    assert times(taken(cache)) == before
    cache.add_update([merge_end(50, status=UNREGISTER), *map(sample, after)])
    looks = cache.take(100)
    assert [look.entry.time_ns for look in looks] == shown
    assert {look.state for look in looks} == {InstanceState.ALIVE}
    cache.add(map(sample, after), is_historical=True)
    assert taken(cache) == [], "it is known"


@pytest.mark.parametrize("status", [DISPOSE, UNREGISTER])
def test_what_a_node_captured_only_after_it_replaced_its_set_holds(status: int) -> None:
    cache = reader()
    cache.add([sample(10), sample(30, writer=1)], is_historical=False)
    taken(cache)
    cache.add_update([merge_end(50, status=status), sample(10)])
    cache.add_update([sample(30, writer=1)])
    looks = [look for look in cache.take(100) if look.entry.sample is not None]
    assert [look.entry.time_ns for look in looks][-2:] == [10, 30]
    assert {look.entry.origin for look in looks[-2:]} == {Origin.AGAIN}, "both were shown before"


SYSTEM = b"\x01\x02\x03\x04"
OTHERS = SYSTEM + bytes(12)
"""A writer of an OpenSplice federation; services call it by its system the other way round, and more."""
NAMED = SYSTEM[::-1] + b"\1" * 12


def test_the_same_sample_under_another_products_writer_name_is_given_once() -> None:
    live = sample(5)._replace(writer=OTHERS)
    named = live._replace(writer=NAMED)
    for is_live_first in (True, False):
        cache = reader()
        cache.found(OTHERS)
        for one in (live, named) if is_live_first else (named, live):
            cache.add([one], is_historical=one is named, exact=one is live)
        assert times(taken(cache)) == [5], is_live_first
        assert cache.state_of(live.key) is InstanceState.ALIVE
        assert cache.add([named._replace(source_time_ns=6)], is_historical=True, exact=False)


def test_history_of_another_product_is_of_a_living_writer_only_where_that_is_known() -> None:
    cache = reader()
    cache.add([sample(5)._replace(writer=NAMED)], is_historical=True, exact=False)
    key = sample(5).key
    assert cache.state_of(key) is InstanceState.NOT_ALIVE_NO_WRITERS, "nobody of its system is there"
    cache.found(OTHERS)
    assert cache.state_of(key) is None, "that may be the one"
    cache.lost(OTHERS, 9, autodispose=False)
    assert cache.state_of(key) is InstanceState.NOT_ALIVE_NO_WRITERS


READERS = st.lists(
    st.tuples(st.sampled_from(["live", "stored", "update", "cut", "heal", "take"]), st.integers(0, 7)),
    max_size=25,
)


@hypothesis.given(
    st.lists(st.builds(sample, st.integers(0, 20), st.just(0), st.integers(0, 1)), max_size=8, unique=True),
    READERS,
    READERS,
    st.sampled_from([0, 1, 2]),
    st.booleans(),
)
def test_readers_that_matched_the_same_writers_end_equal_whatever_was_cut(
    facts: list[Sample], one: list[tuple[str, int]], two: list[tuple[str, int]], depth: int, disposes: bool
) -> None:
    ends = []
    for steps in (one, two):
        cache = reader(depth)
        cache.group_depth(depth)
        shown: list[Sample] = []
        for what, number in steps:
            writer, some = WRITERS[number % 2], facts[number : number + 2]
            if what == "cut":
                cache.lost(writer, 100, autodispose=disposes)
            elif what == "heal":
                cache.found(writer)
            elif what == "take":
                shown += taken(cache)
            elif what == "update":
                cache.add_update(some)
            else:
                here = [each for each in some if cache.writers.is_living(each.writer)]
                cache.add(here if what == "live" else some, is_historical=what == "stored")
        for writer in WRITERS:
            cache.found(writer)
        cache.add_update(facts)  # when all is healed, services give what is missing
        shown += taken(cache)
        ends.append((cache.state_of(sample(0).key), shown[-1] if shown else None))
    assert ends[0] == ends[1]
    assert ends[0] == ((InstanceState.ALIVE, max(facts)) if facts else (None, None))
