"""Every pair of state and event of every table of the core, and the page that shows them."""

from __future__ import annotations

import ast
import itertools
import pathlib

import pytest

import engine.core
from docs import states as states_page
from engine.core import states
from engine.core.states import PHASES, InvariantError, Phase, ServiceState, Trigger, next_phase, service_state

CORE = pathlib.Path(engine.core.__path__[0])


def test_every_pair_is_in_the_table_or_a_fault_of_ours() -> None:
    for phase, trigger in itertools.product(Phase, Trigger):
        if trigger in PHASES[phase]:
            assert next_phase(phase, trigger) is PHASES[phase][trigger]
        else:
            with pytest.raises(InvariantError, match=phase.value):
                next_phase(phase, trigger)


def reachable(start: Phase) -> set[Phase]:
    """The phases to which a path leads."""
    found, new = {start}, [start]
    while new:
        more = set(PHASES[new.pop()].values()) - found
        found |= more
        new += more
    return found


def test_every_phase_is_reached_from_the_first() -> None:
    assert reachable(Phase.DISCOVER) == set(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_no_phase_is_a_dead_end(phase: Phase) -> None:
    assert Phase.COMPLETE in reachable(phase)
    assert phase is Phase.DISCOVER or Phase.DISCOVER not in reachable(phase), "discovery comes once"


@pytest.mark.parametrize("phase", Phase)
def test_a_change_of_master_is_possible_wherever_a_master_counts(phase: Phase) -> None:
    # The master may be lost or replaced at any moment; only before the election there is none.
    changes = {Trigger.MASTER_IS_SELF, Trigger.MASTER_IS_FELLOW, Trigger.MASTER_LOST} & PHASES[phase].keys()
    if phase in (Phase.DISCOVER, Phase.PASSIVE):
        assert changes == set()
    elif phase is not Phase.ELECT:
        assert {Trigger.MASTER_IS_FELLOW, Trigger.MASTER_LOST} <= changes


def test_a_set_once_complete_is_never_collected_again() -> None:
    assert reachable(Phase.COMPLETE) == {Phase.COMPLETE, Phase.MERGE}


def test_every_trigger_is_in_the_table_and_pulled_by_the_core() -> None:
    listed = {trigger for moves in PHASES.values() for trigger in moves}
    pulled = {
        node.attr
        for path in CORE.glob("*.py")
        if path.name != "states.py"
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Trigger"
    }
    assert listed == set(Trigger)
    assert pulled == {trigger.name for trigger in Trigger}


def test_the_service_is_where_its_slowest_name_space_is() -> None:
    order = list(ServiceState)
    for size in range(1, len(Phase) + 1):
        for phases in itertools.combinations(Phase, size):
            slowest = min((service_state([phase]) for phase in phases), key=order.index)
            assert service_state(list(phases)) is slowest
            assert service_state([*phases, *phases[::-1]]) is slowest


def test_only_a_complete_phase_is_complete() -> None:
    assert [phase for phase in Phase if states.is_complete(phase)] == [Phase.COMPLETE]


def test_the_page_shows_the_tables_as_they_are() -> None:
    assert states_page.PAGE.read_text("utf-8") == states_page.page(), "run: python -m docs.states"
