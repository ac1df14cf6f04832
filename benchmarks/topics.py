"""Many topics and partitions: a late joiner, the restart of the node that holds them, and its memory.

Held against the same late joiner where all writers still live (TRANSIENT_LOCAL), without a node.
"""

from __future__ import annotations

from typing import Any, Final

from benchmarks import stage as stages
from benchmarks.programs import Program
from benchmarks.rows import Bar, Is, Row

AREA: Final = "topics"
NODE: Final = "n1"
SIZES: Final[dict[str, Any]] = {"size": 100, "count": 10, "topics": 300, "partitions": 4, "patience": 100}
IDLE: Final = 1_000
COUNT: Final = SIZES["count"] * SIZES["topics"] * SIZES["partitions"]


def run(repeat: int) -> list[Row]:
    """Each repetition with a node of its own."""
    runs = [(*_from_node(), _from_writers()) for _ in range(repeat)]
    idle = tuple(_idle_mb() for _ in range(repeat))
    late, used, restart, again, alive = (tuple(column) for column in zip(*runs, strict=True))
    what = f"{SIZES['topics']} topics x {SIZES['partitions']} partitions"
    baseline = Row(AREA, f"{what}, late joiner, from living writers", "s", alive)
    return [
        baseline,
        Row(AREA, f"{what}, late joiner, from a node", "s", late, bar=Bar(Is.AT_MOST, 5.0)).against(baseline),
        Row(AREA, "the same, processor time of the node", "s", used),
        Row(AREA, f"{what}, restart until complete", "s", restart, bar=Bar(Is.AT_MOST, 3.0)),
        Row(AREA, f"{IDLE:,} topics at rest, most memory of the node", "MB", idle, bar=Bar(Is.AT_MOST, 120)),
        Row(AREA, "late joiner after the restart", "s", again, bar=Bar(Is.AT_MOST, 5.0)),
    ]


def _late_joiner(options: dict[str, Any]) -> float:
    joiner = Program("join_topics", options, stages.environ())
    joiner.answer()
    answer = joiner.answer()
    joiner.end()
    if answer["got"] != COUNT:
        raise RuntimeError(f"the late joiner got {answer['got']} samples")
    return float(answer["last"])


def _from_node() -> tuple[float, float, float, float]:
    with stages.stage() as stage:
        options = {**SIZES, "domain": stage.domain_id}
        stages.start_and_wait(stage, NODE)
        publisher = Program("publish_topics", options, stages.environ())
        publisher.answer()
        publisher.end()
        stage.wait_for(
            "all are stored", lambda: stage.snapshots()[NODE].counters["stored"] == COUNT, stages.PATIENCE_S
        )
        before_s = stages.processor_s(stage.pid(NODE))
        late_s = _late_joiner(options)
        used_s = stages.processor_s(stage.pid(NODE)) - before_s
        stage.end(NODE)
        began_ns = stages.start_and_wait(stage, NODE)
        stages.wait_complete(stage, NODE)
        up_ns = stages.first_time_ns(stages.trace(stage, NODE), "Durability service up")
        return late_s, used_s, (up_ns - began_ns) / 1e9, _late_joiner(options)


def _idle_mb() -> float:
    """Of a node that keeps one sample of each of many topics, whose writers are gone."""
    with stages.stage() as stage:
        stages.start_and_wait(stage, NODE)
        options = {"size": 100, "count": 1, "topics": IDLE, "partitions": 1, "domain": stage.domain_id}
        publisher = Program("publish_topics", options, stages.environ())
        publisher.answer()
        publisher.end()
        stage.wait_for(
            "all are stored", lambda: stage.snapshots()[NODE].counters["stored"] == IDLE, stages.PATIENCE_S
        )
        return stages.peak_mb(stage.pid(NODE))


def _from_writers() -> float:
    with stages.stage() as stage:
        options = {**SIZES, "domain": stage.domain_id, "stays": True}
        publisher = Program("publish_topics", options, stages.environ())
        publisher.answer()
        try:
            return _late_joiner(options)
        finally:
            publisher.end()
