"""Processes that are surely the ones we mean: a recycled id is never waited for and never signalled."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import select
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOOT_ID: Final = pathlib.Path("/proc/sys/kernel/random/boot_id")
_START_FIELD: Final = 19  # of the fields after the command name; field 22 of proc_pid_stat(5)


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process: its id, and when it was started (clock ticks since the boot that `boot` names)."""

    pid: int
    start_ticks: int
    boot: str

    def is_alive(self) -> bool:
        """Whether exactly this process still runs; a zombie does not."""
        return identify(self.pid) == self

    def is_stopped(self) -> bool:
        """Whether it runs but stands still because of a signal (SIGSTOP), or is held by a debugger."""
        return self.is_alive() and _state(self.pid) in ("T", "t")

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False when the process is gone.

        Raises:
            PermissionError: the process belongs to somebody else.
        """
        with self._handle() as handle:
            if handle is None:
                return False
            try:
                signal.pidfd_send_signal(handle, number)
            except ProcessLookupError:
                return False
            return True

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process has ended; False when it has not in time."""
        with self._handle() as handle:
            if handle is None:
                return True
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            return bool(poll.poll(max(timeout_s, 0) * 1000))

    @contextlib.contextmanager
    def _handle(self) -> Iterator[int | None]:
        """A descriptor of the process, which cannot come to mean another one; None when it is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except (ProcessLookupError, ValueError):
            yield None
            return
        try:
            yield handle if self.is_alive() else None
        finally:
            os.close(handle)


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a running process, None when there is none."""
    fields = _stat(pid)
    if not fields or fields[0] in ("Z", "X"):
        return None
    return ProcessIdentity(pid, int(fields[_START_FIELD]), _boot())


def _state(pid: int) -> str:
    """The letter for the state of a process, empty when there is none."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def _stat(pid: int) -> list[str]:
    """What proc_pid_stat(5) says of a process after its name, empty when there is none."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()


def _boot() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()
