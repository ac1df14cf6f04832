"""The timelines of tests.timelines with simulated nodes: what a reader did not hear comes through merges.

Each of the hosts a, b and r has a node; writers are on a and b, and the reader, of the client library, on r.
A writer is lost because the links of its host are cut. What it writes meanwhile only its own node hears.
"""

from __future__ import annotations

import re

import pytest

from engine.core.messages import ReaderKey
from engine.dataset.groups import KEEP_ALL
from engine.dataset.sample import Sample, with_digest
from engine.simulator.options import TopicPlan
from engine.simulator.simulated_node import SimulatedNode
from ospltool.client.cache import SampleCache
from tests.simulation.scenarios import LOST_S, NS, Scenario, node
from tests.timelines import ROWS, STATUS, Row, shown

HOSTS = ("a", "b", "r")
NUMBER = 1
EVERYTHING = 1_000


def times_of(row: Row) -> list[int]:
    """The times of a script, of facts of writers and of their losses, where it has them."""
    return [int(found) for found in re.findall(r"\d+", row.script)]


def is_playable(row: Row) -> bool:
    """Whether clocks could have said so, and only writers that are there speak; writers only write here."""
    times, away = times_of(row), set[str]()
    for word in row.script.split():
        if word in ("take", "read"):
            continue
        if word[1] in "-~":
            away.add(word[0])
        elif word[1] == "+":
            away.discard(word[0])
        elif word[0] in away:
            return False
    return times == sorted(set(times)) or row.what == "true, others are left"


class Play:
    """A reader that goes through a script, and the system around it."""

    def __init__(self) -> None:
        self.scenario = Scenario(
            *(node(name) for name in HOSTS), topics=(TopicPlan(NS, "Reading", depth=KEEP_ALL),)
        )
        self.scenario.start()
        self.scenario.until(self.scenario.complete)
        self.cache = SampleCache(KEEP_ALL)
        self.cache.group_depth(0)
        self.names: dict[int, str] = {}
        self.away: set[str] = set()
        self.guids: dict[str, bytes] = {}
        self.key = b""
        for name in "ab":
            self.scenario.writer(name)
        reader = self.scenario.reader("r")
        served = reader.deliver

        def take(key: ReaderKey, samples: tuple[Sample, ...], node: SimulatedNode) -> None:
            served(key, samples, node)
            self.cache.add_update(list(samples))

        reader.deliver = take  # type: ignore[method-assign]  # what nodes give goes to the cache, too
        self.scenario.run(1.0)

    def run(self, script: str) -> SampleCache:
        for word in script.split():
            self._word(word)
        if self.away:
            self.scenario.run(LOST_S)
        else:
            self.scenario.settle()
        return self.cache

    def _word(self, word: str) -> None:
        name, what = word[0], word[1]
        if word in ("take", "read"):
            getattr(self.cache, word)(EVERYTHING)
        elif what in "-~":
            self.away.add(name)
            self.scenario.cut(name, " ".join(other for other in HOSTS if other != name))
            self.scenario.run(LOST_S)
            time_ns = self.scenario.cluster.clocks["r"].wall_ns()
            self.names[time_ns] = word[2:]
            if name in self.guids:
                self.cache.lost(self.guids[name], time_ns, autodispose=what == "-")
            self.scenario.run(0.5)
        elif what == "+":
            if word[2:]:
                self._write(name, word[2:])
            self.away.discard(name)
            for other in set(HOSTS) - self.away - {name}:
                self.scenario.cluster.network.restore(name, other)
                self.scenario.cluster.network.restore(other, name)
            self.cache.found(self.guids[name])
            self.scenario.run(LOST_S)
        else:
            self._write(name, word[1:])

    def _write(self, name: str, said: str) -> None:
        record = self.scenario.writer(name).write(0, STATUS[said[0]], NUMBER)
        self.names[record.source_time_ns] = said[1:]
        self.guids[name], self.key = record.writer, record.key
        if name not in self.away:
            self.cache.found(record.writer)
            self.cache.add([with_digest(record)], is_historical=False)
        self.scenario.run(0.5)

    def timeline(self) -> str:
        """What the reader shows, with the times of the script."""
        known = self.cache._instances.get(self.key)
        entries = shown(known.instance.timeline) if known else ""
        for time_ns, name in self.names.items():
            entries = entries.replace(str(time_ns), name)
        return entries


PLAYABLE = [row for row in ROWS if is_playable(row)]


def test_most_rows_are_played() -> None:
    assert len(PLAYABLE) > 25


@pytest.mark.parametrize("row", PLAYABLE, ids=lambda row: row.what)
def test_timeline(row: Row) -> None:
    play = Play()
    cache = play.run(row.script)
    assert play.timeline() == row.timeline(KEEP_ALL)
    state = cache.state_of(play.key)
    assert (state.removeprefix("NOT_ALIVE_") if state else "NONE") == row.state
