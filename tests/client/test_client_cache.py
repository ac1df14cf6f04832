from __future__ import annotations

import hypothesis
from hypothesis import strategies as st

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from ospltool.client.cache import NO_WRITER, SampleCache
from ospltool.client.samples import InstanceState

WRITERS = (b"w" * 16, b"x" * 16)
CDR = b"\0\1\0\0"


def sample(time_ns: int, key: int = 0, writer: int = 0, status: int = DATA, body: bytes = b"") -> Sample:
    name = key.to_bytes(4)
    return make_sample(time_ns, WRITERS[writer], status, name, CDR + name + body)


def merge_dispose(time_ns: int, key: int = 0) -> Sample:
    name = key.to_bytes(4)
    return make_sample(time_ns, NO_WRITER, DISPOSE, name, CDR + name)


def taken(cache: SampleCache) -> list[Sample]:
    return [item.sample for item, _ in cache.take(1_000_000, WRITERS)]


def states(cache: SampleCache, alive: tuple[bytes, ...] = WRITERS) -> dict[bytes, InstanceState]:
    return {item.sample.key: state for item, state in cache.read(1_000_000, alive)}


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
    cache = SampleCache(0)
    arrivals = [(one, False) for one in live] + [(one, True) for one in [*history, *live]]
    chance.shuffle(arrivals)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    for one, is_historical in arrivals:
        cache.add(one, is_historical=is_historical)
    got = taken(cache)
    assert sorted(got) == sorted(set(live) | set(history))
    for key in {one.key for one in got}:
        times = [one.source_time_ns for one in got if one.key == key]
        assert times == sorted(times)
    for one, is_historical in arrivals:
        assert not cache.add(one, is_historical=is_historical)
    assert taken(cache) == []
    assert cache.counters.repeated == 2 * len(arrivals) - len(got)


@hypothesis.given(st.lists(samples, max_size=60), st.integers(1, 7))
def test_taking_in_parts_gives_the_same_as_taking_at_once(arrivals: list[Sample], part: int) -> None:
    whole, parts = SampleCache(0), SampleCache(0)
    for one in arrivals:
        whole.add(one, is_historical=True)
        parts.add(one, is_historical=True)
    collected: list[Sample] = []
    while some := parts.take(part, ()):
        assert len(some) <= part
        collected += [item.sample for item, _ in some]
    assert collected == taken(whole)
    assert parts.count == 0


def test_a_reader_with_a_depth_keeps_the_newest_samples_of_an_instance() -> None:
    cache = SampleCache(2)
    for time_ns in (5, 1, 4, 2, 3):
        cache.add(sample(time_ns), is_historical=True)
    assert [one.source_time_ns for one in taken(cache)] == [4, 5]
    assert cache.counters.pushed_out == 3


def test_what_is_forgotten_cannot_come_again_as_history() -> None:
    cache = SampleCache(0)
    cache.group_depth(1)
    arrivals = [sample(time_ns) for time_ns in range(100)]
    for one in arrivals:
        assert cache.add(one, is_historical=False)
    again = [cache.add(one, is_historical=True) for one in arrivals]
    assert not any(again)
    assert cache.counters.repeated + cache.counters.outdated == 100
    assert cache.counters.outdated > 50


def test_the_state_of_an_instance_follows_its_last_word_and_its_writers() -> None:
    cache = SampleCache(0)
    cache.add(sample(1, key=0), is_historical=True)
    cache.add(sample(1, key=1), is_historical=True)
    cache.add(sample(2, key=1, status=DISPOSE), is_historical=True)
    cache.add(sample(1, key=2, writer=1), is_historical=True)
    cache.add(sample(1, key=3), is_historical=True)
    cache.add(sample(2, key=3, status=UNREGISTER), is_historical=True)
    keys = [number.to_bytes(4) for number in range(4)]
    found = states(cache, alive=WRITERS[:1])
    assert [found[key].name for key in keys] == [
        "ALIVE",
        "NOT_ALIVE_DISPOSED",
        "NOT_ALIVE_NO_WRITERS",
        "NOT_ALIVE_NO_WRITERS",
    ]
    cache.autodisposed(WRITERS[1])
    assert states(cache, alive=())[keys[2]] is InstanceState.NOT_ALIVE_DISPOSED


def test_a_merge_that_replaces_shows_the_dispose_and_then_only_what_is_new() -> None:
    cache = SampleCache(0)
    for key in (0, 1):
        cache.add(sample(10, key=key), is_historical=True)
    taken(cache)
    cache.add_update([merge_dispose(50, 0), merge_dispose(50, 1), sample(10, key=0), sample(7, key=0)])
    got = [(one.key[-1], one.status, one.source_time_ns) for one in taken(cache)]
    assert got == [(0, DISPOSE, 50), (0, DATA, 7), (1, DISPOSE, 50)]
    keys = [number.to_bytes(4) for number in range(2)]
    assert cache.state_of(keys[0], WRITERS) is InstanceState.ALIVE
    assert cache.state_of(keys[1], WRITERS) is InstanceState.NOT_ALIVE_DISPOSED


def test_the_same_sample_under_another_products_writer_name_is_given_once() -> None:
    cache = SampleCache(0)
    live = sample(5)
    cache.add(live, is_historical=False)
    stranger = live._replace(writer=b"\1" * 16)
    assert not cache.add(stranger, is_historical=True, exact=False)
    assert cache.add(stranger._replace(source_time_ns=6), is_historical=True, exact=False)
