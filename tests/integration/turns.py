"""What an application must get whose readers of one topic come and go in one process."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.lab import Lab

COUNT = 20


def check_readers_in_turn(lab: Lab, wait_deliveries: Callable[[int], None]) -> None:
    """Each reader gets what was written before it; one after another, at once, and after all were gone."""
    program = lab.program("readers_in_turn")
    program.answer("ready")

    def make() -> None:
        program.tell(make=1)
        program.answer("made")

    def has(which: int) -> list[int]:
        program.tell(want=[which, COUNT])
        found: list[int] = program.answer("has")
        return found

    make()
    assert has(0) == [COUNT, 0]
    wait_deliveries(1)
    make()
    assert has(1) == [COUNT, 0], "a later one of the same process"
    wait_deliveries(2)
    for which in (0, 1):
        program.tell(close=which)
        program.answer("closed")
    make()
    assert has(2) == [COUNT, 0], "one that comes when there is none"
    wait_deliveries(3)
    assert program.end() == 0
