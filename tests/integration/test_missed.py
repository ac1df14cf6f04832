"""What readers get of writers that were cut off: what their node missed, and nothing twice."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.late_joiners import RETURN_S
from tests.integration.configurations import Settings
from tests.integration.hosts import hosts_lab

pytestmark = [pytest.mark.dds, pytest.mark.netns]

LEASE_S = 6.0
"""Longer than a difference lasts between two nodes."""
ORDERS = {"Tsou": True, "Trec": False}
COUNT = 5


def test_readers_get_what_was_written_before_their_node_knew_of_the_cut(tmp_path: Path) -> None:
    with hosts_lab(tmp_path, "abc", multicast="true", lease_s=LEASE_S) as hosts:
        lab = hosts.lab
        for name in ("n1", "n2"):
            lab.configure(name, Settings())
        view = hosts.start_seen("n1", "n2")
        readers = [{"topic": topic, "by_source": by_source} for topic, by_source in ORDERS.items()]
        reader = lab.program("timelines", prefix=lab.prefixes["n1"], readers=readers)
        reader.answer("ready")
        options = [{"readers": 3, "depth": 0, **each} for each in readers]
        writers = [hosts.writer("n3", **each) for each in options]

        def write() -> list[str]:
            began_ns = time.time_ns()
            for writer in writers:
                # Each time another step, because those of a step are of several instances.
                writer.tell(steps=[{"count": 1, "time": began_ns + at} for at in range(COUNT)])
                writer.answer("done")
            return [f"S{began_ns + at}" for at in range(COUNT)]

        def lacking(wanted: list[str]) -> dict[str, list[str]]:
            reader.tell(look=True)
            found = reader.answer("timelines")
            words = {topic: found[topic].get("0", {"words": []})["words"] for topic in ORDERS}
            return {topic: [word for word in wanted if word not in words[topic]] for topic in ORDERS}

        def wait(wanted: list[str]) -> None:
            deadline = time.monotonic() + 30.0
            while any((left := lacking(wanted)).values()):
                assert time.monotonic() < deadline, left
                time.sleep(0.1)

        def have(count: int) -> bool:
            return view.samples("n1") == view.samples("n2") == count * len(ORDERS)

        written = write()
        wait(written)
        hosts.network.part("a", "c")
        missed = write()
        view.wait_for("n1 has from n2 what it missed", lambda: have(2 * COUNT), LEASE_S)
        wait([*written, *missed])


def test_a_reader_that_comes_after_a_return_gets_each_sample_once(tmp_path: Path) -> None:
    """An earlier reader may not have been found by the returned writer yet: it gets those samples again."""
    order: dict[str, Any] = {"by_source": False, "depth": 0}
    with hosts_lab(tmp_path, "ab", multicast="true") as hosts:
        lab = hosts.lab
        for name in hosts.names:
            lab.configure(name, Settings())
        view = hosts.start_seen(*hosts.names)
        prefix = lab.prefixes["n1"]
        early = lab.program("timelines", prefix=prefix, readers=[{"topic": "Reading", **order}])
        late = lab.program("readers_in_turn", prefix=prefix, **order)
        for reader in (early, late):
            reader.answer("ready")

        def is_alive() -> bool:
            early.tell(look=True)
            return bool(early.answer("timelines")["Reading"]["0"]["state"] == "A")

        def has() -> list[int]:
            late.tell(want=[0, count])
            found: list[int] = late.answer("has")
            return found

        writer = hosts.writer("n2", readers=3, steps=[{"count": COUNT, "time": time.time_ns()}], **order)
        view.wait_for("n1 has the first samples", lambda: view.samples("n1") == COUNT)
        hosts.network.cut("b")
        view.wait_for("the writer is lost", lambda: not is_alive())
        # The node knows of that loss at about the same time, and of its fellow's not before.
        view.wait_for("the fellow is lost", lambda: lab.trace("n1", "fellow.disconnected"))
        hosts.network.heal("b")
        count = COUNT

        def write() -> None:
            nonlocal count
            writer.tell(steps=[{"count": 1, "time": time.time_ns()}])
            writer.answer("done")
            count += 1

        while not is_alive():
            write()
        since = time.monotonic()
        while time.monotonic() < since + RETURN_S / 2:
            write()
        view.wait_for("n1 has all", lambda: view.samples("n1") == count)
        late.tell(make=1)
        late.answer("made")
        assert has() == [count, 0]

        def is_given_again() -> bool:
            events = [one["event"] for one in lab.trace("n1", "deliver.started", "deliver.finished")]
            is_over = events.count("deliver.started") == events.count("deliver.finished")
            node = view.node("n1")
            return is_over and node is not None and node.counters["repeated"] > 0

        view.wait_for("the earlier reader is given them again", is_given_again)
        assert has() == [count, 0]
