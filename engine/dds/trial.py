"""Tries a library of Cyclone DDS, or settings for it, in another process: they can end their user."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
from typing import Final, NamedTuple

from engine.dds.errors import SettingsRefused, UnsupportedCyclone
from engine.dds.uri import parts_of

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


# A person reads the first few.
MAX_SAID: Final = 50
"""Messages of Cyclone DDS that are kept: for settings that it refuses it can print without end."""
_SAID: Final = re.compile(r"\d+\.\d+ \[\d*\]\s+[^:]*: (.*)")
# Nothing of the package may be imported that starts a domain of its own. _exit spares Cyclone DDS the end.
_SETTINGS: Final = (
    "import ctypes, os, sys; create = ctypes.CDLL(sys.argv[1] or path()).dds_create_domain; "
    "made = create(ctypes.c_uint32(int(sys.argv[2])), os.fsencode(sys.argv[3])); os._exit(max(-made, 0))"
)
_FIND: Final = "def path():\n from engine.dds.abi import PATH\n return PATH\n"
_PLACED: Final = re.compile(r"(?:config: )?(?P<what>.*?) \((?:(?P<source>\S+) )?line (?P<line>\d+)\)")
_NO_FILE: Final = "can't open configuration file"
"""What Cyclone DDS says of a file that it cannot read, without the reason."""
OLD_NAMES: Final = re.compile(r"deprecated|moved to")
"""Messages that are no news: the rules know deprecated settings."""
SUBJECTS: Final = {
    "socket receive buffer": "Internal/SocketReceiveBufferSize@min",
    "socket send buffer": "Internal/SocketSendBufferSize@min",
    "external network address": "General/ExternalNetworkAddress",
    "ethernet type": "General/Transport",
    "SPDP address": "Discovery/SPDPMulticastAddress",
}
"""Settings that messages are about without naming them."""


def try_settings(settings: str, domain_id: int, library: str = "") -> SettingsTrial:
    """Let the installed Cyclone DDS create a domain with settings, in a process of its own.

    No participant is created, so nothing is sent.

    Args:
        settings: like the value of CYCLONEDDS_URI.
        domain_id: the domain.
        library: path of the library, if this process has loaded it; finding it takes half a second.
    """
    environ = {name: value for name, value in os.environ.items() if name != "CYCLONEDDS_URI"}
    program = ("-ISc", _SETTINGS) if library else ("-c", _FIND + _SETTINGS)
    try:
        done = subprocess.run(
            [sys.executable, *program, library, str(domain_id), settings],
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


def refusal_of(settings: str, domain_id: int, library: str) -> SettingsRefused | None:
    """Try settings; return why the installed Cyclone DDS refuses them, None if it accepts them.

    Args:
        settings: like the value of CYCLONEDDS_URI; they may end with what a user gave as that.
        domain_id: the domain.
        library: path of the library of Cyclone DDS.
    """
    trial = try_settings(settings, domain_id, library)
    if trial.is_accepted or trial.is_late:
        return None
    given = os.environ.get("CYCLONEDDS_URI", "").strip()
    if not settings.endswith(given):
        given = ""
    said = [each for each in trial.said if not OLD_NAMES.search(each)]
    if trial.ended:  # what is fatal comes last, as an address that cannot be resolved
        said.reverse()
    what = said[0] if said else "it does not say why"
    place = f"CYCLONEDDS_URI (domain {domain_id})" if given else f"the settings of domain {domain_id}"
    placed = _PLACED.fullmatch(what)
    if given and placed:
        what, place = placed["what"], f"{_source_of(placed['source'] or '', given)}:{placed['line']}"
    elif given and _NO_FILE not in what:
        place = _place_of(what, given) or place
    sentence = f"{place}: Cyclone DDS refuses the settings: {what.rstrip('.')}"
    return SettingsRefused(sentence, may_pass=bool(trial.ended))


def _source_of(source: str, given: str) -> str:
    """Return the file that Cyclone DDS means, or CYCLONEDDS_URI for XML, of which it gives the offset."""
    files = [each for each in parts_of(given) if not each.startswith("<")]
    named = source if source in files else files[0] if not source and len(files) == 1 else ""
    return named.removeprefix("file://") or "CYCLONEDDS_URI"


def _place_of(what: str, given: str) -> str:
    """Return where the setting is that a message without a place is about; empty if it is not found."""
    path = next((path for words, path in SUBJECTS.items() if words in what), "")
    element = path.partition("@")[0].rpartition("/")[2]
    values = [element] if element else [each.rstrip(":") for each in what.split() if each.endswith(":")]
    for part in parts_of(given):
        text, source = part, "CYCLONEDDS_URI"
        if not part.startswith("<"):
            source = part.removeprefix("file://")
            # The place of a value in a file is a help only: without it the message has no line.
            with contextlib.suppress(OSError):
                text = pathlib.Path(source).read_text("utf-8", "replace")
        for value in values:
            before, found, _ = text.partition(f"<{value}" if element else value)
            if found:
                return f"{source}:{before.count(chr(10)) + 1}"
    return ""


def _end_of(code: int) -> str:
    """Return how a process was ended by a signal; empty if it ended by itself."""
    known = {each.value: each.name for each in signal.Signals}
    return "" if code >= 0 else f"is ended by signal {-code} ({known.get(-code, 'unknown')})"
