from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.persistence.core import sequences as sequences_module
from engine.persistence.core.messages import (
    Announcement,
    KeptSample,
    OriginalSample,
    SampleBatch,
    Saved,
    Subscription,
    WriterState,
)
from engine.persistence.core.provider_selection import (
    ORIGINAL,
    Candidate,
    Providers,
    Stability,
    SynchronizationSettings,
    choose,
)
from engine.persistence.core.replica import Replica
from engine.persistence.core.sequences import Sequences
from engine.simulator.rehearsal import LINK_DELAY_MS
from tests.redundancy.laws import TriedCluster, check_applied_once, check_converged, numbers_of

NUMBERS = st.sets(st.integers(1, 40))
ON = SynchronizationSettings(enable=True)
PERIOD_MS = ON.period_ms
PATIENT = SynchronizationSettings(enable=True, stable_periods=2, max_change_periods=3)


@given(NUMBERS, NUMBERS, st.integers(1, 41))
def test_sequences_are_sets_of_numbers(one: set[int], other: set[int], number: int) -> None:
    a, b = numbers_of(one), numbers_of(other)
    assert (set(a | b), set(a - b), set(a & b)) == (one | other, one - other, one & other)
    assert (number in a, a.count, bool(a)) == (number in one, len(one), bool(one))
    assert (a.lowest, a.highest) == (min(one, default=0), max(one, default=0))
    assert set(a | Sequences(((number, number),))) == one | {number}
    assert Sequences(a.intervals) == a
    assert set(a.below(number)) == {each for each in one if each < number}
    for made in (a | b, a - b, a & b):
        assert all(left[1] + 1 < right[0] for left, right in itertools.pairwise(made.intervals))


def test_too_many_gaps_forget_what_is_had_and_never_close_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences_module, "MAX_INTERVALS", 3)
    had = numbers_of([1, 2, 3, 5, 7, 8, 10, 11])
    assert set(had | numbers_of([13, 14])) == {1, 2, 3, 10, 11, 13, 14}


@given(st.sets(st.integers(1, 60)), st.integers(1, 6))
def test_what_is_forgotten_are_the_shortest_intervals_the_older_of_equal_ones(
    numbers: set[int], most: int
) -> None:
    whole = list(numbers_of(numbers).intervals)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequences_module, "MAX_INTERVALS", most)
        bounded = list(Sequences(tuple(whole)).bounded.intervals)
    while len(whole) > most:
        whole.remove(min(whole, key=lambda each: each[1] - each[0]))
    assert bounded == whole


def candidate(highest: int, *path: str, advanced: bool = False) -> Candidate:
    return Candidate(Sequences(((1, highest),)), path or None, advanced)


CHOICES = [
    ("the original writer, where it is connected", True, 9, {"b": candidate(9, "b")}, Providers(ORIGINAL)),
    ("the shorter path", False, 9, {"b": candidate(9, "c", "b"), "c": candidate(9, "c")}, Providers("c")),
    ("not one that lags", False, 5, {"b": candidate(5, "b"), "c": candidate(9, "d", "c")}, Providers("c")),
    ("one that lags but goes on", False, 9, {"b": candidate(7, "b", advanced=True)}, Providers("b")),
    ("not through ourselves", False, 9, {"b": candidate(9, "a", "b")}, Providers()),
    (
        "who has what we lack",
        False,
        5,
        {"b": candidate(9), "c": candidate(7)},
        Providers(None, frozenset("b")),
    ),
    (
        "what a late writer's reader missed",
        True,
        0,
        {"b": candidate(9, "b")},
        Providers(ORIGINAL, frozenset("b")),
    ),
    ("nothing from one without anything new", False, 9, {"b": candidate(9)}, Providers()),
]


@pytest.mark.parametrize(
    ("why", "direct", "highest", "candidates", "expected"), CHOICES, ids=lambda x: str(x)[:30]
)
def test_the_best_providers_are_chosen(
    why: str, direct: bool, highest: int, candidates: dict[str, Candidate], expected: Providers
) -> None:
    had = Sequences(((1, highest),)) if highest else Sequences()
    chosen = choose("a", had, candidates, is_direct=direct, advanced=False, current=Providers())
    assert chosen == expected, why


