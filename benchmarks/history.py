"""Many late joiners at once, one instance that keeps all, and steady overwriting."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from benchmarks import stage as stages
from benchmarks.programs import Program
from benchmarks.rows import Bar, Is, Row
from engine.store.store_directory import DATABASE

if TYPE_CHECKING:
    from ospltool.demo.acts import Stage

AREA: Final = "history"
NODE: Final = "n1"
SIZE: Final = 100
READERS: Final = 20
FEW: Final = 10_000
MANY: Final = 100_000
RATE: Final = 2_000
OVERWRITING_S: Final = 20.0
INSTANCES: Final = 1_000
LAST: Final = f"{READERS} late joiners at once, last sample of the last one"


def run(repeat: int) -> list[Row]:
    """Each repetition with nodes of its own; at most three."""
    runs = [{**_readers(), **_keep_all(), **_overwriting()} for _ in range(min(repeat, 3))]
    column = {what: tuple(each[what] for each in runs) for what in runs[0]}

    def row(what: str, unit: str, bar: Bar | None = None) -> Row:
        return Row(AREA, what, unit, column[what], bar=bar)

    alive = row("the same from a living writer", "s")
    early = row("overwriting, memory after a half", "MB")
    return [
        alive,
        row(
            f"{READERS} late joiners at once, last sample of the last one", "s", Bar(Is.AT_MOST, 2.0)
        ).against(alive),
        row(f"{READERS} late joiners at once, processor time of the node", "s"),
        row("one instance, KEEP_ALL, late joiner", "s", Bar(Is.AT_MOST, 2.0)),
        row("one instance, KEEP_ALL, restart", "s", Bar(Is.AT_MOST, 3.0)),
        row("one instance, KEEP_ALL, restart, processor time", "s"),
        early,
        row("overwriting, memory at the end", "MB").against(early, Bar(Is.AT_MOST, 1.1, of_ratio=True)),
        row("overwriting, log of the store", "MB", Bar(Is.AT_MOST, 8.0)),
        row("overwriting, file of the store", "MB"),
    ]


def _waiting(domain: int, durability: str, count: int) -> Program:
    options = {"domain": domain, "count": count, "durability": durability, "waits": True}
    joiner = Program("join", options, stages.environ())
    joiner.answer()
    return joiner


def _last_s(joiners: list[Program], count: int) -> float:
    """Seconds from the call that lets all make their readers to the last sample of the last one."""
    began_ns = time.time_ns()
    for joiner in joiners:
        joiner.go()
    ended_ns = began_ns
    for joiner in joiners:
        joiner.answer()
        answer = joiner.answer()
        if answer["got"] != count:
            raise RuntimeError(f"a late joiner got {answer['got']} samples")
        ended_ns = max(ended_ns, answer["ended_ns"])
    for joiner in joiners:
        joiner.end()
    return (ended_ns - began_ns) / 1e9


def _readers() -> dict[str, float]:
    with stages.stage() as stage:
        stages.start_and_wait(stage, NODE)
        stages.fill(stage, NODE, FEW, SIZE)
        joiners = [_waiting(stage.domain_id, "persistent", FEW) for _ in range(READERS)]
        before_s = stages.processor_s(stage.pid(NODE))
        late_s = _last_s(joiners, FEW)
        used_s = stages.processor_s(stage.pid(NODE)) - before_s
    with stages.stage() as stage:
        options = {"domain": stage.domain_id, "count": FEW, "size": SIZE}
        holder = Program("hold", options, stages.environ())
        holder.answer()
        alive_s = _last_s([_waiting(stage.domain_id, "transient local", FEW) for _ in range(READERS)], FEW)
        holder.end()
    return {
        LAST: late_s,
        f"{READERS} late joiners at once, processor time of the node": used_s,
        "the same from a living writer": alive_s,
    }


def _publish(stage: Stage, **options: Any) -> Program:
    return Program("publish", {"domain": stage.domain_id, "size": SIZE, **options}, stages.environ())


def _keep_all() -> dict[str, float]:
    with stages.stage() as stage:
        stages.start_and_wait(stage, NODE)
        publisher = _publish(stage, count=MANY, instances=1, depth=0)
        publisher.answer()
        publisher.end()
        stage.wait_for("all are stored", lambda: stage.stored(NODE) == MANY, stages.PATIENCE_S)
        late_s = _last_s([_waiting(stage.domain_id, "persistent", MANY)], MANY)
        stage.end(NODE)
        began_ns = stages.start_and_wait(stage, NODE)
        up_ns = stages.first_time_ns(stages.trace(stage, NODE), "Durability service up")
        used_s = stages.processor_s(stage.pid(NODE))
    return {
        "one instance, KEEP_ALL, late joiner": late_s,
        "one instance, KEEP_ALL, restart": (up_ns - began_ns) / 1e9,
        "one instance, KEEP_ALL, restart, processor time": used_s,
    }


def _overwriting() -> dict[str, float]:
    with stages.stage() as stage:
        stages.start_and_wait(stage, NODE)
        publisher = _publish(stage, count=round(RATE * OVERWRITING_S), instances=INSTANCES, rate=RATE)
        time.sleep(OVERWRITING_S / 2)
        early = stages.memory_mb(stage.pid(NODE))
        publisher.answer()
        end = stages.memory_mb(stage.pid(NODE))
        publisher.end()
        (store,) = (stage.directory / NODE).rglob(DATABASE)
        file, log = (path.stat().st_size / 1e6 for path in (store, store.with_name(f"{DATABASE}-wal")))
    return {
        "overwriting, memory after a half": early,
        "overwriting, memory at the end": end,
        "overwriting, log of the store": log,
        "overwriting, file of the store": file,
    }
