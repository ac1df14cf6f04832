"""What a node missed, and has from another one before it knows that the writer is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

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
