"""The node's link to its supervisor.

The supervisor starts the node with these variables:

- OSPLTOOL_RUN_DIR: the node's directory, for `state.json`.
- OSPLTOOL_LEASE_FD: a pipe to write to. Each line renews the lease and names the service state; a node that
  writes nothing for ExpiryTime counts as dead.
- OSPLTOOL_SUPERVISOR_FD: a pipe to read from. The supervisor writes a byte every `BEAT_S`; one that does not
  stands still, and the node reports that. Its end of file means that the supervisor is gone; the node then
  ends in order.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import threading
import time
from collections.abc import Mapping
from typing import Final

from engine.supervisor.policy import INITIAL_STATE
from engine.supervisor.rundir import write_json

RUN_DIR: Final = "OSPLTOOL_RUN_DIR"
LEASE_FD: Final = "OSPLTOOL_LEASE_FD"
SUPERVISOR_FD: Final = "OSPLTOOL_SUPERVISOR_FD"


BEAT_S: Final = 1.0
"""Period of the supervisor's signs of life."""
_READ_BYTES: Final = 65536


class LinkError(ValueError):
    """The variables of the supervisor cannot be used."""


class SupervisorLink:
    """The duties of a supervised node towards its supervisor. Safe to call from any thread.

    Its state goes to a file in `directory` and to `lease`; both `lease` and `supervisor` are file
    descriptors.
    """

    def __init__(self, directory: pathlib.Path, lease: int, supervisor: int) -> None:
        self._directory = directory
        self._lease = lease
        self._supervisor = supervisor
        self._state = INITIAL_STATE
        self._since_ns = 0
        self._details: dict[str, object] = {}
        self._noted: dict[str, object] = {}
        # `report` comes from the node's thread, `note` from any: the file is written as a whole, so one
        # must not undo the other.
        self._writing = threading.Lock()
        for descriptor in (lease, supervisor):  # processes that the node starts must not keep them open
            os.set_inheritable(descriptor, False)
        os.set_blocking(lease, False)
        os.set_blocking(supervisor, False)
        self._is_lost = self._is_heard = False

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> SupervisorLink | None:
        """Return the link of this process; None if it was started without a supervisor.

        Raises:
            LinkError: a variable is missing, or a descriptor is not open.
        """
        values = [environ.get(name) for name in (RUN_DIR, LEASE_FD, SUPERVISOR_FD)]
        if values == [None, None, None]:
            return None
        directory, lease, supervisor = values
        if directory is None or lease is None or supervisor is None:
            raise LinkError(f"{RUN_DIR}, {LEASE_FD} and {SUPERVISOR_FD} belong together")
        try:
            return cls(pathlib.Path(directory), int(lease), int(supervisor))
        except (OSError, ValueError) as error:
            raise LinkError(f"{LEASE_FD}={lease}, {SUPERVISOR_FD}={supervisor}: {error}") from error

    def renew(self) -> None:
        """Renew the lease. Never blocks: a stopped supervisor reads it later."""
        try:
            os.write(self._lease, f"{self._state}\n".encode("ascii", "replace"))
        except (BlockingIOError, BrokenPipeError):
            return  # a full pipe holds enough renewals; a closed one shows as `is_lost`

    def report(self, state: str, **details: object) -> None:
        """Report the service state of the node, and details, which must be JSON values; renew the lease.

        If the directory cannot be written, the supervisor still learns the state from the lease.
        """
        with self._writing:
            if state != self._state or not self._since_ns:
                self._state, self._since_ns = state, time.time_ns()
            self._details = details
            self._write()
        self.renew()

    def note(self, **details: object) -> None:
        """Report details, which must be JSON values, beside those of `report`; the lease is not renewed."""
        with self._writing:
            self._noted |= details
            self._write()

    def _write(self) -> None:
        document = {"state": self._state, "time_ns": self._since_ns, "pid": os.getpid()}
        with contextlib.suppress(OSError):  # the lease carries the state as well
            write_json(self._directory / "state.json", document | self._details | self._noted)

    def end(self, cause: str) -> None:
        """Report why the node is about to end by itself; the supervisor and `status` show it."""
        self.report(self._state, fault=cause)

    def is_lost(self, timeout_s: float = 0) -> bool:
        """Wait up to `timeout_s` for the loss of the supervisor; tell whether it is gone."""
        poll, until_s = select.poll(), time.monotonic() + timeout_s
        poll.register(self._supervisor, select.POLLIN)
        self._hear()
        while not self._is_lost and (left_s := until_s - time.monotonic()) > 0:
            poll.poll(left_s * 1000)
            self._hear()
        return self._is_lost

    def is_alive(self) -> bool:
        """Tell whether the supervisor has given a sign of life since the last call."""
        self._hear()
        heard, self._is_heard = self._is_heard, False
        return heard

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):  # no sign of life since the last look
            if os.read(self._supervisor, _READ_BYTES):
                self._is_heard = True
            else:
                self._is_lost = True
