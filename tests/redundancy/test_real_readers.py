"""Who is served by persistence services, and how often."""

from __future__ import annotations

import pytest

from tests.integration.lab import Lab
from tests.integration.turns import COUNT, check_readers_in_turn
from tests.redundancy.replicas import Replicas

pytestmark = pytest.mark.dds


def test_readers_of_one_process_each_get_what_was_written_before_them(lab: Lab, replicas: Replicas) -> None:
    replicas.start("a", "b")
    replicas.wait_connected("a", "b")
    lab.write({"count": COUNT, "time": 1_000}, readers=2)
    replicas.wait_equal("a", "b", count=COUNT)

    def wait_deliveries(count: int) -> None:
        replicas.wait_for("they are shown", lambda: replicas.counter("a", "deliveries") == count)

    check_readers_in_turn(lab, wait_deliveries)
    assert replicas.counter("b", "deliveries") == 0, "one of the two serves"
