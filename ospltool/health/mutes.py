"""Incidents that shall not be counted for a time: kept in a small file, so that every watcher knows them."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from engine.core import plain
from ospltool.health.codes import codes
from ospltool.health.incidents import Incident

MAX_MUTES: Final = 500
MAX_BYTES: Final = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Mute:
    """One mute.

    Attributes:
        code: the code that is muted.
        who: the subject; empty for all.
        until_ns: when it ends by itself, in ns since 1970 UTC.
        severity, weight: how bad it was when it was muted: the mute lifts itself when it gets worse. -1 while
            no such incident was seen yet.
    """

    code: str
    who: str
    until_ns: int
    severity: int = -1
    weight: int = 0

    def is_about(self, incident: Incident) -> bool:
        """Whether the incident is muted by it: it has the code, or another one of the same cause.

        Who begins to watch later knows a node that is gone as one that was never heard.
        """
        muted = codes().get(self.code)
        return muted is not None and muted.cause == incident.code.cause and self.who in ("", incident.who)


class Mutes:
    """The mutes of one system. Without a path they live in memory only.

    Args:
        path: the file; it is read again whenever it has changed.
        system: what is watched, as in `domain 7`: mutes of other systems in the file are left alone.
    """

    def __init__(self, path: Path | None = None, system: str = "") -> None:
        self._path = path
        self._system = system
        self._stamp = (0, 0)
        self._mutes: list[Mute] = []
        self.problem = ""

    @property
    def all(self) -> list[Mute]:
        """Those that were not lifted and have not been seen to end."""
        self._refresh()
        return list(self._mutes)

    def until_ns(self, incident: Incident, now_ns: int) -> int:
        """Until when an incident is muted; 0 when it is not."""
        return max(
            (one.until_ns for one in self._mutes if one.is_about(incident) and one.until_ns > now_ns),
            default=0,
        )

    def add(self, code: str, who: str, until_ns: int, incidents: Sequence[Incident]) -> Mute:
        """Mute a code, of one subject or of all; how bad it is now is what "worse" is compared with."""
        severity, weight = _level(Mute(code, who, until_ns), incidents)
        made = Mute(code, who, until_ns, severity, weight)
        with self._changing():
            self._mutes = [one for one in self._mutes if (one.code, one.who) != (code, who)]
            self._mutes = [*self._mutes, made][-MAX_MUTES:]
        return made

    def remove(self, code: str, who: str) -> bool:
        """Take a mute away; False when there was none."""
        with self._changing():
            kept = [one for one in self._mutes if (one.code, one.who) != (code, who)]
            found = len(kept) < len(self._mutes)
            self._mutes = kept
        return found

    def settle(self, incidents: Sequence[Incident], now_ns: int) -> None:
        """Lift what got worse, forget what is over, and note how bad it is where that was not known."""
        self._refresh()
        settled = [after for one in self._mutes if (after := _settled(one, incidents, now_ns))]
        if settled != self._mutes:
            with self._changing():
                self._mutes = [after for one in self._mutes if (after := _settled(one, incidents, now_ns))]

    def _refresh(self) -> None:
        if self._path is None:
            return
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_ino)
        except OSError:
            stamp = (0, 0)
        if stamp != self._stamp:
            self._stamp = stamp
            self._mutes = _mutes(_read(self._path).get(self._system))

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Change the mutes, in the file as well; where it cannot be written, in memory only."""
        if self._path is None:
            yield
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self.problem = f"{self._path}: {error.strerror}"
            yield
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._refresh()
            yield
            self._write(self._path)
        finally:
            os.close(lock)

    def _write(self, path: Path) -> None:
        whole = _read(path)
        whole[self._system] = [plain.to_plain(one) for one in self._mutes]
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump({name: mutes for name, mutes in whole.items() if mutes}, file)
            temporary.replace(path)
            found = path.stat()
            self._stamp = (found.st_mtime_ns, found.st_ino)
        except OSError as error:
            self.problem = f"{path}: {error.strerror}"


def place(environ: Mapping[str, str]) -> Path:
    """Where the mutes of this user are: below $XDG_STATE_HOME, else below ~/.local/state."""
    state = environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "ospltool" / "mutes.json"


def _settled(one: Mute, incidents: Sequence[Incident], now_ns: int) -> Mute | None:
    """A mute after a look at the incidents; None when it is over."""
    if one.until_ns <= now_ns:
        return None
    severity, weight = _level(one, incidents)
    if severity < 0:
        return one
    if one.severity < 0:
        return dataclasses.replace(one, severity=severity, weight=weight)
    is_worse = severity < one.severity or weight > one.weight
    return None if is_worse else one


def _level(one: Mute, incidents: Sequence[Incident]) -> tuple[int, int]:
    """The worst severity, and the weight of all incidents that a mute is about; -1 when there is none."""
    found = [incident for incident in incidents if one.is_about(incident)]
    if not found:
        return -1, 0
    return int(min(incident.severity for incident in found)), sum(incident.weight for incident in found)


def _read(path: Path) -> dict[str, Any]:
    """What a file of mutes says; nothing when it cannot be read."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _mutes(data: object) -> list[Mute]:
    try:
        found: list[Mute] = [plain.from_plain(Mute, one) for one in data] if isinstance(data, list) else []
    except plain.PlainFault:
        return []
    return found[:MAX_MUTES]
