"""An instance as a reader sees it: the timelines of the text on eventual consistency."""

from __future__ import annotations

import itertools

import pytest

from engine.dataset.instance import LOSSES, Arrival, Instance, Origin
from engine.dataset.instance_states import MOVES, InstanceEvent, InstanceState, ViewState
from engine.dataset.sample import Sample
from tests.timelines import DEPTHS, ROWS, Row, fact, shown


class Play:
    """An instance that goes through a script, a word at a time (see `tests.timelines`)."""

    def __init__(self, depth: int, max_samples: int = 0) -> None:
        self.instance = Instance(depth, max_samples)
        self.known: list[Sample] = []

    def run(self, script: str) -> Instance:
        """Play the words of a script."""
        for word in script.split():
            self._word(word)
        return self.instance

    def _word(self, word: str) -> None:
        writer = word[0].encode() * 16
        if word in ("take", "read"):
            getattr(self.instance, word)()
        elif word[1] in "-~":
            self.instance.writer_lost(writer, int(word[2:]), autodispose=word[1] == "-")
        elif word[1] == "+":
            self.known += [fact(word[0] + word[2:])] if word[2:] else []
            self.instance.writer_returned(writer, self.known)
        else:
            self.known.append(fact(word))
            self.instance.apply(self.known[-1])


ALIVE, DISPOSED, NO_WRITERS = (
    InstanceState.ALIVE,
    InstanceState.NOT_ALIVE_DISPOSED,
    InstanceState.NOT_ALIVE_NO_WRITERS,
)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_timeline(row: Row, depth: int) -> None:
    instance = Play(depth).run(row.script)
    assert shown(instance.timeline) == row.timeline(depth)
    assert instance.state.removeprefix("NOT_ALIVE_") == row.state


DROPS = [
    # The three cases of the text for a sample of t1 that arrives after one of t2, and what is not a loss.
    ("there is room", 3, 0, "aS2", "bS1", Arrival.BACK_INSERTED, "S1 S2"),
    ("there is room for all", 0, 2, "aS2", "bS1", Arrival.BACK_INSERTED, "S1 S2"),
    ("the depth is full", 1, 0, "aS2", "bS1", Arrival.LOST_DEPTH, "S2"),
    ("the depth is full of newer ones", 3, 0, "aS2 aS3 aS4", "bS1", Arrival.LOST_DEPTH, "S2 S3 S4"),
    ("the depth is full of older ones", 3, 0, "aS1 aS2 aS4", "bS3", Arrival.BACK_INSERTED, "S2 S3 S4"),
    ("a dispose that nobody could see", 1, 0, "aS2", "bD1", Arrival.LOST_DEPTH, "S2"),
    ("the resources are used up", 0, 1, "aS2", "bS1", Arrival.LOST_RESOURCES, "S2"),
    ("the resources are used up in the middle", 0, 2, "aS1 aS3", "bS2", Arrival.LOST_RESOURCES, "S1 S3"),
    ("a newer one waits for resources", 0, 1, "aS1", "bS2", Arrival.REJECTED, "S1"),
    ("resources are free again", 0, 1, "aS1 take", "bS2", Arrival.INSERTED, "S2"),
    ("a dispose needs no resources", 0, 1, "aS1", "aD2", Arrival.INSERTED, "S1 D2"),
    ("a newer one was taken", 3, 0, "aS2 take", "bS1", Arrival.LOST_CONSUMED, ""),
    ("a newer one was taken, all are kept", 0, 0, "aS2 take", "bS1", Arrival.LOST_CONSUMED, ""),
    ("a newer dispose was taken", 0, 0, "aS1 aD3 take", "bS2", Arrival.LOST_CONSUMED, ""),
    ("a newer disconnect was taken", 0, 0, "aS1 bS1 a-3 take", "bS2", Arrival.LOST_CONSUMED, ""),
    ("an older one was taken", 0, 0, "aS1 take", "bS2", Arrival.INSERTED, "S2"),
    ("one of that very time was taken", 0, 0, "aS1 take", "bS1", Arrival.INSERTED, "S1"),
    ("a newer one was only read", 0, 0, "aS2 read", "bS1", Arrival.BACK_INSERTED, "S1 S2"),
    ("it comes again, too", 3, 0, "aS2 take a-3 take a+", "bS1", Arrival.BACK_INSERTED, "S1' S2'"),
    ("it is there already", 0, 0, "aS1", "aS1", Arrival.DUPLICATE, "S1"),
    ("it was there and taken", 1, 0, "aS1 take", "aS1", Arrival.DUPLICATE, ""),
    ("it was there and taken with others", 0, 0, "aS1 aS2 take", "aS1", Arrival.DUPLICATE, ""),
    ("it is there again", 3, 0, "aS1 a-2 a+", "aS1", Arrival.DUPLICATE, "S1 D2 S1'"),
    ("an unregister is nothing to show", 0, 0, "aS1 bS2", "aU3", Arrival.NOTED, "S1 S2"),
]


