"""Identities of processes: a recycled process id is never waited for or signalled."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import signal
from collections.abc import Iterator
from typing import Final

import msgspec

_BOOT_ID: Final = pathlib.Path("/proc/sys/kernel/random/boot_id")
_START_FIELD: Final = 19  # of the fields after the command name; field 22 of proc_pid_stat(5)


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process: its id, and its start (clock ticks since the boot that `boot` names)."""

    pid: int
    start_ticks: int
    boot: str

    def is_alive(self) -> bool:
        """Tell whether exactly this process still runs; a zombie does not."""
        return identify(self.pid) == self

    def is_stopped(self) -> bool:
        """Tell whether it is stopped by a signal (SIGSTOP) or a debugger."""
        return self.is_alive() and _stat(self.pid)[:1] in (["T"], ["t"])

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; return False if the process is gone.

        Raises:
            PermissionError: the process belongs to another user.
        """
        with self._handle() as handle:
            if handle is None:
                return False
            try:
                signal.pidfd_send_signal(handle, number)
            # It ended between the look and the signal, so there is nothing to signal.
            except ProcessLookupError:
                return False
            return True

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process has ended; return False if not in time."""
        with self._handle() as handle:
            if handle is None:
                return True
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            return bool(poll.poll(max(timeout_s, 0) * 1000))

    @contextlib.contextmanager
    def _handle(self) -> Iterator[int | None]:
        """Open a descriptor of the process, which never means another one; None if it is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except (ProcessLookupError, ValueError):  # it is gone; ValueError for an id below 1 in a damaged file
            yield None
            return
        try:
            yield handle if self.is_alive() else None
        finally:
            os.close(handle)


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a running process, None if there is none."""
    fields = _stat(pid)
    if not fields or fields[0] in ("Z", "X"):
        return None
    return ProcessIdentity(pid, int(fields[_START_FIELD]), _BOOT_ID.read_text(encoding="ascii").strip())


def _stat(pid: int) -> list[str]:
    """Return the fields of proc_pid_stat(5) after the name; empty if there is no such process."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # there is no such process
        return []
    return stat.rpartition(")")[2].split()  # the name may have blanks and brackets
