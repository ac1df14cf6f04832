"""Marks and notes of a reader, in a file beside the recording, which is only read."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Final

from ospltool.live.recording import RecordingFault

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
            with self.path.open("ab") as file:
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
