"""A late joiner gets 10,000 instances: from a node, and from a writer that is still alive.

The second is what DDS does without us, as long as the writer lives (TRANSIENT_LOCAL).
"""

from __future__ import annotations

from typing import Final

from benchmarks import stage as stages
from benchmarks.programs import Program
from benchmarks.rows import Row

AREA: Final = "deliver"
COUNT: Final = 10_000
SIZE: Final = 100
NODE: Final = "n1"


def run(repeat: int) -> list[Row]:
    """Each repetition with both."""
    node: list[dict[str, float]] = []
    writer: list[dict[str, float]] = []
    for _ in range(repeat):
        node.append(_from_node())
        writer.append(_from_writer())
    alive = Row(AREA, "last sample, from a living writer", "s", tuple(one["last"] for one in writer))
    return [
        Row(AREA, "first sample, from a node", "s", tuple(one["first"] for one in node)),
        alive,
        Row(
            AREA,
            "last sample, from a node",
            "s",
            tuple(one["last"] for one in node),
            remark=f"{COUNT} instances of {SIZE} octets; the writer is gone; from before the reader is made",
        ).against(alive),
    ]


def _join(domain: int, durability: str) -> dict[str, float]:
    options = {"domain": domain, "count": COUNT, "durability": durability}
    joiner = Program("join", options, stages.environ())
    answer = joiner.answer()
    joiner.end()
    if answer["got"] != COUNT:
        raise RuntimeError(f"the late joiner got {answer['got']} samples")
    return answer


def _from_node() -> dict[str, float]:
    with stages.stage() as stage:
        stages.start_and_wait(stage, NODE)
        stages.fill(stage, NODE, COUNT, SIZE)
        return _join(stage.domain_id, "persistent")


def _from_writer() -> dict[str, float]:
    with stages.stage() as stage:
        holder = Program("hold", {"domain": stage.domain_id, "count": COUNT, "size": SIZE}, stages.environ())
        holder.answer()
        try:
            return _join(stage.domain_id, "transient local")
        finally:
            holder.end()
