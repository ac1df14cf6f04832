from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("tag", ["node", "client"])
def test_nonsense_on_the_protocol_topics_is_counted_and_reported_and_the_nodes_go_on(
    lab: Lab, tag: str
) -> None:
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
    assert hostile.end() == 0
    check_service(lab, names, 100, 100)
    for name in names:
        if tag == "node":  # others are not even listened to
            assert lab.trace(name, "message.unsupported")
        assert lab.trace(name, "message.malformed")
        assert "is malformed and was ignored" in lab.information(name)
        trace = (lab.home(name) / "trace.log").read_text(encoding="utf-8")
        assert ESCAPE not in trace + lab.errors(name) + lab.information(name) + lab.output(name)
        assert "Traceback" not in lab.output(name)
