"""The end of a writer with autodispose: a fact on all nodes, through restarts, and then the data goes."""

from __future__ import annotations

import time

import pytest

from tests.integration.configurations import Settings
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

COUNT = 20
NEVER_NS = 3_600_000_000_000


def states(lab: Lab, topic: str, **options: object) -> dict[str, int]:
    """What a late joiner sees once it has been served, by state."""
    before = len(lab.deliveries())
    reader = lab.reader(topic=topic, **options)
    lab.wait_delivered(before + 1)
    time.sleep(0.3)
    found = reader.tally()["states"]
    reader.program.end()
    return found


def held(lab: Lab, name: str) -> int:
    shown = lab.seen.node(name)
    assert shown is not None
    return sum(space.samples for space in shown.name_spaces)


def test_x(lab: Lab) -> None:
    names = ("n1", "n2")
    for name, priority in zip(names, (200, 100)):
        lab.configure(name, Settings().with_priority(priority))
    lab.start_complete(*names)
    writers = {}
    for topic, cleanup in (("Kept", NEVER_NS), ("Purged", 0)):
        for how in ("Ended", "Killed"):
            writers[topic, how] = lab.program("writer", topic=topic + how, autodispose=True, cleanup_ns=cleanup, readers=2,
                    steps=[{"count": COUNT, "time": time.time_ns()}])
    for w in writers.values():
        w.answer("done")
    t0 = time.monotonic()
    for (topic, how), w in writers.items():
        if how == "Ended":
            assert w.end() == 0
        else:
            w.process.kill() if hasattr(w, "process") else w.kill()
    for _ in range(20):
        print(round(time.monotonic() - t0, 1), [ (s.name, [sp for sp in s.name_spaces]) for s in [lab.seen.node("n1")]] if False else [lab.trace(n, "writer.disposed", "purge.done", "writer.ended") for n in names])
        time.sleep(1)
    for topic in ("KeptEnded", "KeptKilled", "PurgedEnded", "PurgedKilled"):
        print(topic, states(lab, topic))
    lab.kill(*names)
    print({n: {k: len(v) for k, v in lab.on_disk(n).items()} for n in names})
    lab.start_again(*names)
    for topic in ("KeptEnded", "KeptKilled", "PurgedEnded", "PurgedKilled"):
        print(topic, states(lab, topic))
    assert 0