@given(NUMBERS, st.dictionaries(st.sampled_from("bcdef"), NUMBERS, min_size=1), st.booleans())
def test_somebody_is_chosen_where_somebody_has_more(
    own: set[int], others: dict[str, set[int]], advanced: bool
) -> None:
    """Why only a fault of a service leaves it without a provider (DUL-NO-PROVIDER)."""
    had = numbers_of(own)
    candidates = {name: Candidate(numbers_of(numbers), None, advanced) for name, numbers in others.items()}
    chosen = choose("a", had, candidates, is_direct=False, advanced=advanced, current=Providers())
    has_more = max(each.had.highest for each in candidates.values()) > had.highest
    assert not has_more or chosen != Providers()


def test_the_provider_in_use_stays_among_equals() -> None:
    equals = {"b": candidate(9, "b"), "c": candidate(9, "c")}
    for current in ("b", "c"):
        chosen = choose(
            "a", Sequences(((1, 9),)), equals, is_direct=False, advanced=True, current=Providers(current)
        )
        assert chosen.live == current


def test_what_may_be_on_its_way_is_not_asked_for_from_another() -> None:
    others = {"b": candidate(9, "b")}
    had = Sequences(((1, 3), (5, 6)))
    hasty = choose("a", had, others, is_direct=True, advanced=True, current=Providers(ORIGINAL))
    assert hasty == Providers(ORIGINAL, frozenset("b")), "4 will not come by itself"
    whole = Sequences(((1, 6),))
    assert choose("a", whole, others, is_direct=True, advanced=True, current=hasty) == Providers(ORIGINAL)
    assert choose("a", whole, others, is_direct=True, advanced=False, current=hasty) == hasty


def test_a_reader_that_has_just_met_its_writer_has_patience() -> None:
    one = Replica("a", ON)
    one.connected("b")
    one.writer_matched("w")
    one.receive("b", Announcement((WriterState("w", Sequences(((1, 9),)), ("b",)),)))
    one.period()
    assert one.providers("w") == Providers(ORIGINAL)
    one.period()
    assert one.providers("w") == Providers(ORIGINAL, frozenset("b"))


def test_who_fills_already_goes_on_among_equals() -> None:
    equals = {"b": candidate(9), "c": candidate(9)}
    for current in ("b", "c"):
        using = Providers(None, frozenset(current))
        chosen = choose("a", Sequences(), equals, is_direct=False, advanced=True, current=using)
        assert chosen == using


@given(st.lists(st.sampled_from("xyz"), max_size=40), st.integers(1, 4), st.integers(0, 4))
def test_a_change_is_made_when_it_is_stable_or_at_the_bound(
    choices: list[str], stable: int, more: int
) -> None:
    bound = stable + more
    state = Stability(stable, bound)
    history: list[Providers] = [Providers()]
    since_settled = 0
    for choice in choices:
        before, selected = state.applied, Providers(choice)
        is_first = len(history) == 1
        history += [selected] * (stable if is_first else 1)  # the first is used at once, and counts as stable
        changed = state.period(selected)
        is_stable = len(set(history[-stable:])) == 1
        since_settled = 0 if is_stable else since_settled + 1
        may_change = is_stable or since_settled == bound
        assert changed == (may_change and selected != before)
        assert state.applied == (selected if may_change else before)
        if since_settled == bound:
            since_settled = 0
        if stable == 1:
            assert state.applied == selected


