"""A store that is put back from a copy: recognised, reported, and complete again at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integration.clinic import Clinic, watched
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

NAMES = ("n1", "n2", "n3")
BATCH = 50


def test_a_store_put_back_from_a_copy_is_recognised_and_joins(lab: Lab, tmp_path: Path) -> None:
    written = 0
    store, copies = (
        lab.home("n1") / "store",
        {"stopped": tmp_path / "stopped", "running": tmp_path / "running"},
    )

    def write() -> None:
        nonlocal written
        lab.write({"count": BATCH, "time": 1_000 + written, "first": written})
        written += BATCH
        lab.seen.wait_for("all store it", lambda: all(lab.seen.stored(name) == written for name in NAMES))

    lab.start_three()
    write()
    lab.stop("n1")
    shutil.copytree(store, copies["stopped"])
    lab.start("n1")
    lab.seen.wait_for("it is complete", lambda: lab.seen.are_complete(*NAMES))
    shutil.copytree(store, copies["running"])  # as the snapshot of a virtual machine is made
    write()
    assert not lab.trace("n1", "lifecycle.outdated"), "a restart alone is no copy"

    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        for number, copy in enumerate(copies.values(), 1):
            lab.kill("n1")
            shutil.rmtree(store)
            shutil.copytree(copy, store)
            lab.start("n1")
            lab.seen.wait_for("all are complete", lambda: lab.seen.are_complete(*NAMES))
            write()
            assert len(lab.trace("n1", "lifecycle.outdated")) == number
            clinic.check("DUL-STORE-RESTORED", "n1")
    assert "the store was put back from a copy" in lab.information("n1")
    assert any("its store was put back" in lab.information(name) for name in ("n2", "n3"))
    assert lab.trace("n1", "store.outdated")
