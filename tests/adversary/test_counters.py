"""A fellow with absurd counters, which would spread to all disks (docs/internals/protocol.md)."""

from __future__ import annotations

import pytest

from engine.core.messages import MAX_INCARNATION
from tests.integration.clinic import Clinic, watched
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

BATCH = 20


def test_absurd_counters_of_a_fellow_are_refused_and_named_and_leave_no_trace(lab: Lab) -> None:
    names = lab.start_three()
    lab.write({"count": BATCH, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(name) == BATCH for name in names))
    ids = [shown.id for name in names if (shown := lab.seen.node(name))]
    with watched(Clinic(lab, names, copies=3)) as clinic:
        hostile = lab.program("hostile", tag="node", nodes=ids)
        hostile.answer("ready")
        hostile.tell(send="counters")
        hostile.answer("sent")
        lab.seen.wait_for(
            "all refuse it", lambda: all(lab.trace(name, "fellow.out-of-range") for name in names)
        )
        clinic.wait(
            "it is named", lambda: any(one.code == "DUL-COUNTERS" for one in clinic.open), within_s=30.0
        )
        assert hostile.end() == 0
        clinic.check_well()
    for name in names:
        assert lab.trace(name, "fellow.in-range"), "it is gone"
        assert "which no node can have" in lab.information(name)

    lab.kill("n1")  # the others elect another master, in the next counter
    lab.seen.wait_for("another one leads", lambda: lab.seen.are_complete("n2", "n3"))
    lab.write({"first": BATCH, "count": BATCH, "time": 2_000})
    lab.start("n1")
    lab.seen.wait_for("all are complete", lambda: lab.seen.are_complete(*names))
    lab.seen.wait_for("all have it", lambda: all(lab.seen.stored(name) == 2 * BATCH for name in names))
    for name in names:
        epochs = [int(line["epoch"]) for line in lab.trace(name, "election.proposing")]
        assert max(epochs, default=0) < 1_000
        runs = [int(line["incarnation"]) for line in lab.trace(name, "lifecycle.incarnation")]
        assert max(runs) < MAX_INCARNATION // 1_000