def test_settings_refuse_what_makes_no_sense() -> None:
    cases: list[dict[str, Any]] = [{"period_ms": 0}, {"stable_periods": 0}, {"stable_periods": 2}]
    for wrong in cases:
        with pytest.raises(ValueError, match=r"at least 1|is less than"):
            SynchronizationSettings(**wrong)


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("attached", ["one", "all"])
def test_a_sample_comes_to_each_replica_once(count: int, attached: str) -> None:
    cluster = TriedCluster(count, 7, ON)
    cluster.run(100)
    cluster.attach("w", *(cluster.names if attached == "all" else ["i0"]))
    for number in range(200):
        cluster.write("w", b"%d" % (number % 10))
        cluster.run(500)
    cluster.run(4 * PERIOD_MS)
    check_converged(cluster)
    assert cluster.repeated() == 0
    assert len(cluster.last_values()) == 10
    others = 0 if attached == "all" else count - 1
    assert cluster.payloads_between <= others * 200
    assert cluster.payloads_between >= others * 150, (
        "superseded before they were asked for: only at the start"
    )


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("settings", [ON, PATIENT], ids=["at once", "patient"])
def test_a_lost_provider_is_replaced_and_nothing_is_lost(
    count: int, settings: SynchronizationSettings
) -> None:
    cluster = TriedCluster(count, 3, settings)
    cluster.attach("w", *list(cluster.names)[:2])
    for number in range(30):
        cluster.write("w", b"%d" % (number % 7))
        cluster.run(700)
    cluster.lose("i0")
    for number in range(30):
        cluster.write("w", b"%d" % (number % 7))
        cluster.run(700)
    cluster.run(8 * PERIOD_MS)
    check_converged(cluster)
    assert {s.payload for s in cluster.last_values().values()} == {b"w/%d" % n for n in range(54, 61)}
    assert all("i0" not in each.providers("w") for each in cluster.replicas.values())


def test_what_one_missed_while_it_was_cut_off_comes_from_another() -> None:
    cluster = TriedCluster(3, 5, ON)
    cluster.attach("w", *cluster.names)
    for number in range(40):
        if number == 10:
            cluster.detach("w", "i1")
            cluster.cut("i0", "i1")
            cluster.cut("i1", "i2")
        if number == 30:
            cluster.attach("w", "i1")
            cluster.heal()
        cluster.write("w", b"%d" % number)
        cluster.run(900)
    cluster.run(6 * PERIOD_MS)
    check_converged(cluster)
    assert len(cluster.last_values()) == 40
    assert cluster.replicas["i1"].counters["applied"] == 40


def test_a_replica_that_starts_again_gets_only_what_it_missed() -> None:
    cluster = TriedCluster(2, 5, ON)
    cluster.attach("w", "i0")
    for number in range(40):
        if number == 20:
            saved = cluster.replicas["i1"].saved()
            cluster.lose("i1")
        cluster.write("w", b"%d" % number)
        cluster.run(3_000)
    before = cluster.payloads_between
    cluster.start("i1", saved)
    cluster.heal()
    cluster.run(6 * PERIOD_MS)
    check_converged(cluster)
    assert len(cluster.last_values()) == 40
    assert cluster.payloads_between - before == 40 - len(saved.kept)
    assert cluster.repeated() == 0


LINKS_MS = 5 * LINK_DELAY_MS
"""Enough for messages to go to and fro between replicas, and less than any period."""


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("settings", [ON, PATIENT], ids=["at once", "patient"])
@pytest.mark.parametrize("meets", ["before the end", "after the end", "in the middle"])
def test_what_is_lacking_of_a_writer_that_ended_is_fetched_before_the_period_is_over(
    count: int, settings: SynchronizationSettings, meets: str
) -> None:
    assert settings.period_ms > 2 * LINKS_MS
    for seed in range(5):
        cluster = TriedCluster(count, seed, settings)
        others = cluster.names[1:]
        if meets == "after the end":
            for pair in cluster.links:
                cluster.cut(*sorted(pair))
        cluster.attach("w", "i0")
        for number in range(50):
            cluster.write("w", b"%d" % number)
            cluster.run(1)
            if meets == "in the middle" and number == 25:
                cluster.attach("w", *others)
        cluster.run(100)
        cluster.detach("w", *others, "i0")
        cluster.heal()
        cluster.run(LINKS_MS)
        assert {len(cluster.replicas[each].values()) for each in cluster.names} == {50}
        check_converged(cluster)
        assert cluster.repeated() == 0
        assert cluster.payloads_between == (count - 1) * (26 if meets == "in the middle" else 50)
        cluster.lose("i0")
        cluster.run(6 * settings.period_ms)
        check_converged(cluster)
        assert cluster.repeated() == 0


