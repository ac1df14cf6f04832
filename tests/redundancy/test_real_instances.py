"""Persistence services as processes on Cyclone DDS: they keep the same, whatever ends or comes back."""

from __future__ import annotations

import pytest

from tests.redundancy.instances import Instances, write

pytestmark = pytest.mark.dds

COUNT = 100


@pytest.mark.parametrize("count", [2, 5])
def test_all_keep_the_same_when_a_provider_is_lost_and_comes_back(instances: Instances, count: int) -> None:
    names = "abcde"[:count]
    instances.start(*names)
    instances.wait_connected(*names)
    writer = instances.writer("a", "b")
    writer.answer("done")
    write(writer, {"count": COUNT, "time": 1_000})
    instances.wait_equal(*names, count=COUNT)
    lost = check_providers(instances, names)
    check_given_once(instances, names)
    instances.kill(lost)
    left = [name for name in names if name != lost]
    write(writer, {"count": COUNT, "time": 2_000, "value": 1})
    instances.wait_equal(*left, count=COUNT)
    check_newest(instances, left[0], time_ns=2_000)
    instances.start(lost)
    instances.wait_equal(*names, count=COUNT)
    check_newest(instances, lost, time_ns=2_000)
    assert instances.stop(*names) == [0] * count


def check_providers(instances: Instances, names: str) -> str:
    """Who is connected with the writer takes from it, the others from one of these; returns that one."""

    def are_chosen() -> bool:
        shown = {name: instances.writers(name) for name in names}
        return all(len(writers) == 1 for writers in shown.values()) and all(
            writers[0].path == ((name,) if name in "ab" else (writers[0].provider, name))
            for name, writers in shown.items()
        )

    instances.wait_for("providers are chosen", are_chosen)
    assert {instances.writers(name)[0].provider for name in "ab"} == {"original"}
    used = {instances.writers(name)[0].provider for name in names[2:]}
    assert used <= {"a", "b"}
    return used.pop() if used else "a"


def check_given_once(instances: Instances, names: str) -> None:
    """Whoever is not connected with the writer got each sample once, or another time from another provider.

    On a busy machine one of them may change its provider meanwhile, which gives it everything again.
    """
    instances.wait_for(
        "they show what they got",
        lambda: all(instances.counter(name, "received") >= COUNT for name in names[2:]),
    )
    repeated = {name: instances.counter(name, "repeated") for name in names[2:]}
    assert {name: instances.counter(name, "received") - COUNT for name in repeated} == repeated
    assert sum(repeated.values()) <= COUNT


def check_newest(instances: Instances, name: str, time_ns: int) -> None:
    assert min(time for time, _, _ in instances.values(name).values()) >= time_ns
