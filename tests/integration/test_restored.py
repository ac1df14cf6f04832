"""A store that is put back from a copy: recognised, reported, and complete again at once."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.clinic import Clinic, watched
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

NAMES = ("n1", "n2", "n3")
BATCH = 50
RESTORES = int(os.environ.get("OSPLTOOL_RESTORES", "0"))
"""Further copies to put back, of any age, drawn by OSPLTOOL_SEED; it prints how long each takes."""


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
            put_back(lab, "n1", copy, number)
            write()
            clinic.check("DUL-STORE-RESTORED", "n1")
        told = [one for one in clinic.told.values() if one.document["severity"] != "notice"]
        assert len(told) == clinic.times("DUL-STORE-RESTORED"), (
            "the loss, the restart and the restore are one"
        )
        check_any_age(lab, clinic, tmp_path, write)
    assert lab.information("n1").count("was put back from a copy") == len(copies), "once for each"
    assert lab.information("n1").count("has now terminated") == 1, "a new run is no end"
    assert any("n1 was put back" in lab.information(name) for name in ("n2", "n3"))
    assert lab.trace("n1", "store.outdated")


def put_back(lab: Lab, name: str, copy: Path, number: int) -> float:
    """Put a copy in the place of a store; returns the seconds until all are complete.

    There is one master then, and logs of the node and of the fellow that it names tell of the same runs.
    `number` is how often it has been told by now.
    """
    lab.kill(name)
    shutil.rmtree(lab.home(name) / "store")
    shutil.copytree(copy, lab.home(name) / "store")
    begun = time.monotonic()
    lab.start(name)
    lab.seen.wait_for("all are complete", lambda: lab.seen.are_complete(*NAMES))
    took_s = time.monotonic() - begun
    lab.seen.wait_for(
        "one leads", lambda: len({view.master for view in map(lab.seen.space, NAMES) if view}) == 1
    )
    told = lab.trace(name, "lifecycle.outdated")
    assert len(told) == number
    theirs = [
        line for other in NAMES for line in lab.trace(other, "fellow.outdated") if line["fellow"] == name
    ]
    assert int(told[-1]["known"]) <= max(int(one["known"]) for one in theirs), "or a later one"
    return took_s


def check_any_age(lab: Lab, clinic: Clinic, directory: Path, write: Callable[[], None]) -> None:
    """Whichever node, and however many restarts, writes and other copies lie between, it is the same."""
    chance = random.Random(os.environ.get("OSPLTOOL_SEED", "1"))
    copies: dict[str, list[Path]] = {name: [] for name in NAMES}
    told = {name: len(lab.trace(name, "lifecycle.outdated")) for name in NAMES}
    took_s = []
    for number in range(RESTORES):
        for name in NAMES:
            if not copies[name] or chance.random() < 0.3:
                copies[name].append(directory / f"{name}-{number}")
                shutil.copytree(lab.home(name) / "store", copies[name][-1])
            if chance.random() < 0.3:
                chance.choice((lab.kill, lab.stop))(name)
                lab.start(name)
                lab.seen.wait_for("all are complete", lambda: lab.seen.are_complete(*NAMES))
        write()
        name = chance.choice(NAMES)
        copy = chance.choice(copies[name])
        told[name] += 1
        took_s.append(put_back(lab, name, copy, told[name]))
        clinic.wait(
            f"{name} is told",
            lambda: ("DUL-STORE-RESTORED", name) in {(one.code, one.who) for one in clinic.open},  # noqa: B023  # called before the next round
            30.0,
        )
        age = number - int(copy.name.rpartition("-")[2])
        print(f"{number + 1}: {name}, {age} restores old: complete after {took_s[-1]:.1f} s")
        write()
    if took_s:
        print(f"{sum(each <= 10 for each in took_s)} of {len(took_s)} within 10 s, most {max(took_s):.1f} s")
