from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING

import pytest

from engine.supervisor.lease_link import LEASE_FD, RUN_DIR, SUPERVISOR_FD, LinkError, SupervisorLink

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator


class Supervisor:
    """The other ends of a link."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.lease, lease = os.pipe()
        self._gone, self._alive = os.pipe()
        os.set_blocking(self.lease, False)
        self.environ = {RUN_DIR: str(directory), LEASE_FD: str(lease), SUPERVISOR_FD: str(self._gone)}
        self._open = {self.lease, lease, self._gone, self._alive}

    def heard(self) -> str:
        try:
            return os.read(self.lease, 1 << 20).decode()
        except BlockingIOError:
            return ""

    def close(self, descriptor: int) -> None:
        self._open.discard(descriptor)
        os.close(descriptor)

    def die(self) -> None:
        self.close(self._alive)

    def clean_up(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)


@pytest.fixture
def supervisor(tmp_path: pathlib.Path) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path)
    yield made
    made.clean_up()


def link_to(supervisor: Supervisor) -> SupervisorLink:
    link = SupervisorLink.from_environ(supervisor.environ)
    assert link is not None
    return link


def test_renewals_carry_the_last_state_that_was_reported(
    supervisor: Supervisor, tmp_path: pathlib.Path
) -> None:
    link = link_to(supervisor)
    link.renew()
    link.report("COMPLETE", fellows=2)
    link.renew()
    assert supervisor.heard() == "INIT\nCOMPLETE\nCOMPLETE\n"
    said = json.loads((tmp_path / "state.json").read_text())
    assert (said["state"], said["fellows"], said["pid"]) == ("COMPLETE", 2, os.getpid())


def test_a_supervisor_that_stands_still_does_not_hold_the_node_up(supervisor: Supervisor) -> None:
    link = link_to(supervisor)
    for _ in range(100_000):  # far more than a pipe holds
        link.renew()
    assert supervisor.heard().startswith("INIT\nINIT\n")


def test_the_end_of_the_supervisor_is_seen(supervisor: Supervisor) -> None:
    link = link_to(supervisor)
    assert not link.is_lost()
    timer = threading.Timer(0.05, supervisor.die)
    timer.start()
    assert link.is_lost(10)
    timer.join()
    supervisor.close(supervisor.lease)
    link.renew()
    link.report("TERMINATING")


def test_a_directory_that_can_not_be_written_to_stops_nothing(
    supervisor: Supervisor, tmp_path: pathlib.Path
) -> None:
    supervisor.environ[RUN_DIR] = str(tmp_path / "gone")
    link_to(supervisor).report("COMPLETE")
    assert supervisor.heard() == "COMPLETE\n"


def test_processes_that_the_node_starts_do_not_keep_the_link_open(supervisor: Supervisor) -> None:
    link_to(supervisor)
    for name in (LEASE_FD, SUPERVISOR_FD):
        assert not os.get_inheritable(int(supervisor.environ[name]))


def test_without_a_supervisor_there_is_no_link() -> None:
    assert SupervisorLink.from_environ({}) is None


@pytest.mark.parametrize(
    "change", [{RUN_DIR: None}, {LEASE_FD: None}, {LEASE_FD: "x"}, {LEASE_FD: "-1"}, {SUPERVISOR_FD: "99999"}]
)
def test_a_broken_link_is_refused(supervisor: Supervisor, change: dict[str, str | None]) -> None:
    environ = {key: value for key, value in (supervisor.environ | change).items() if value is not None}
    with pytest.raises(LinkError):
        SupervisorLink.from_environ(environ)
