"""Programs of tests start without importing again what they need: a process that has imported it forks.

Each is a process of its own with its own DDS; only the start is shorter. The process that forks has no thread
and has not used DDS. It is started once for a module and ends with the tests.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).parents[2]
IMPORTED = ("core", "domain", "idl.types", "pub", "sub", "topic", "util")
"""Modules of `cyclonedds` that applications import late."""
OWN = ("CYCLONEDDS_", "OSPL")
"""Beginnings of names of environment variables that are read after the fork; no other may differ."""
MAX_BYTES = 1 << 20
IN_NETWORK = ("ip", "netns", "exec")
"""Before the name of a network namespace: the beginning of a command in it."""
_CLONE_NEWNET = 0x4000_0000


class ForkedProcess:
    """A process that was forked for a test, with what tests use of `subprocess.Popen`."""

    def __init__(self, pid: int, stdin: TextIO, stdout: TextIO, ended: socket.socket) -> None:
        self.pid = pid
        self.stdin, self.stdout = stdin, stdout
        self.returncode: int | None = None
        self._ended = ended

    def poll(self) -> int | None:
        """The exit code, or minus the number of the signal that ended it; None while it runs."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """As `poll`, when it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not, in so many seconds.
        """
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def _look(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], timeout_s)[0]:
            said = self._ended.recv(32)
            self.returncode = os.waitstatus_to_exitcode(int(said)) if said else -signal.SIGKILL
            self._ended.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def is_usual(environ: Mapping[str, str]) -> bool:
    """Whether a program with these variables may be forked."""
    return _others(environ) == _others(os.environ)


def _others(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith((*OWN, "PYTEST_"))}


def fork(
    module: str, arguments: Sequence[str], environ: Mapping[str, str], network: Sequence[str] = ()
) -> ForkedProcess:
    """Start `python -m module` with arguments and variables, its input and output being pipes.

    Args:
        module: whose main program is started.
        arguments: of the program.
        environ: all environment variables of the program.
        network: name of its network namespace, if it has one.
    """
    control = _forker(module, os.getpid())
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()
    ended, tell_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        handed = array.array("i", [stdin, stdout, 2, tell_end.fileno()])
        wanted = {"arguments": [*arguments], "environ": {**environ}, "network": [*network]}
        request = json.dumps(wanted).encode()
        control.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handed)])
        pid = int(control.recv(32))
    finally:
        os.close(stdin)
        os.close(stdout)
        tell_end.close()
    return ForkedProcess(pid, os.fdopen(to_stdin, "w"), os.fdopen(from_stdout), ended)


@functools.cache
def _forker(module: str, owner: int) -> socket.socket:
    """The process that forks programs of a module, for the process `owner`."""
    assert owner == os.getpid()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_BYTES)
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, module, str(theirs.fileno())],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()

    def finish() -> None:
        ours.close()
        process.wait(20)

    atexit.register(finish)
    return ours


def serve(control: socket.socket) -> list[str] | None:
    """Fork at each request; in the child return its arguments, and None when no more are wanted."""
    told: dict[int, int] = {}
    wakes, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([control.fileno(), wakes], [], [])
        if wakes in ready:
            os.read(wakes, 4096)
            _tell_ends(told)
        if control.fileno() not in ready:
            continue
        request, handed, _, _ = socket.recv_fds(control, MAX_BYTES, 4)
        if not request:
            return None
        pid = os.fork()
        if not pid:
            for descriptor in (*told.values(), wakes, waker):
                os.close(descriptor)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            return _begin(json.loads(request), handed)
        told[pid] = handed[3]
        for descriptor in handed[:3]:
            os.close(descriptor)
        control.send(str(pid).encode())


def _tell_ends(told: dict[int, int]) -> None:
    """Say of each process that has ended how."""
    while told:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        descriptor = told.pop(pid)
        os.write(descriptor, str(status).encode())
        os.close(descriptor)


def _begin(request: dict[str, Any], handed: Sequence[int]) -> list[str]:
    """Become the program: its network, its input and output, and its variables."""
    for name in request["network"]:
        with Path("/run/netns", name).open("rb") as space:
            if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"network namespace {name}")
    for number, descriptor in enumerate(handed[:3]):
        os.dup2(descriptor, number)
    for descriptor in handed:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environ"])
    arguments: list[str] = request["arguments"]
    return arguments


def main() -> None:
    module, descriptor = sys.argv[1], int(sys.argv[2])
    importlib.import_module(module)
    for name in IMPORTED:
        importlib.import_module(f"cyclonedds.{name}")
    del sys.modules[module]
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as control:
        arguments = serve(control)
    if arguments is not None:
        sys.argv[1:] = arguments
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
