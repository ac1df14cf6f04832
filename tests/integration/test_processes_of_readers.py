"""A process of readers is served once, whatever its participants are; what comes again is counted."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.integration.configurations import Settings
from tests.integration.lab import Lab
from tests.integration.programs import Program
from tests.tables import table_rows

pytestmark = pytest.mark.dds

COUNT = 50
LOST_DELIVERER_S = 10.0
"""The lease of what a node delivers with."""
A, BOTH, PATTERN = ["stock_a"], ["stock_a", "stock_b"], ["stock_*"]


def apart(count: int, **options: Any) -> dict[str, Any]:
    return {"make": count, "apart": True, **options}


ROWS: dict[str, list[list[dict[str, Any]]]] = {
    "three participants with a reader each, together": [[apart(3)]],
    "the same, within a tenth of a second": [[apart(3, pause_s=0.05)]],
    "one of partitions `a` and `b` and one of `*`, together": [
        [{"make": 1, "partitions": BOTH}, apart(1, partitions=PATTERN)]
    ],
    "three, each when those before have everything": [[{"make": 1}]] * 3,
    "three participants with a reader each, the same": [[apart(1)]] * 3,
    "one of partition `a`, later one of `a` and `b`": [[{"make": 1}], [{"make": 1, "partitions": BOTH}]],
}
"""The readers that come in each round, when all before have everything; the writer is in partition a."""
MEANWHILE = [
    [[{"make": 3, "apart": is_apart, "pause_s": pause_s}]]
    for is_apart in (False, True)
    for pause_s in (0.2, 0.35)
]
"""Readers that come while those before are served: what they see again depends on the moment."""
COLUMNS: dict[str, dict[str, Any]] = {
    "by reception": {"by_source": False},
    "by source time, writers ended": {"by_source": True},
    "by source time, writers live": {"by_source": True, "lives": True},
}


class Column:
    """A process of readers with a topic for each row."""

    def __init__(
        self,
        lab: Lab,
        number: int,
        rows: list[list[list[dict[str, Any]]]],
        *,
        by_source: bool,
        lives: bool = False,
    ) -> None:
        self.rows = rows
        self.topics = [f"T{number}{row}" for row in range(len(self.rows))]
        steps = [{"topic": topic, "count": COUNT, "time": 1_000, "partitions": A} for topic in self.topics]
        writer = lab.program("writer", steps=steps, by_source=by_source)
        writer.answer("done")
        if not lives:
            assert writer.end() == 0
        self._process = lab.program("readers_in_turn", by_source=by_source)
        self._process.answer("ready")
        self._lives = lives
        self._made: dict[str, list[int]] = {topic: [] for topic in self.topics}

    def make(self, number: int) -> None:
        """Let the readers of a round come, one row after the other."""
        for topic, rounds in zip(self.topics, self.rows, strict=True):
            for command in rounds[number] if number < len(rounds) else ():
                self._process.tell(**{"topic": topic, "partitions": A, **command})
                self._process.answer("made")
                made = sum(map(len, self._made.values()))
                self._made[topic] += range(made, made + command["make"])

    def settle(self) -> None:
        """Wait until all readers have taken everything, and that no writer is left if there is none."""
        for topic, which in [(topic, which) for topic, made in self._made.items() for which in made]:
            assert has(self._process, which)[0] == COUNT, topic
            if not self._lives:
                self._process.tell(ended=[which, COUNT])
                self._process.answer("ended")

    def repeated(self, topic: str) -> list[int]:
        """How many samples came again to each reader of a row."""
        return [has(self._process, which)[1] for which in self._made[topic]]


def has(process: Program, which: int) -> list[int]:
    process.tell(want=[which, COUNT])
    found: list[int] = process.answer("has")
    return found


def are_over(lab: Lab) -> bool:
    events = [one["event"] for one in lab.trace("n1", "deliver.started", "deliver.finished")]
    return events.count("deliver.started") == events.count("deliver.finished")


def test_a_process_is_served_once_and_what_comes_again_is_counted(lab: Lab) -> None:
    """The table of docs/readers.md; the node counts for each reader what that reader sees again."""
    table = {row["Readers of one process"]: row for row in table_rows("readers.md", "Readers of one process")}
    assert [*table] == [*ROWS]
    lab.start_complete("n1", settings=Settings())
    rows = [*ROWS.values()]
    columns = {name: Column(lab, at, rows, **options) for at, (name, options) in enumerate(COLUMNS.items())}
    for number in range(max(map(len, ROWS.values()))):
        for column in columns.values():
            column.make(number)
        for column in columns.values():
            column.settle()
        lab.seen.wait_for("all deliveries are over", lambda: are_over(lab))
        for column in columns.values():  # earlier readers may have got something once more
            column.settle()
    seen = {name: [*map(column.repeated, column.topics)] for name, column in columns.items()}
    wanted = {
        name: [[COUNT * int(times) for times in row[name].split(", ")] for row in table.values()]
        for name in columns
    }
    assert seen == wanted
    topics = [topic for column in columns.values() for topic in column.topics]
    sums = [sum(readers) for rows in seen.values() for readers in rows]

    def is_counted() -> bool:
        shown = lab.seen.node("n1")
        return shown is not None and shown.counters["repeated"] >= sum(sums)

    lab.seen.wait_for("it is counted", is_counted)
    shown = lab.seen.node("n1")
    assert shown is not None
    counted = [
        sum(one.counts.get("repeated", 0) for one in shown.deviations if one.topic == topic)
        for topic in topics
    ]
    assert (counted, shown.counters["repeated"]) == (sums, sum(sums))


def test_what_comes_again_to_readers_that_come_while_others_are_served_is_counted(lab: Lab) -> None:
    """Discovery tells the node of a reader when that has got the end of the delivery under way."""
    lab.start_complete("n1", settings=Settings())
    column = Column(lab, 3, [*MEANWHILE, [[{"make": 1}], [{"make": 1}]]], by_source=False)
    for number in range(2):  # when the last reader is served, all that came before it are
        column.make(number)
        column.settle()

    def are_counted() -> bool:
        shown = lab.seen.node("n1")
        return shown is not None and all(
            sum(column.repeated(topic))
            <= sum(one.counts.get("repeated", 0) for one in shown.deviations if one.topic == topic)
            for topic in column.topics
        )

    lab.seen.wait_for("nothing that came again is left out", are_counted)


def test_readers_that_stand_still_while_their_node_is_lost_get_all_and_repetitions_are_counted(
    lab: Lab,
) -> None:
    """They lose the writer that had begun to deliver to them; another node does not know how far it came."""
    count = 3_000
    for name, priority in (("n1", 200), ("n2", 100)):
        lab.configure(name, Settings().with_priority(priority))
    lab.start_complete("n1", "n2")
    orders = {"T1": True, "T0": False}
    for topic, by_source in orders.items():
        # Large samples, so that the node waits for acknowledgements in the middle.
        steps = [{"count": count, "time": 1_000, "text_bytes": 20_000}]
        lab.write(*steps, readers=2, topic=topic, by_source=by_source)
    lab.seen.wait_for("it is kept", lambda: all(lab.seen.stored(n) == 2 * count for n in ("n1", "n2")))
    readers = []
    for topic, by_source in orders.items():
        reader = lab.reader(topic=topic, by_source=by_source)
        reader.program.answer("first")
        reader.program.signal(signal.SIGSTOP)
        readers.append(reader)
    stopped_s = time.monotonic()
    assert lab.trace("n1", "deliver.finished") == []
    lab.kill("n1")
    while time.monotonic() < stopped_s + LOST_DELIVERER_S + 2.0:
        time.sleep(0.1)
    for reader in readers:
        reader.program.signal(signal.SIGCONT)
    for reader in readers:
        reader.wait_instances(count)
    lab.wait_delivered(2)
    for topic, reader in zip(orders, readers, strict=True):
        repeated = reader.tally()["repeated"]
        shown = lab.seen.node("n2")
        assert shown is not None
        counted = sum(one.counts.get("repeated", 0) for one in shown.deviations if one.topic == topic)
        assert 0 < repeated <= counted == count
