from __future__ import annotations

import time

import pytest

from engine.tracing.catalogue import catalogue
from engine.tracing.tracer import LINES_A_MINUTE
from tests.integration.lab import Lab
from tests.integration.nonsense import ESCAPE

pytestmark = pytest.mark.dds


def check_service(lab: Lab, names: tuple[str, ...], first: int, count: int) -> None:
    """The nodes still capture, store and deliver."""
    lab.seen.wait_for("all complete", lambda: lab.seen.are_complete(*names))
    lab.write({"first": first, "count": count, "time": 1_000 + first})
    total = first + count
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(name) == total for name in names))
    reader = lab.reader()
    reader.wait(total)
    lab.wait_delivered()
    assert reader.tally()["repeated"] == 0


def counter(lab: Lab, name: str, key: str) -> int:
    shown = lab.seen.node(name)
    return shown.counters[key] if shown else 0


def refused(lab: Lab, name: str) -> int:
    """The messages that a node has refused, and what it says of who sends them."""
    shown = lab.seen.node(name)
    return counter(lab, name, "malformed") + sum(
        count
        for one in (shown.unproved if shown else ())
        for why, count in one.counts.items()
        if "name" in why
    )


def check_bounded(lab: Lab, name: str, event: str, took_s: float) -> None:
    """Its logs have the first of these events, and then how many there were."""
    kind = catalogue()[event]
    most = kind.burst + LINES_A_MINUTE * int(took_s / 60)
    assert kind.burst <= len(lab.trace(name, event)) <= most
    start = kind.text.partition("{")[0]
    assert kind.burst <= lab.information(name).count(start) <= most
    withheld = [line for line in lab.trace(name, "trace.withheld") if line["kind"] == event]
    assert sum(int(line["count"]) for line in withheld) > 0
    assert f"further events of kind {event}" in lab.information(name)


@pytest.mark.parametrize("tag", ["node", "client"])
def test_nonsense_on_the_protocol_topics_is_counted_and_reported_and_the_nodes_go_on(
    lab: Lab, tag: str
) -> None:
    began_s = time.monotonic()
    names = lab.start_three()
    ids = [shown.id for name in names if (shown := lab.seen.node(name))]
    hostile = lab.program("hostile", tag=tag, nodes=ids)
    hostile.answer("ready")
    hostile.tell(send="types")
    assert hostile.answer("sent") == 0
    sent = []
    for kind in ("malformed", "batches", "impersonation"):
        hostile.tell(send=kind)
        sent.append(hostile.answer("sent"))
        lab.seen.wait_for(
            f"{kind} messages are counted",
            lambda: all(refused(lab, name) >= sum(sent) for name in names),
        )
    assert lab.seen.are_complete(*names), "nobody believes that its fellows are about to end"
    for kind in ("unsupported", "absurd"):
        hostile.tell(send=kind)
        hostile.answer("sent")
    check_service(lab, names, 0, 100)
    assert all("hostile" in str(shown and shown.unproved) for shown in map(lab.seen.node, names))
    for _ in range(3):
        hostile.tell(send="malformed")
        sent.append(hostile.answer("sent"))
    assert hostile.end() == 0
    check_service(lab, names, 100, 100)
    for name in names:
        lab.stop(name)
        took_s = time.monotonic() - began_s
        if tag == "node":
            check_bounded(lab, name, "message.malformed", took_s)
            assert lab.trace(name, "message.unsupported")
            assert "is malformed and was ignored" in lab.information(name)
        named = [one["name"] for one in lab.trace(name, "proof.refused")]  # others are not even listened to
        assert 1 <= len(named) <= 2 + took_s / 60
        assert all("hostile" in one for one in named), named
        trace = (lab.home(name) / "trace.log").read_text(encoding="utf-8")
        assert ESCAPE not in trace + lab.errors(name) + lab.information(name) + lab.output(name)
        assert "Traceback" not in lab.output(name)
