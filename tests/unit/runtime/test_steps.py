"""Long work is cut into steps: the node looks at everything else in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine.runtime.steps import BUDGET_S, Steps, StreamFault

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP_S = 0.001


class Ticking:
    """A clock that only work moves."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ns(self) -> int:
        return int(self.now * 1e9)


def piece(clock: Ticking, steps: int, done: list[int], fault: StreamFault | None = None) -> Iterator[None]:
    for number in range(steps):
        clock.now += STEP_S
        done.append(number)
        yield
    if fault is not None:
        raise fault


@pytest.mark.parametrize("budget_s", [BUDGET_S, 0.0, 0.0205])
def test_one_call_carries_out_at_most_its_budget_and_one_step(budget_s: float) -> None:
    clock, done, faults = Ticking(), list[int](), list[StreamFault]()
    steps = Steps(clock, faults.append)
    steps.budget_s = budget_s
    steps.begin(piece(clock, 100, done))
    while steps.are_left:
        before_s, had = clock.now, len(done)
        steps.work()
        assert clock.now - before_s <= budget_s + STEP_S * 1.001
        assert len(done) > had or not steps.are_left
    assert done == list(range(100)), "every step was carried out, in order"
    assert faults == []


def test_the_fault_of_a_peer_ends_its_piece_only() -> None:
    clock, done, faults = Ticking(), list[int](), list[StreamFault]()
    fault = StreamFault("damaged")
    steps = Steps(clock, faults.append)
    steps.begin(piece(clock, 3, [], fault))
    steps.begin(piece(clock, 3, done))
    while steps.are_left:
        steps.work()
    assert (faults, done) == ([fault], [0, 1, 2])
