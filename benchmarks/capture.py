"""How many samples a second a node takes in, against a tap that only drains and against a plain reader.

The same publisher writes to each of them in turn, as fast as they let it: what it needs until everything is
acknowledged is what is measured. Queues are small against the number of samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks import stage as stages
from benchmarks.programs import INSTANCES, Program
from benchmarks.rows import Bar, Is, Row

if TYPE_CHECKING:
    from ospltool.demo.stage import Stage

AREA: Final = "capture"
LOADS: Final = {"100 B": (100, 600_000), "1 KB": (1000, 300_000)}
"""Octets of a sample, and how many are written."""
NODE: Final = "n1"


def run(repeat: int) -> list[Row]:
    """Each size, each repetition with all three consumers."""
    rows: list[Row] = []
    for label, (size, count) in LOADS.items():
        drained: list[float] = []
        taken: list[float] = []
        captured: list[float] = []
        stored: list[float] = []
        for _ in range(repeat):
            drained.append(_reader("drain", size, count))
            taken.append(_reader("take", size, count))
            rate, on_disk = _node(size, count)
            captured.append(rate)
            stored.append(on_disk)
        tap = Row(AREA, f"tap that only drains, {label}", "samples/s", tuple(drained))
        plain = Row(AREA, f"plain ddspy_take, {label}", "samples/s", tuple(taken))
        node = Row(AREA, f"node, {label}", "samples/s", tuple(captured))
        disk = Row(AREA, f"node, until on disk, {label}", "samples/s", tuple(stored))
        bar = Bar(Is.AT_LEAST, 0.8, of_ratio=True)
        rows += [tap, plain, node.against(tap, bar), disk.against(tap)]
        rows.append(
            Row(AREA, f"node against plain take, {label}", "samples/s", tuple(captured)).against(plain)
        )
    return rows


def _publish(stage: Stage, size: int, count: int) -> dict[str, float]:
    options = {"domain": stage.domain_id, "size": size, "count": count, "instances": INSTANCES}
    publisher = Program("publish", options, stages.environ())
    answer = publisher.answer()
    publisher.end()
    return answer


def _reader(role: str, size: int, count: int) -> float:
    """Samples a second into a process that does nothing with them."""
    with stages.stage() as stage:
        consumer = Program(role, {"domain": stage.domain_id, "count": count}, stages.environ())
        consumer.answer()
        published = _publish(stage, size, count)
        if consumer.answer()["got"] != count:
            raise RuntimeError(f"{role} did not get everything")
        consumer.end()
        return count / published["seconds"]


def _node(size: int, count: int) -> tuple[float, float]:
    """Samples a second into a node, and until the last one is on its disk."""
    with stages.stage() as stage:
        stages.start_and_wait(stage, NODE)
        published = _publish(stage, size, count)

        def has_all() -> bool:
            shown = stage.snapshots()[NODE]
            return shown.counters["captured"] == count and stage.stored(NODE) == INSTANCES

        stage.wait_for(f"{count} samples are captured", has_all, stages.PATIENCE_S)
        stage.wait_for(
            "all are on disk", lambda: not stage.snapshots()[NODE].counters["queued"], stages.PATIENCE_S
        )
        ended_ns = stage.snapshots()[NODE].time_ns
        return count / published["seconds"], count * 1e9 / (ended_ns - published["began_ns"])
