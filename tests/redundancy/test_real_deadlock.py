"""A thread of a persistence service that hangs is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration import hanging
from tests.integration.lab import Lab
from tests.redundancy.replicas import Replicas

pytestmark = pytest.mark.dds


def test_a_store_that_hangs_is_said_and_shown(lab: Lab, replicas: Replicas, tmp_path: Path) -> None:
    lab.environ.update(hanging.environ(tmp_path))
    replicas.start("a")
    (tmp_path / "service-store").touch()
    lab.write({"count": 1, "time": 1_000})
    replicas.wait_for("it shows it", lambda: "store does not proceed" in replicas.shown()["a"].problems)
    (tmp_path / "service-store").unlink()
    replicas.wait_for("it is over", lambda: not replicas.shown()["a"].problems)
    replicas.wait_equal("a", count=1)


def test_what_writes_its_past_is_watched_as_well(lab: Lab, replicas: Replicas, tmp_path: Path) -> None:
    lab.environ.update(hanging.environ(tmp_path))
    (tmp_path / "past-whole").touch()
    replicas.start("a")
    problem = "past (writes store.past) does not proceed"
    replicas.wait_for("it shows it", lambda: problem in replicas.shown()["a"].problems)
    (tmp_path / "past-whole").unlink()
    replicas.wait_for("it is over", lambda: not replicas.shown()["a"].problems)
