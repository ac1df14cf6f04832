"""How many samples a second a node takes in, against a tap that only drains and against a plain reader.

The same publisher writes to each of them in turn, as fast as they let it: what it needs until everything is
acknowledged is what is measured. Queues are small against the number of samples. The processor time that the
tap and the node need for a sample is printed beside it: two cores have to do for the publisher, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Final

from benchmarks import stage as stages
from benchmarks.programs import Program
from benchmarks.rows import Bar, Is, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ospltool.demo.acts import Stage

AREA: Final = "capture"
NODE: Final = "n1"


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """Samples of `size` bytes, `count` of them, written in turn to `instances` instances."""

    label: str
    size: int
    count: int
    instances: int
    bar: Bar | None = None


REACHED: Final = Bar(Is.AT_LEAST, 0.9, of_ratio=True)
LOADS: Final = (
    Load("100 B, 1,000 instances", 100, 600_000, 1_000, REACHED),
    Load("1 KB, 1,000 instances", 1000, 300_000, 1_000, REACHED),
    Load("16 KB, 1,000 instances", 16_000, 60_000, 1_000, REACHED),
    Load("64 KB, 1,000 instances", 64_000, 15_000, 1_000, REACHED),
    Load("100 B, each a new instance", 100, 200_000, 200_000),
)


def run(repeat: int) -> list[Row]:
    """Each load, each repetition with all three consumers."""
    rows: list[Row] = []
    for load in LOADS:
        drained: list[float] = []
        taken: list[float] = []
        captured: list[float] = []
        stored: list[float] = []
        in_memory: list[float] = []
        tap_us: list[float] = []
        node_us: list[float] = []
        for _ in range(repeat):
            rate, busy_us = _reader("drain", load)
            drained.append(rate)
            tap_us.append(busy_us)
            taken.append(_reader("take", load)[0])
            in_memory.append(_node(load, is_transient=True)[0])
            rate, on_disk, busy_us = _node(load)
            captured.append(rate)
            stored.append(on_disk)
            node_us.append(busy_us)
        label = load.label
        tap = Row(AREA, f"tap that only drains, {label}", "samples/s", tuple(drained))
        plain = Row(AREA, f"plain ddspy_take, {label}", "samples/s", tuple(taken))
        node = Row(AREA, f"node, {label}", "samples/s", tuple(captured))
        disk = Row(AREA, f"node, until on disk, {label}", "samples/s", tuple(stored))
        memory = Row(AREA, f"node that keeps it in memory, {label}", "samples/s", tuple(in_memory))
        rows += [tap, plain, node.against(tap, load.bar), disk.against(tap), memory.against(tap)]
        for who, used_us in (("tap", tap_us), ("node", node_us)):
            rows.append(Row(AREA, f"{who}, processor time of a sample, {label}", "us", tuple(used_us)))
        rows.append(
            Row(AREA, f"node against plain take, {label}", "samples/s", tuple(captured)).against(plain)
        )
    return rows


@contextlib.contextmanager
def _published(stage: Stage, load: Load, *, is_transient: bool = False) -> Iterator[dict[str, float]]:
    """What the publisher says once everything is acknowledged; it stays while the block runs."""
    options = {
        "domain": stage.domain_id,
        "size": load.size,
        "count": load.count,
        "instances": load.instances,
        "is_transient": is_transient,
    }
    publisher = Program("publish", options, stages.environ())
    try:
        yield publisher.answer()
    finally:
        publisher.end()


def _reader(role: str, load: Load) -> tuple[float, float]:
    """Samples a second into a process that does nothing with them; its processor time for one, in us."""
    with stages.stage() as stage:
        consumer = Program(role, {"domain": stage.domain_id, "count": load.count}, stages.environ())
        consumer.answer()
        busy_s = stages.processor_s(consumer.pid)
        with _published(stage, load) as published:
            if consumer.answer()["got"] != load.count:
                raise RuntimeError(f"{role} did not get everything")
        used_s = stages.processor_s(consumer.pid) - busy_s
        consumer.end()
        return load.count / published["seconds"], used_s / load.count * 1e6


def _node(load: Load, *, is_transient: bool = False) -> tuple[float, float, float]:
    """Samples a second into a node, and until the last one is kept; processor time for one, in us.

    What is TRANSIENT is kept in memory, all else on the disk.
    """
    with stages.stage() as stage:
        stages.start_and_wait(stage, NODE)
        busy_s = stages.processor_s(stage.pid(NODE))
        with _published(stage, load, is_transient=is_transient) as published:
            pass
        stored = 0 if is_transient else load.instances

        def has_all() -> bool:
            shown = stage.snapshots()[NODE]
            return shown.counters["captured"] == load.count and stage.stored(NODE) == stored

        stage.wait_for(f"{load.count} samples are captured", has_all, stages.PATIENCE_S)
        stage.wait_for(
            "all are on disk", lambda: not stage.snapshots()[NODE].counters["queued"], stages.PATIENCE_S
        )
        ended_ns = stage.snapshots()[NODE].time_ns
        used_us = (stages.processor_s(stage.pid(NODE)) - busy_s) / load.count * 1e6
        kept = load.count * 1e9 / (ended_ns - published["began_ns"])
        return load.count / published["seconds"], kept, used_us
