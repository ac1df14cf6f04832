"""Persistence services as processes on Cyclone DDS: they keep the same, whatever ends or comes back."""

from __future__ import annotations

import pytest

from tests.redundancy.replicas import Replicas, not_before, write

pytestmark = pytest.mark.dds

COUNT = 100


@pytest.mark.parametrize("count", [2, 5])
def test_all_keep_the_same_when_a_provider_is_lost_and_comes_back(replicas: Replicas, count: int) -> None:
    names = "abcde"[:count]
    replicas.start(*names)
    replicas.wait_connected(*names)
    writer = replicas.writer("a", "b")
    writer.answer("done")
    write(writer, {"count": COUNT, "time": 1_000})
    replicas.wait_equal(*names, count=COUNT)
    lost = check_providers(replicas, names)
    check_given_once(replicas, names)
    replicas.kill(lost)
    left = [name for name in names if name != lost]
    write(writer, {"count": COUNT, "time": 2_000, "value": 1})
    replicas.wait_equal(*left, count=COUNT, where=not_before(2_000))
    replicas.start(lost)
    replicas.wait_equal(*names, count=COUNT, where=not_before(2_000))
    assert replicas.stop(*names) == [0] * count


def check_providers(replicas: Replicas, names: str) -> str:
    """Who is connected with the writer takes from it, the others from one of these; returns that one."""

    def are_chosen() -> bool:
        shown = {name: replicas.writers(name) for name in names}
        return all(len(writers) == 1 for writers in shown.values()) and all(
            writers[0].path == ((name,) if name in "ab" else (writers[0].provider, name))
            for name, writers in shown.items()
        )

    replicas.wait_for("providers are chosen", are_chosen)
    assert {replicas.writers(name)[0].provider for name in "ab"} == {"original"}
    used = {replicas.writers(name)[0].provider for name in names[2:]}
    assert used <= {"a", "b"}
    return used.pop() if used else "a"


def check_given_once(replicas: Replicas, names: str) -> None:
    """A replica without a connection to the writer got each sample once with each reader of another replica.

    On a busy machine a provider lags, and the reader of the next one asks for what is on its way, too.
    """
    replicas.wait_for(
        "they show what they got",
        lambda: all(replicas.counter(name, "received") >= COUNT for name in names[2:]),
    )
    shown = replicas.shown()
    for counters in (shown[name].counters for name in names[2:]):
        repeated = counters.get("repeated", 0)
        assert counters["received"] - COUNT == repeated <= COUNT * (counters["subscriptions"] - 1)
