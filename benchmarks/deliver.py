"""A late joiner gets everything: from a node, and from a writer that is still alive.

The second is what DDS does without us, as long as the writer lives (TRANSIENT_LOCAL). Then with more samples,
from the start of the process that joins: of the reader's, and of a node's for whose stored data it waits.
"""

from __future__ import annotations

from typing import Final

from benchmarks import newcomer
from benchmarks import stage as stages
from benchmarks.programs import Program
from benchmarks.rows import Bar, Is, Row

AREA: Final = "deliver"
COUNT: Final = 10_000
MANY: Final = 100_000
SIZE: Final = 100
NODE: Final = "n1"
LATE: Final = Bar(Is.AT_MOST, 2.0)
RESTARTED: Final = Bar(Is.AT_MOST, 1.5)


def run(repeat: int) -> list[Row]:
    """Each repetition with all."""
    node: list[dict[str, float]] = []
    writer: list[dict[str, float]] = []
    many: list[tuple[float, float]] = []
    for _ in range(repeat):
        node.append(_from_node())
        writer.append(_from_writer())
        many.append(_many())
    alive = Row(AREA, "last sample, from a living writer", "s", tuple(one["last"] for one in writer))
    reader, restart = (tuple(column) for column in zip(*many, strict=True))
    return [
        Row(AREA, "first sample, from a node", "s", tuple(one["first"] for one in node)),
        alive,
        Row(
            AREA,
            "last sample, from a node",
            "s",
            tuple(one["last"] for one in node),
            remark=f"{COUNT} instances of {SIZE} bytes; the writer is gone; from before the reader is made",
        ).against(alive),
        Row(AREA, f"{MANY:,} samples, last, from the start of the reader's process", "s", reader, bar=LATE),
        Row(
            AREA,
            f"{MANY:,} samples, last, from the start of a node with its store",
            "s",
            restart,
            bar=RESTARTED,
        ),
        *newcomer.rows(AREA, repeat),
    ]


def _begin_join(domain: int, durability: str, count: int) -> Program:
    options = {"domain": domain, "count": count, "durability": durability}
    joiner = Program("join", options, stages.environ())
    joiner.answer()
    return joiner


def _end_join(joiner: Program, count: int) -> dict[str, float]:
    answer = joiner.answer()
    joiner.end()
    if answer["got"] != count:
        raise RuntimeError(f"the late joiner got {answer['got']} samples")
    return answer


def _many() -> tuple[float, float]:
    """Seconds to the last sample, from the start of the reader and, in a second run, of the node."""
    with stages.stage() as stage:
        stages.start_and_wait(stage, NODE)
        stages.fill(stage, NODE, MANY, SIZE)
        joiner = _begin_join(stage.domain_id, "persistent", MANY)
        reader_s = (_end_join(joiner, MANY)["ended_ns"] - joiner.began_ns) / 1e9
        stage.end(NODE)
        joiner = _begin_join(stage.domain_id, "persistent", MANY)
        began_ns = stages.start_and_wait(stage, NODE)
        return reader_s, (_end_join(joiner, MANY)["ended_ns"] - began_ns) / 1e9


def _from_node() -> dict[str, float]:
    with stages.stage() as stage:
        stages.start_and_wait(stage, NODE)
        stages.fill(stage, NODE, COUNT, SIZE)
        return _end_join(_begin_join(stage.domain_id, "persistent", COUNT), COUNT)


def _from_writer() -> dict[str, float]:
    with stages.stage() as stage:
        holder = Program("hold", {"domain": stage.domain_id, "count": COUNT, "size": SIZE}, stages.environ())
        holder.answer()
        try:
            return _end_join(_begin_join(stage.domain_id, "transient local", COUNT), COUNT)
        finally:
            holder.end()
