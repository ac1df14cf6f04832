"""More faults on real persistence services: full disks, samples that come late, and providers nobody chooses.

`make faults` runs them, with those of `test_health_faults`.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clinic import Clinic, check_fault, filled, watched
from tests.integration.hanging import hooked
from tests.integration.lab import Lab
from tests.integration.programs import Program
from tests.integration.test_health_faults_in_time import patient
from tests.redundancy.replicas import Replicas, write

pytestmark = [
    pytest.mark.dds,
    pytest.mark.skipif("OSPLTOOL_FAULTS" not in os.environ, reason="`make faults` runs it"),
]

__all__ = ["patient"]

COUNT = 20
LATER_NS = 60_000_000_000
"""Source time by which what is written later is later: far more than a replica may lag as a provider."""

LINK = """
import os, pathlib
from engine.persistence.core import replica
from engine.persistence.core.provider_selection import Providers
from engine.persistence.service.service_parts import Synchronization
choose, receive, turn = replica.choose, Synchronization.receive, Synchronization.turn
places, held = pathlib.Path(os.environ["LINK_DIRECTORY"]), []
def undecided(*arguments, **options):
    return Providers() if (places / "undecided").exists() else choose(*arguments, **options)
def on_a_slow_link(self, peer, kind, body):
    if kind == "delivery" and (places / "slow").exists():
        held.append((peer, kind, body))
    else:
        receive(self, peer, kind, body)
def turn_of_the_link(self, now_s):
    while held and not (places / "slow").exists():
        receive(self, *held.pop(0))
    return turn(self, now_s)
replica.choose, Synchronization.receive, Synchronization.turn = undecided, on_a_slow_link, turn_of_the_link
"""


def on_a_bad_link(directory: Path) -> dict[str, str]:
    """The environment of a service that chooses no provider, or gets no samples, while a file says so."""
    return hooked(directory, LINK, "LINK_DIRECTORY")


@pytest.fixture
def services(lab: Lab) -> Iterator[Replicas]:
    made = Replicas(lab)
    yield made
    made.close()


def start_with_a_bad_link(lab: Lab, services: Replicas, directory: Path) -> Program:
    """Services a and b, and a writer that only a hears; b has the bad link, and everything so far."""
    services.start("a")
    lab.environ.update(on_a_bad_link(directory))
    services.start("b")
    services.wait_connected("a", "b")
    writer = services.writer("a")
    writer.answer("done")
    write(writer, {"count": COUNT, "time": 1_000})
    services.wait_equal("a", "b", count=COUNT)
    return writer


def test_a_service_that_lags_behind_the_others(lab: Lab, services: Replicas, tmp_path: Path) -> None:
    writer = start_with_a_bad_link(lab, services, tmp_path)
    with watched(Clinic(lab, (), bare=True)) as clinic:
        clinic.check_well()

        def slow_down() -> None:
            (tmp_path / "slow").touch()
            write(writer, {"count": COUNT, "time": LATER_NS, "value": 1})

        check_fault(
            clinic, "a persistence service is behind", "DUL-SERVICE-BEHIND", "persistence service b",
            slow_down, lambda: (tmp_path / "slow").unlink(),
        )  # fmt: skip
        services.wait_equal("a", "b", count=COUNT)


def test_a_service_that_takes_missing_samples_from_nobody(
    lab: Lab, services: Replicas, tmp_path: Path
) -> None:
    """It knows who has them: `choose` always finds somebody then, so its choice has to be kept from it."""
    writer = start_with_a_bad_link(lab, services, tmp_path)
    with watched(Clinic(lab, (), bare=True)) as clinic:
        clinic.check_well()

        def keep_the_choice() -> None:
            (tmp_path / "undecided").touch()
            services.wait_for(
                "it has no provider", lambda: [w.provider for w in services.writers("b")] == [""]
            )
            write(writer, {"count": COUNT, "time": LATER_NS, "value": 1})

        check_fault(
            clinic, "nobody provides samples", "DUL-NO-PROVIDER", "persistence service b",
            keep_the_choice, lambda: (tmp_path / "undecided").unlink(),
        )  # fmt: skip
        services.wait_equal("a", "b", count=COUNT)


def test_a_service_that_stands_still_while_its_lease_lasts(patient: Lab) -> None:
    services = Replicas(patient)
    try:
        services.start("a", "b")
        services.wait_connected("a", "b")
        pid = services.shown()["a"].pid
        with watched(Clinic(patient, (), bare=True)) as clinic:
            clinic.check_well()
            check_fault(
                clinic, "a persistence service is silent", "DUL-SERVICE-SILENT", "persistence service a",
                lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT),
            )  # fmt: skip
    finally:
        services.close()


def test_a_service_whose_disk_is_full(lab: Lab, services: Replicas) -> None:
    store = services.home("b")
    store.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "ospltool-test", str(store)]
    if subprocess.run(mount, check=False, capture_output=True, timeout=10).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        services.start("a", "b")
        services.wait_connected("a", "b")
        with watched(Clinic(lab, (), bare=True)) as clinic:
            clinic.check_well()
            ballast: list[Path] = []

            def fill() -> None:
                ballast.append(filled(store))
                lab.write({"count": 3_000, "time": 1_000}, readers=2)

            check_fault(
                clinic, "the disk of a persistence service is full", "DUL-SERVICE-FAILED",
                "persistence service b", fill, lambda: ballast[0].unlink(),
            )  # fmt: skip
            services.wait_values(3_000, "a", "b")
    finally:
        services.close()
        subprocess.run(["umount", "-l", str(store)], check=True, timeout=10)
