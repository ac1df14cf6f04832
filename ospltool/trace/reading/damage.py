"""Damaged files: the part before the damage is shown, and the place is reported.

A compressed file that is cut or damaged is read up to the place where it cannot be decompressed. That place
is noted here, once for each file, for the report to the user.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import IO, Any, Final

STEP_BYTES: Final = 1 << 13
"""Bytes that are decompressed at once: the most that is lost before the damage."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileDamage:
    """A file that cannot be read to its end.

    Attributes:
        file: path of the file.
        offset: readable bytes, after decompression.
        reason: description of the damage.
    """

    file: str
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: cannot be read beyond byte {self.offset}: {self.reason}"


_noted: dict[str, FileDamage] = {}


def note(damage: FileDamage) -> None:
    """Note that a file cannot be read to its end."""
    _noted[damage.file] = damage


def found_in(path: pathlib.Path) -> FileDamage | None:
    """Return the damage that this process found in a file; None without any."""
    return _noted.get(str(path))


def noted() -> list[FileDamage]:
    """Return the damages noted and not collected yet, by file."""
    # Threads note them in any order.
    return sorted(_noted.values(), key=lambda one: one.file)


def collect() -> list[FileDamage]:
    """Return the noted damages, by file, and forget them."""
    taken = noted()
    _noted.clear()
    return taken


class SoundPart:
    """A stream of decompressed bytes that ends at a damage, and notes it.

    Args:
        path: the file.
        decompressed: begins to decompress the file, which is open, on whatever file system it lies.
        errors: exceptions of the decompression.
    """

    def __init__(
        self,
        path: pathlib.Path,
        decompressed: Callable[[IO[bytes]], Any],
        errors: tuple[type[Exception], ...],
    ) -> None:
        self._path = path
        self._file = path.open("rb")
        self._stream = decompressed(self._file)
        self._errors = errors
        self._at = 0
        self._is_over = False

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes; none at the end or at a damage."""
        parts: list[bytes] = []
        left = size
        while left and not self._is_over:
            step = STEP_BYTES if left < 0 else min(left, STEP_BYTES)
            try:
                part = self._stream.read1(step)
            except self._errors as cause:
                note(FileDamage(str(self._path), self._at, str(cause) or type(cause).__name__))
                part = b""
            self._is_over = not part
            self._at += len(part)
            left -= len(part) if left > 0 else 0
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        self._file.close()

    def __enter__(self) -> SoundPart:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