@pytest.mark.parametrize("case", DROPS, ids=[case[0] for case in DROPS])
def test_fate_of_a_fact(case: tuple[str, int, int, str, str, Arrival, str]) -> None:
    _, depth, max_samples, script, word, fate, timeline = case
    instance = Play(depth, max_samples).run(script)
    before, lost = instance.arrivals[fate], instance.lost
    state = instance.state
    assert instance.apply(fact(word)) is fate
    assert instance.arrivals[fate] == before + 1
    assert instance.lost == lost + (fate in LOSSES)
    assert shown(instance.timeline) == timeline
    if fate in (*LOSSES, Arrival.BACK_INSERTED, Arrival.DUPLICATE, Arrival.REJECTED):
        assert instance.state is state


def views(instance: Instance) -> tuple[ViewState, list[bool]]:
    """The view state, and of each entry whether it is read."""
    return instance.view, [entry.is_read for entry in instance.timeline]


def test_what_comes_again_is_not_read_and_makes_the_instance_new() -> None:
    play = Play(3)
    assert views(play.run("aS1")) == (ViewState.NEW, [False])
    assert views(play.run("read")) == (ViewState.NOT_NEW, [True])
    assert views(play.run("a-2")) == (ViewState.NOT_NEW, [True, False])
    assert views(play.run("a+")) == (ViewState.NEW, [True, False, False])
    origins = [entry.origin for entry in play.instance.timeline]
    assert origins == [Origin.FACT, Origin.DERIVED, Origin.AGAIN]
    assert views(play.run("take")) == (ViewState.NOT_NEW, [])


def test_generations_are_counted_apart() -> None:
    instance = Play(1).run("aS1 a-2 a+ a~3 a+ aD4 aS5")
    assert (instance.disposed_generations, instance.no_writers_generations) == (2, 1)


def test_looking_at_nothing_changes_nothing() -> None:
    instance = Instance()
    assert (instance.read(), instance.take(), instance.view) == ((), (), ViewState.NEW)


def test_a_writer_that_returns_with_nothing_leaves_the_instance_alive() -> None:
    for word in ("a-2", "a~2"):
        instance = Play(1).run(f"aS1 take {word}")
        instance.writer_returned(b"a" * 16, [])
        assert instance.state is ALIVE


def test_under_resource_limits_what_comes_again_takes_the_place_of_its_original() -> None:
    instance = Play(0, max_samples=1).run("aS1 a-2 a+")
    assert shown(instance.timeline) == "D2 S1'"
    instance = Play(0, max_samples=1).run("aS1 a-2 a+S3")
    assert (shown(instance.timeline), instance.arrivals[Arrival.REJECTED]) == ("D2 S1'", 1)


def test_every_state_knows_every_change_and_every_state_is_reached() -> None:
    assert {(state, change) for state, moves in MOVES.items() for change in moves} == set(
        itertools.product(InstanceState, InstanceEvent)
    )
    reached = {InstanceState.NONE}
    for _ in InstanceState:
        reached |= {move.state for state in reached for move in MOVES[state].values()}
    assert reached == set(InstanceState)
    for state, moves in MOVES.items():
        for change, move in moves.items():
            reborn = state not in (InstanceState.NONE, ALIVE) and move.state is ALIVE
            assert move.disposed_generations + move.no_writers_generations == reborn
            assert not move.disposed_generations or (state is DISPOSED and change is InstanceEvent.DATA)
            assert not move.no_writers_generations or state is NO_WRITERS
