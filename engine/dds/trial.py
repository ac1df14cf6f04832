"""Tries a library of Cyclone DDS in another process: one that is damaged or unknown can end its user."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
from typing import Final

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
    if done.returncode >= 0:
        return ""
    number = -done.returncode
    known = {each.value: each.name for each in signal.Signals}
    return f"a process that tries it is ended by signal {number} ({known.get(number, 'unknown')})"


def is_relative(library: str) -> bool:
    """Return whether a library is named from the current directory, which may be another one for a node.

    A name without a directory is one that the loader searches for, as `libddsc.so.0`.
    """
    path = pathlib.Path(library)
    return not path.is_absolute() and ("/" in library or path.exists())
