"""Deliveries to the process of readers: many small ones share their waits, and each group keeps its order."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.name_spaces import Group
from engine.dds.errors import ALREADY_DELETED, DdsError
from engine.dds.shared_waits import TOGETHER, Waits, completed, together
from engine.node.alive_instances import Process


class Session:
    """Stands for a session with a process; nothing is delivered."""

    kept = 0
    crowd: frozenset[tuple[str, str, str]] = frozenset()

    def abandon(self) -> None: ...

    def close(self) -> None: ...


class Deliveries:
    """Deliveries that say when they begin, write and end."""

    def __init__(self) -> None:
        self.said: list[str] = []
        session: Any = Session()
        self.process = Process(lambda: session)

    def put(self, name: str, *topics: str, fails: bool = False) -> None:
        def job(_: object) -> Waits[None]:
            self.said.append(f"{name} begins")
            yield 0.001
            if fails:
                raise DdsError(ALREADY_DELETED, name)
            self.said.append(f"{name} writes")
            yield 0.0
            self.said.append(f"{name} ends")

        groups = frozenset(Group("p", topic) for topic in topics)
        self.process.put(job, lambda error: self.said.append(f"{name} failed"), groups)


@pytest.fixture
def deliveries() -> Deliveries:
    return Deliveries()


def test_deliveries_of_different_groups_wait_together(deliveries: Deliveries) -> None:
    deliveries.put("one", "T1")
    deliveries.put("two", "T2")
    deliveries.process.work()
    steps = ["begins", "writes", "ends"]
    assert deliveries.said == [f"{name} {step}" for step in steps for name in ("one", "two")]


@pytest.mark.parametrize("topics", [("T1",), ("T2", "T1"), ()])
def test_what_follows_in_the_same_group_waits_for_its_turn(
    deliveries: Deliveries, topics: tuple[str, ...]
) -> None:
    """As does anything that says no group, such as the end of instances."""
    deliveries.put("one", "T1")
    deliveries.put("two", *topics)
    deliveries.put("three", "T3")
    deliveries.process.work()
    assert deliveries.said[:3] == ["one begins", "one writes", "one ends"]
    assert deliveries.said.index("two begins") < deliveries.said.index("three begins")


def test_one_that_fails_does_not_touch_the_others(deliveries: Deliveries) -> None:
    deliveries.put("one", "T1")
    deliveries.put("two", "T2", fails=True)
    deliveries.put("three", "T3")
    deliveries.process.work()
    assert [line for line in deliveries.said if "ends" in line or "failed" in line] == [
        "two failed",
        "one ends",
        "three ends",
    ]


def test_a_process_that_cannot_be_reached_fails_all_of_them() -> None:
    deliveries = Deliveries()

    def unreachable() -> Any:
        raise DdsError(ALREADY_DELETED, "open")

    deliveries.process = Process(unreachable)
    deliveries.put("one", "T1")
    deliveries.put("two", "T2")
    deliveries.process.work()
    assert deliveries.said == ["one failed", "two failed"]


def test_many_pieces_of_work_go_on_a_few_at_a_time_and_keep_their_order() -> None:
    running = most = 0

    def piece(number: int) -> Waits[int]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(number % 3):
            yield 0.0
        running -= 1
        return number

    count = 3 * TOGETHER + 1
    assert completed(together(map(piece, range(count)))) == list(range(count))
    assert most <= TOGETHER
