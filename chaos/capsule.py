"""The capsule: network, mount and process namespaces of their own for one run.

The first process of the capsule is this program, started again by `unshare`. When it ends, for whatever
reason, the kernel ends every process in the capsule and removes its namespaces, devices and mounts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PR_SET_PDEATHSIG: Final = 1
INSIDE: Final = "OSPLTOOL_CHAOS_CAPSULE"
ROOT: Final = Path(__file__).parents[1]
_UNSHARE: Final = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_PROBE: Final = (
    "mount -t tmpfs none /run && mkdir /run/netns && ip netns add probe && ip tuntap add p mode tap"
)


class Forbidden(Exception):
    """The machine allows no capsule; the message says why."""


def is_inside() -> bool:
    """Whether this process is the first one of a capsule."""
    return INSIDE in os.environ


def command() -> tuple[str, ...]:
    """What goes before a command so that it runs in a capsule.

    Raises:
        Forbidden: namespaces or TAP devices cannot be made here, neither as root nor in a user namespace.
    """
    reason = ""
    for added in ((), ("--user", "--map-root-user")):
        prefix = (*_UNSHARE, *added)
        try:
            tried = subprocess.run(
                [*prefix, "sh", "-c", _PROBE], capture_output=True, text=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Forbidden(str(error)) from error
        if tried.returncode == 0:
            return prefix
        reason = reason or tried.stderr.strip()
    raise Forbidden(f"no namespaces here: {reason}")


def enter(arguments: Sequence[str]) -> int:
    """Run `python -m chaos` with these arguments in a capsule; returns its exit code.

    Raises:
        Forbidden: see `command`.
    """
    prefix = command()
    environ = {**os.environ, INSIDE: "1"}
    with (
        subprocess.Popen(
            [*prefix, sys.executable, "-m", "chaos", *arguments],
            cwd=ROOT,
            env=environ,
            preexec_fn=_end_with_parent,
        ) as child,
        _passing_on(child),
    ):
        return child.wait()


def _end_with_parent() -> None:
    """Let the kernel kill `unshare`, and with it the capsule, if this process is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def _passing_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ctrl+C reaches the capsule by the terminal; SIGTERM ends `unshare`, and with it the capsule."""
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    ending = signal.signal(signal.SIGTERM, lambda *_: child.kill())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
        signal.signal(signal.SIGTERM, ending)


def prepare() -> None:
    """Inside: a /run of its own, for the names of network namespaces and the files of supervisors."""
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True, timeout=10)
    Path("/run/netns").mkdir()
    os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(dir="/run")


def others() -> dict[int, str]:
    """The living processes in the capsule besides this one, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if words:  # a zombie has none
                    found[int(entry.name)] = words.strip()
    return found
