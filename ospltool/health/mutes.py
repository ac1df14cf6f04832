"""Mutes: incidents that do not count for a time. A small file shares them among all watchers."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from engine.core.untrusted import JsonFault, json_reader
from engine.files import open_private, replacing
from ospltool.health.codes import Code, codes, joined
from ospltool.health.incidents import Incident
from ospltool.output.locations import state_directory

# Chosen: a person makes some; each is compared with each incident.
MAX_MUTES: Final = 500
# `MAX_MUTES` with long reasons take a fifth of it; a larger file is something else.
MAX_BYTES: Final = 1 << 20
# A few screenfuls; only to be shown.
MAX_ENDED: Final = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Mute:
    """One muted code of one subject or of all.

    Attributes:
        code: muted code.
        who: subject; empty for all.
        until_ns: its end, in ns since 1970 UTC.
        severity, weight: gravity of the incidents when they were muted: the mute ends if they get worse. -1
            until such an incident was seen.
    """

    code: str
    who: str
    until_ns: int
    severity: int = -1
    weight: int = 0

    @property
    def name(self) -> str:
        """Code and subject as `ospltool health mute` takes them."""
        return f"{self.code}:{self.who}" if self.who else self.code

    @staticmethod
    def words(hidden: Sequence[Incident]) -> str:
        """Tell what a mute hides now."""
        names = joined([f"{one.code.id} {one.who}" for one in hidden])
        return f"hides {names or 'nothing now'}"

    def covers(self, code: Code, who: str) -> bool:
        """Return whether the mute applies to an incident of its code, or of a code of the same cause.

        A watcher that starts later reports a node that is gone as one that was never heard.
        """
        muted = codes().get(self.code)
        return muted is not None and muted.cause == code.cause and self.who in ("", who)


class MuteEnd(NamedTuple):
    """The end of a mute: when, and why."""

    mute: Mute
    time_ns: int
    why: str

    @property
    def text(self) -> str:
        """The end in a sentence without a full stop."""
        return f"mute of {self.mute.name} ended: {self.why}"


class Mutes:
    """The mutes of one system. Without a path they live in memory only.

    Args:
        path: the file; it is read again after each change.
        system: the watched system, as in `domain 7`; mutes of other systems in the file are left alone.

    Attributes:
        ended: the newest ends of mutes that were not lifted here, oldest first.
    """

    def __init__(self, path: Path | None = None, system: str = "") -> None:
        self._path = path
        self._system = system
        self._stamp = (0, 0)
        self._mutes: list[Mute] = []
        self.ended: collections.deque[MuteEnd] = collections.deque(maxlen=MAX_ENDED)
        self._untold: list[MuteEnd] = []
        self.problem = ""

    def news(self) -> list[MuteEnd]:
        """Return the ends that were not told yet."""
        told, self._untold = self._untold, []
        return told

    @property
    def all(self) -> list[Mute]:
        """Present mutes."""
        self._refresh()
        return list(self._mutes)

    @property
    def standing(self) -> list[Mute]:
        """The mutes that had not ended when they were settled, the next to end first."""
        # The name keeps rows from changing places when two end at once.
        return sorted(self._mutes, key=lambda one: (one.until_ns, one.name))

    def until_ns(self, code: Code, who: str, now_ns: int) -> int:
        """Return the end of the mute of a code of the subject `who`; 0 if that is not muted."""
        found = (one.until_ns for one in self._mutes if one.covers(code, who) and one.until_ns > now_ns)
        return max(found, default=0)

    def add(self, code: str, who: str, until_ns: int, incidents: Sequence[Incident]) -> Mute:
        """Mute a code, of the subject `who` or of all if empty; the mute ends when `incidents` get worse."""
        who = who.encode("utf-8", "backslashreplace").decode()  # an argument may have bytes that are no UTF-8
        severity, weight = _level(Mute(code, who, until_ns), incidents)
        made = Mute(code, who, until_ns, severity, weight)
        with self._changing():
            self._mutes = [one for one in self._mutes if (one.code, one.who) != (code, who)]
            self._mutes = [*self._mutes, made][-MAX_MUTES:]
        return made

    def remove(self, code: str, who: str) -> bool:
        """Remove mutes of a code's cause, of all or of the subject `who`; return False if there was none.

        One trouble is shown under several codes of a cause, as one that its watcher did not see begin.
        """
        with self._changing():
            kept = [one for one in self._mutes if who not in ("", one.who) or not _is_same(one.code, code)]
            found = len(kept) < len(self._mutes)
            self._mutes = kept
        return found

    def settle(self, incidents: Sequence[Incident], now_ns: int) -> None:
        """Lift mutes of incidents that got worse, drop those that ended, and note the gravity of others."""
        before = self._mutes
        self._refresh()
        settled = [after for one in self._mutes if (after := _settled(one, incidents, now_ns))]
        if settled != self._mutes:
            with self._changing():
                self._mutes = [after for one in self._mutes if (after := _settled(one, incidents, now_ns))]
        kept = {one.name for one in self._mutes}
        for one in before:
            if one.name not in kept:
                self._untold.append(MuteEnd(one, now_ns, _why_over(one, incidents, now_ns)))
                self.ended.append(self._untold[-1])
        del self._untold[:-MAX_ENDED]

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
            self._mutes = _mutes(_read(self._path).get(self._system, _NONE))

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Change the mutes in memory and, if it can be written, in the file."""
        if self._path is None:
            yield
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = open_private(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
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
        whole[self._system] = msgspec.Raw(msgspec.json.encode(self._mutes))
        try:
            with replacing(path) as file:
                file.write(
                    msgspec.json.encode({name: mutes for name, mutes in whole.items() if mutes != _NONE})
                )
            found = path.stat()
            self._stamp = (found.st_mtime_ns, found.st_ino)
        except OSError as error:
            self.problem = f"{path}: {error.strerror}"


def place(environ: Mapping[str, str]) -> Path:
    """Return the file with the mutes of this user."""
    return state_directory(environ) / "mutes.json"


def _is_same(muted: str, code: str) -> bool:
    """Return whether two codes have the same cause."""
    known = codes()
    return muted == code or (muted in known and code in known and known[muted].cause == known[code].cause)


def _settled(one: Mute, incidents: Sequence[Incident], now_ns: int) -> Mute | None:
    """Return a mute adjusted to the present incidents; None if it has ended."""
    if one.until_ns <= now_ns:
        return None
    severity, weight = _level(one, incidents)
    if severity < 0:
        return one
    if one.severity < 0:
        return dataclasses.replace(one, severity=severity, weight=weight)
    is_worse = severity < one.severity or weight > one.weight
    return None if is_worse else one


def _why_over(one: Mute, incidents: Sequence[Incident], now_ns: int) -> str:
    """Return why a mute has ended; another watcher may have settled it."""
    if one.until_ns <= now_ns:
        return "its time is over"
    return "it was lifted" if _settled(one, incidents, now_ns) else "what it hid got worse"


def _level(one: Mute, incidents: Sequence[Incident]) -> tuple[int, int]:
    """Return the worst severity and total weight of the incidents that a mute applies to; else (-1, 0)."""
    found = [incident for incident in incidents if one.covers(incident.code, incident.who)]
    if not found:
        return -1, 0
    return int(min(incident.severity for incident in found)), sum(incident.weight for incident in found)


# What other systems have is written again as it is, even if this version cannot read it.
_read_systems = json_reader(dict[str, msgspec.Raw])
_read_mutes = json_reader(list[Mute])
_NONE: Final = msgspec.Raw(b"[]")


def _read(path: Path) -> dict[str, msgspec.Raw]:
    """Read a file of mutes; return those of each system, none if it cannot be read."""
    try:
        with path.open("rb") as file:
            found: dict[str, msgspec.Raw] = _read_systems(file.read(MAX_BYTES))
    except (OSError, JsonFault):
        return {}  # nothing is muted: to show too much loses less than to hide it
    return found


def _mutes(data: msgspec.Raw) -> list[Mute]:
    try:
        found: list[Mute] = _read_mutes(data)
    except JsonFault:
        return []
    return found[:MAX_MUTES]
