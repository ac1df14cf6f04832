"""Tries a library of Cyclone DDS, or settings for it, in another process: they can end their user."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
from typing import Final, NamedTuple

from engine.dds.errors import UnsupportedCyclone

TRIES_S: Final = 30.0
"""Time for another process to try a library; a trial takes milliseconds, its start a second or two."""

is_under_way = False
"""Whether this process is the one that tries."""


def how_it_crashes(name: str, code: str) -> str:
    """Run code in another process; return how that crashes, and nothing if it ends by itself.

    An error of the code counts as an end: it comes in this process, too.

    Args:
        name: the library, for messages.
        code: what to try; it may import from `engine.dds`.

    Raises:
        UnsupportedCyclone: the other process did not end in time, which may pass.
    """
    program = f"import {__name__} as trial; trial.is_under_way = True; {code}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=False, timeout=TRIES_S
        )
    except subprocess.TimeoutExpired:
        raise UnsupportedCyclone(
            f"{name} cannot be used: a process that tries it does not end within {TRIES_S:g} s", may_pass=True
        ) from None
    ended = _end_of(done.returncode)
    return f"a process that tries it {ended}" if ended else ""


def is_relative(library: str) -> bool:
    """Return whether a library is named from the current directory, which may be another one for a node.

    A name without a directory is one that the loader searches for, as `libddsc.so.0`.
    """
    path = pathlib.Path(library)
    return not path.is_absolute() and ("/" in library or path.exists())


class SettingsTrial(NamedTuple):
    """What Cyclone DDS makes of settings."""

    is_accepted: bool
    """It has created a domain with them."""
    said: tuple[str, ...]
    """Its messages, without time and process; at most MAX_SAID."""
    ended: str
    """How the process ended that tried them, if not by itself; else empty."""
    is_late: bool = False
    """It did not end in time, which says nothing of the settings: the machine may be busy."""


MAX_SAID: Final = 50
_SAID: Final = re.compile(r"\d+\.\d+ \[\d*\]\s+[^:]*: (.*)")
# Nothing of the package may be imported that starts a domain of its own. _exit spares Cyclone DDS the end.
_SETTINGS: Final = (
    "import os, sys; from engine.dds.abi import create_domain; "
    "made = create_domain(int(sys.argv[1]), os.fsencode(sys.argv[2])); os._exit(made < 0)"
)


def try_settings(settings: str, domain_id: int) -> SettingsTrial:
    """Let the installed Cyclone DDS create a domain with settings, in a process of its own.

    No participant is created, so nothing is sent.

    Args:
        settings: like the value of CYCLONEDDS_URI.
        domain_id: the domain.
    """
    environ = {name: value for name, value in os.environ.items() if name != "CYCLONEDDS_URI"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _SETTINGS, str(domain_id), settings],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=TRIES_S,
        )
    except subprocess.TimeoutExpired as late:
        said, code, ended, is_late = late.stderr or b"", 1, f"does not end within {TRIES_S:g} s", True
    else:
        is_late = False
        said, code, ended = done.stderr, done.returncode, _end_of(done.returncode)
    lines = said.decode("utf-8", "replace").splitlines()
    found = [text for line in lines if (match := _SAID.fullmatch(line)) and (text := match[1])]
    if code == 1 and not found and lines:
        found = lines[-1:]  # an error of our own, such as a library that cannot be used
    return SettingsTrial(code == 0, tuple(found[:MAX_SAID]), ended, is_late)


def _end_of(code: int) -> str:
    """Return how a process was ended by a signal; empty if it ended by itself."""
    known = {each.value: each.name for each in signal.Signals}
    return "" if code >= 0 else f"is ended by signal {-code} ({known.get(-code, 'unknown')})"
