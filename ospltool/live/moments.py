"""Moments of a recording: as people write them, and marks in a file beside it."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
from pathlib import Path
from typing import Final

from engine.files import open_private
from ospltool.live.record_file import RecordingFault


def moment_of(text: str, begin_ns: int, now_ns: int) -> int:
    """Parse a moment; return it in ns since 1970.

    `+90` and `-90` are seconds from now; `12:30` and `12:30:05` a time of day (UTC) on the day on which the
    recording begins or after it; `2026-11-21 12:30:05` says the day too.

    Raises:
        ValueError: the text has none of these forms.
    """
    text = text.strip()
    if text[:1] in ("+", "-") and text[1:].replace(".", "", 1).isascii():
        try:
            return now_ns + round(float(text) * 1e9)
        except (ValueError, OverflowError):
            pass
    begin = datetime.datetime.fromtimestamp(begin_ns // 1_000_000_000, datetime.UTC)
    try:
        if "-" in text:
            moment = datetime.datetime.fromisoformat(text)
        else:
            of_day = datetime.time.fromisoformat(text)
            moment = datetime.datetime.combine(begin.date(), of_day)
    except ValueError:
        meant = "+90, 12:30:05 or 2026-11-21 12:30:05"
        raise ValueError(f"{text!r} is not a moment: write {meant}") from None
    moment = moment.replace(tzinfo=moment.tzinfo or datetime.UTC)
    if "-" not in text and moment < begin.replace(microsecond=0):
        moment += datetime.timedelta(days=1)
    return round(moment.timestamp() * 1_000_000) * 1000


MAX_MARKS: Final = 10_000


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A marked moment of a recording, with a note."""

    time_ns: int
    text: str


class Marks:
    """The marks of one recording, by time. Unreadable lines are left alone and counted."""

    def __init__(self, recording: Path) -> None:
        self.path = recording.with_name(f"{recording.name}.marks")
        self.unreadable = 0
        self._marks: list[Mark] = []
        try:
            lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        except OSError as error:
            raise RecordingFault(f"{self.path}: {error.strerror or error}") from error
        for line in lines[:MAX_MARKS]:
            self._read(line)
        self.unreadable += max(0, len(lines) - MAX_MARKS)
        self._marks.sort()

    @property
    def all(self) -> tuple[Mark, ...]:
        """All marks, oldest first."""
        return tuple(self._marks)

    def add(self, time_ns: int, text: str) -> None:
        """Mark a moment and write the mark to disk.

        Raises:
            RecordingFault: the file cannot be written, or there are too many marks.
        """
        if len(self._marks) >= MAX_MARKS:
            raise RecordingFault(f"{self.path}: there are {MAX_MARKS:,} marks already")
        document = {"format_version": 1, "kind": "mark", "heard_ns": time_ns, "data": {"text": text}}
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            with os.fdopen(open_private(self.path, flags), "ab") as file:
                file.write(json.dumps(document, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            raise RecordingFault(f"{self.path}: {error.strerror or error}") from error
        self._marks.append(Mark(time_ns, text))
        self._marks.sort()

    def _read(self, line: bytes) -> None:
        try:
            document = json.loads(line)
            time_ns, text = document["heard_ns"], document["data"]["text"]
            if type(time_ns) is not int or not isinstance(text, str):
                raise ValueError("not a mark")
        except (KeyError, TypeError, ValueError, RecursionError):
            self.unreadable += 1
            return
        self._marks.append(Mark(time_ns, text))
