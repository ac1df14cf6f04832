"""A thread of a persistence service that hangs is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration import hanging
from tests.integration.lab import Lab
from tests.redundancy.instances import Instances

pytestmark = pytest.mark.dds


def test_a_store_that_hangs_is_said_and_shown(lab: Lab, instances: Instances, tmp_path: Path) -> None:
    lab.environ.update(hanging.environ(tmp_path))
    instances.start("a")
    (tmp_path / "service-store").touch()
    lab.write({"count": 1, "time": 1_000})
    instances.wait_for("it shows it", lambda: "store does not proceed" in instances.shown()["a"].problems)
    (tmp_path / "service-store").unlink()
    instances.wait_for("it is over", lambda: not instances.shown()["a"].problems)
    instances.wait_equal("a", count=1)


def test_what_writes_its_past_is_watched_as_well(lab: Lab, instances: Instances, tmp_path: Path) -> None:
    lab.environ.update(hanging.environ(tmp_path))
    (tmp_path / "past-whole").touch()
    instances.start("a")
    problem = "past (writes store.past) does not proceed"
    instances.wait_for("it shows it", lambda: problem in instances.shown()["a"].problems)
    (tmp_path / "past-whole").unlink()
    instances.wait_for("it is over", lambda: not instances.shown()["a"].problems)
