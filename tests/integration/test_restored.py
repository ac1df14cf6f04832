"""A store that is put back from a copy: recognised, reported, and complete again at once."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

NAMES = ("n1", "n2", "n3")
BATCH = 50
BACK_S = 10.0


def test_a_store_put_back_from_a_copy_is_recognised_and_joins(lab: Lab, tmp_path: Path) -> None:
    written = 0

    def write() -> None:
        nonlocal written
        lab.write({"count": BATCH, "time": 1_000 + written, "first": written})
        written += BATCH
        lab.seen.wait_for(
            "all have stored it", lambda: all(lab.seen.stored(name) == written for name in running)
        )

    running = list(NAMES)
    lab.start_three()
    write()
    lab.stop("n1")
    copy = tmp_path / "copy"
    shutil.copytree(lab.home("n1") / "store", copy)
    lab.start("n1")
    lab.seen.wait_for("it is complete", lambda: lab.seen.are_complete(*NAMES))
    write()
    lab.stop("n1")
    shutil.rmtree(lab.home("n1") / "store")
    shutil.copytree(copy, lab.home("n1") / "store")
    began_s = time.monotonic()
    lab.start("n1")
    lab.seen.wait_for("it is complete", lambda: lab.seen.are_complete(*NAMES))
    lab.seen.wait_for("all have it", lambda: all(lab.seen.stored(name) == written for name in NAMES))
    print("back after", time.monotonic() - began_s)
    write()
    assert lab.trace("n1", "lifecycle.outdated")
