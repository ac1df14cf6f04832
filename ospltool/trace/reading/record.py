"""One record of a trace or log, as a value."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ospltool.trace.meaning.catalogue import Template

UNKNOWN_LEVEL: Final = "?"
LEVELS: Final = ("FINEST", "FINER", "FINE", "CONFIG", "INFO", "WARNING", "SEVERE")
NO_FIELDS: Final[Mapping[str, str]] = {}
_NAMED: Final = {9: "\\t", 10: "\\n", 13: "\\r"}


class Kind(enum.StrEnum):
    """What a record is made of."""

    TRACE = "trace"
    """A record of a durability trace, with a header."""
    REPORT = "report"
    """A record of ospl-info.log or ospl-error.log."""
    UNPARSED = "unparsed"
    """Bytes that belong to no record: before the first header, or beyond the size of any record."""
    DAMAGED = "damaged"
    """No bytes at all: the compressed file cannot be read on from here."""


class Clock(enum.StrEnum):
    """What the time of a record counts from."""

    ABSOLUTE = "absolute"
    """1970 UTC."""
    RELATIVE = "relative"
    """The start of the service."""
    NONE = "none"
    """The trace has no timestamps."""


class Record(NamedTuple):
    """A record, exactly as it stands in its file. A tuple, not a dataclass: millions are made.

    Attributes:
        kind: trace, report or unparsed.
        node: the name of the node that wrote it.
        file: the path as it was given.
        offset: byte offset of its first byte in the file (after decompression).
        time_ns: nanoseconds since 1970 UTC, or since the start of the service; None without timestamps.
        clock: which of the three.
        state: the STATE column; empty where there is none (the store's lines, reports).
        thread: the thread column; for the store's lines the printer, such as `PersistentStore (KV)`.
        text: the message without the line ends after it. Bytes that are not UTF-8 are kept as lone
            surrogates (`surrogateescape`); `safe_text` is fit for a terminal.
        raw: the bytes of the record, as they stand in the file.
        run: how often the service had been started in this file, from 1; 0 before the first start.
        template: what the catalogue knows about the message; None when no template matches.
        fields: the named fields of the template.
        level: the level, from the template or the report's type; `?` where it is not certain.
        out_of_order: it is older than a record before it in the same file.
    """

    kind: Kind
    node: str
    file: str
    offset: int
    time_ns: int | None
    clock: Clock
    state: str
    thread: str
    text: str
    raw: bytes
    run: int = 0
    template: Template | None = None
    fields: Mapping[str, str] = NO_FIELDS
    level: str = UNKNOWN_LEVEL
    out_of_order: bool = False

    @property
    def length(self) -> int:
        """Its bytes, with header and line ends."""
        return len(self.raw)

    @property
    def terminated(self) -> bool:
        """Whether a line end followed the message. A message without one was cut, or is printed so."""
        return self.raw.endswith(b"\n")

    @property
    def event(self) -> str:
        """The event of the shared vocabulary, such as `align.request`; empty when it has none."""
        return self.template.event if self.template else ""

    @property
    def template_id(self) -> str:
        """The id of the template; empty when none matches."""
        return self.template.id if self.template else ""


def printable(text: str) -> str:
    """`text` for a terminal: line ends and tabs stay, whatever else does not print becomes an escape."""
    if text.isprintable():
        return text
    return "".join(
        character if character in "\n\t" or character.isprintable() else _escaped(character)
        for character in text
    )


def one_line(text: str) -> str:
    """`text` on one line, with everything that does not print as an escape."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def valid_text(text: str) -> str:
    r"""`text` as valid Unicode: a byte that was not UTF-8 becomes `\\xNN`."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a character, as JSON can spell it
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _escaped(character: str) -> str:
    code = ord(character)
    if code in _NAMED:
        return _NAMED[code]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8
        code -= 0xDC00
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
