"""Nothing that a stranger sends ends a node."""

from __future__ import annotations

import pytest

from tests.adversary.strangers import ODD_REQUESTS, Attacker
from tests.integration.configurations import Settings
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds


def test_odd_requests_of_a_client(lab: Lab) -> None:
    lab.start_complete("n1", settings=Settings(discovery_s=0.2, clients=True))
    lab.write({"count": 10, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == 10)
    assert Attacker(lab, role="client").attack("odd requests") == len(ODD_REQUESTS)
    assert lab.trace("n1", "delete.received")
    lab.write({"first": 10, "count": 10, "time": 2_000})
    lab.seen.wait_for("it goes on", lambda: lab.seen.stored("n1") == 20)
    lab.reader().wait(20)
    assert lab.stop("n1") == [0]
    assert "Traceback" not in lab.output("n1")
