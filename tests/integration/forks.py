"""Processes of tests that start at once: forked by one that has imported what they need, and nothing else.

Each is a process of its own, with its own DDS, and runs its program from the first line. What it was forked
from has one thread and has made nothing in DDS; there is one for each program, and it ends with the tests.
Where nobody said `allow`, as in chaos and benchmarks, and with variables that matter to imports, processes
start as they do for users.
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
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).parents[2]
_DDS: Final = tuple(
    f"cyclonedds.{name}" for name in ("core", "domain", "idl.types", "pub", "sub", "topic", "util")
)
IMPORTS: Final = {
    "engine": ("engine.node.process", "engine.client_service.service"),
    "ospltool.cli.app": (
        "ospltool.cli.persistence",
        "engine.config.persistence",
        "engine.persistence.service.service_process",
    ),
    "tests.client.applications": (*_DDS, "ospltool.client"),
    "tests.integration.applications": _DDS,
    "tests.integration.dds.peer": _DDS,
}
"""The programs that can be forked, and what each of them imports late."""
OURS: Final = {"engine": "engine.__main__", "ospltool.cli.app": "ospltool.cli.app"}
"""The programs that import only what they use of cyclonedds, with their modules."""
LATE: Final = {
    "CYCLONEDDS_URI", "OSPLTOOL_NODE_NAME", "OSPLTOOL_RUNDIR", "OSPLTOOL_TRACE_JSON", "OSPL_ERRORFILE",
    "OSPL_INFOFILE", "OSPL_LOGAPPEND", "OSPL_LOGPATH", "OSPL_VERBOSITY", "PYTEST_CURRENT_TEST", "PYTHONPATH",
}  # fmt: skip
"""Variables that only programs read, not what they import; all others must be those of the tests."""
ON_HOST: Final = ("ip", "netns", "exec")
"""Before the name of a network namespace: the beginning of a command in it."""
_MAX_BYTES: Final = 1 << 20
_CLONE_NEWNET: Final = 0x4000_0000
_allowed: list[bool] = []


class Forked:
    """A process that was forked, with what tests use of `subprocess.Popen`."""

    def __init__(self, forker: Forker, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._forker = forker

    def poll(self) -> int | None:
        """The exit code, or minus the number of the signal that ended it; None while it runs."""
        return self._forker.code_of(self)

    def wait(self, timeout: float | None = None) -> int:
        """As `poll`, when it has ended.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        if self.poll() is None:
            ended = os.pidfd_open(self.pid)
            try:
                select.select([ended], [], [], timeout)
            finally:
                os.close(ended)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = Forked | subprocess.Popen[bytes]


def allow() -> None:
    """Let processes be forked from here on, where the kernel can tell of their end."""
    if hasattr(os, "pidfd_open"):
        _allowed[:] = [True]


def begin(
    command: Sequence[str],
    environ: Mapping[str, str],
    streams: Sequence[int | IO[Any]],
    prefix: Sequence[str] = (),
    cwd: Path = ROOT,
) -> Process:
    """Start a process, by a fork if it can be had.

    Args:
        command: program and arguments.
        environ: all of its environment variables.
        streams: its standard input, output and error output, as files or their descriptors.
        prefix: what goes before the command, to run it on another host.
        cwd: its working directory.
    """
    python, option, program, *arguments = *command, *[""] * (3 - len(command))
    is_known = (python, option) == (sys.executable, "-m") and program in IMPORTS and cwd == ROOT
    on_host = tuple(prefix[:-1]) == ON_HOST
    if _allowed and is_known and is_usual(environ) and (on_host or not prefix):
        wanted = {"arguments": arguments, "environ": {**environ}, "network": [*prefix[-1:]]}
        return _forker(program, os.getpid()).fork(wanted, streams)
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [*prefix, *command], cwd=cwd, env=environ, stdin=stdin, stdout=stdout, stderr=stderr
    )


def is_usual(environ: Mapping[str, str]) -> bool:
    """Whether modules are imported alike with these variables and with those of the tests."""
    path = environ.get("PYTHONPATH", str(ROOT))
    return path == str(ROOT) and _early(environ) == _early(os.environ)


def _early(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in LATE}


@functools.cache
def _forker(program: str, _: int) -> Forker:
    """The forker of a program for this process, which is named so that its forks do not use it."""
    return Forker(program)


class Forker:
    """The process that forks one program."""

    def __init__(self, program: str) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_BYTES)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno()), program, *IMPORTS[program]],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        atexit.register(self._close)

    def _close(self) -> None:
        self._control.close()
        self._process.wait(20)

    def fork(self, wanted: Mapping[str, Any], streams: Sequence[int | IO[Any]]) -> Forked:
        """Fork the program."""
        numbers = [one if isinstance(one, int) else one.fileno() for one in streams]
        handed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", numbers))]
        with self._lock:
            self._control.sendmsg([json.dumps(wanted).encode()], handed)
            return Forked(self, int(self._control.recv(32)))

    def code_of(self, forked: Forked) -> int | None:
        """The exit code of one of its processes, which is forgotten with it; None while it runs."""
        with self._lock:
            if forked.returncode is None:
                self._control.send(json.dumps({"pid": forked.pid}).encode())
                status = int(self._control.recv(32))
                forked.returncode = None if status < 0 else os.waitstatus_to_exitcode(status)
        return forked.returncode


# In the process that forks.


def serve(control: socket.socket) -> list[str] | None:
    """Fork at each request; in the child return its arguments, and None when no more are wanted."""
    while True:
        request, handed, _, _ = socket.recv_fds(control, _MAX_BYTES, 3)
        if not request:
            return None
        wanted = json.loads(request)
        if "pid" in wanted:
            pid, status = os.waitpid(wanted["pid"], os.WNOHANG)
            control.send(str(status if pid else -1).encode())
            continue
        pid = os.fork()
        if not pid:
            control.close()
            return _begin(wanted, handed)
        for descriptor in handed:
            os.close(descriptor)
        control.send(str(pid).encode())


def _begin(wanted: Mapping[str, Any], handed: Sequence[int]) -> list[str]:
    """Become the program: its network, its streams and its variables."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main_thread: Any = threading.main_thread()
    main_thread._native_id = threading.get_native_id()  # Python before 3.13 keeps that of the forker
    for name in wanted["network"]:
        with Path("/run/netns", name).open("rb") as space:
            if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"network namespace {name}")
    for number, descriptor in enumerate(handed):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(wanted["environ"])
    arguments: list[str] = wanted["arguments"]
    return arguments


def main() -> None:
    """Import what a program needs, and fork it when it is wanted."""
    descriptor, program, *late = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if program in OURS:
        from engine.dds import wheel

        wheel.import_used_parts_only()
        program = OURS[program]
    for name in (program, *late):
        importlib.import_module(name)
    del sys.modules[program]
    assert len([*Path("/proc/self/task").iterdir()]) == 1, "a thread is not there after a fork"
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(descriptor)) as control:
        arguments = serve(control)
    if arguments is not None:
        sys.argv[1:] = arguments
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