def test_who_is_asked_in_place_of_one_that_is_lost_gives_the_rest() -> None:
    samples = [OriginalSample("w", number, b"%d" % number, number) for number in range(1, 7)]
    one, had = Replica("a", PATIENT), numbers_of(range(1, 7))

    def asked() -> list[tuple[str, list[int]]]:
        return [
            (to, sorted(want.only or ()))
            for to, message in one.messages()
            if isinstance(message, Subscription)
            for want in message.wants
        ]

    for peer in "bc":
        one.connected(peer)
    one.receive("b", Announcement((WriterState("w", numbers_of(range(1, 5)), None),)))
    assert asked() == [("b", [1, 2, 3, 4])]
    one.receive("c", Announcement((WriterState("w", had, None),)))
    assert asked() == [("c", [5, 6])], "what b will send is not asked of c"
    one.receive("b", SampleBatch(tuple(KeptSample(each, frozenset("w")) for each in samples[:2])))
    one.disconnected("b")
    assert asked() == [("c", [3, 4, 5, 6])]


def test_nothing_is_fetched_at_once_while_somebody_is_connected_to_the_writer() -> None:
    one = Replica("a", PATIENT)
    one.connected("b")
    one.receive("b", Announcement((WriterState("w", numbers_of([1]), ("b",)),)))
    assert not any(isinstance(message, Subscription) for _, message in one.messages())
    one.period()
    assert one.providers("w").live == "b", "the first provider is not a change"


def test_oscillating_links_change_providers_no_more_often_than_the_bound_allows() -> None:
    changes, cycles = {}, 120
    for stable, bound in ((1, 1), (4, 8)):
        settings = SynchronizationSettings(enable=True, stable_periods=stable, max_change_periods=bound)
        cluster = TriedCluster(3, 11, settings)
        cluster.attach("w", "i0")
        for number in range(cycles):  # i2 has the short path, and then only the one through i1
            (cluster.cut if number % 2 else cluster.join)("i0", "i2")
            cluster.write("w", b"%d" % (number % 5))
            cluster.run(PERIOD_MS)
        changes[bound] = cluster.replicas["i2"].counters["changes"]
        cluster.heal()
        cluster.run(12 * PERIOD_MS)
        check_converged(cluster)
        assert cluster.replicas["i2"].providers("w").live == "i0"
    assert changes[1] > cycles / 2
    assert changes[8] <= cycles / 8 + 2


@st.composite
def faults(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    kinds = st.sampled_from(
        ["write", "write", "write", "old", "cut", "join", "attach", "detach", "lose", "save", "restart"]
    )
    return draw(st.lists(st.tuples(kinds, st.integers(0, 9), st.integers(0, 9)), max_size=60))


@given(st.sampled_from([2, 3, 5]), st.integers(0, 1000), st.sampled_from([ON, PATIENT]), faults())
def test_all_end_with_the_same_last_values_whatever_happened(
    count: int, seed: int, chosen: SynchronizationSettings, steps: list[tuple[str, int, int]]
) -> None:
    cluster = TriedCluster(count, seed, chosen)
    cluster.attach("w0", "i0")
    cluster.attach("w1", "i1")
    disks: dict[str, Saved] = {}
    for kind, one, other in steps:
        alive = list(cluster.names)
        here, there = alive[one % len(alive)], alive[other % len(alive)]
        writer = f"w{one % 3}"
        if kind == "write":
            cluster.write(writer, b"%d" % (other % 4))
        elif kind == "old":
            cluster.write(writer, b"%d" % (other % 4), time_ns=other)
        elif kind in ("cut", "join") and here != there:
            (cluster.cut if kind == "cut" else cluster.join)(here, there)
        elif kind == "attach":
            cluster.attach(writer, there)
        elif kind == "detach":
            cluster.detach(writer, there)
        elif kind == "save":
            disks[here] = cluster.replicas[here].saved()
        elif kind == "restart":
            cluster.lose(here)
            cluster.start(here, disks.get(here))
            for each in alive:
                if each != here:
                    cluster.join(here, each)
        elif kind == "lose" and len(alive) > 1 and one == other:
            cluster.lose(here)
        cluster.run(one * 700)
    cluster.heal()
    cluster.run(20 * PERIOD_MS)
    check_converged(cluster)
    check_applied_once(cluster)
    settled = cluster.payloads_between
    cluster.run(10 * PERIOD_MS)
    assert cluster.payloads_between == settled, "nothing moves between equals"
