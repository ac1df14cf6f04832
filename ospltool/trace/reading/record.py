"""A record of a trace or log, and whether it is whole enough to be evidence.

A message may be cut (by OpenSplice at 1022 bytes, by the end of a file, by damage), and a line of JSON may
contain anything. Such a record is shown, but it is evidence only if it has all fields that its event needs.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import gc
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ospltool.output.times import SECOND_NS
from ospltool.trace.meaning.catalogue import UNKNOWN_LEVEL, Template

LEVELS: Final = ("FINEST", "FINER", "FINE", "CONFIG", "INFO", "WARNING", "SEVERE")
# Two threads of a process between the time of a line and its writing.
STRAGGLER_NS: Final = SECOND_NS // 100
"""Time for which a thread may still write a line with the former state after the state has changed."""

NO_FIELDS: Final[Mapping[str, str]] = {}
_NAMED: Final = {9: "\\t", 10: "\\n", 13: "\\r"}


class RecordKind(enum.StrEnum):
    """Kind of a record."""

    TRACE = "trace"
    """A record of a durability trace, with a header."""
    REPORT = "report"
    """A record of ospl-info.log or ospl-error.log."""
    UNPARSED = "unparsed"
    """Bytes that belong to no record: before the first header, or beyond the size of any record."""
    DAMAGED = "damaged"
    """No bytes: the compressed file cannot be read from here on."""


class TimeBase(enum.StrEnum):
    """Beginning of the time of a record."""

    ABSOLUTE = "absolute"
    """1970 UTC."""
    RELATIVE = "relative"
    """The start of the service."""
    NONE = "none"
    """The trace has no timestamps."""


class TraceRecord(NamedTuple):
    """A record, exactly as it is in its file. It is a tuple, not a dataclass, since millions are made."""

    kind: RecordKind
    """Trace, report, unparsed or damaged."""
    node: str
    """Name of the node that wrote it."""
    file: str
    """Path as the user gave it."""
    offset: int
    """Offset of its first byte in the file (after decompression)."""
    time_ns: int | None
    """Nanoseconds from the beginning that `clock` names; None without timestamps."""
    clock: TimeBase
    """Beginning of its time."""
    state: str
    """STATE column; empty without one (the store's lines, reports)."""
    thread: str
    """Thread column; for the store's lines the printer, such as `PersistentStore (KV)`."""
    text: str
    """Message without line ends after it. Bytes that are not UTF-8 are lone surrogates (`surrogateescape`);
    `printable` makes it fit for a terminal."""
    raw: bytes
    """Bytes of the record in the file."""
    run: int = 0
    """Number of the run in this file, from 1; 0 before the first start."""
    template: Template | None = None
    """Template of the message; None if no template matches."""
    fields: Mapping[str, str] = NO_FIELDS
    """Named fields of the template."""
    level: str = UNKNOWN_LEVEL
    """Level from the template or the report's type; `?` if it is not certain."""
    out_of_order: bool = False
    """Whether a record before it in the same file is newer."""

    @property
    def length(self) -> int:
        """Number of its bytes, with header and line ends."""
        return len(self.raw)

    @property
    def terminated(self) -> bool:
        """Whether a line end follows the message. A message without one was cut or is always printed so."""
        return self.raw.endswith(b"\n")

    @property
    def event(self) -> str:
        """Event of the shared vocabulary, such as `align.request`; empty without one."""
        return self.template.event if self.template else ""

    @property
    def template_id(self) -> str:
        """Id of the template; empty if none matches."""
        return self.template.id if self.template else ""


def printable(text: str) -> str:
    """Return `text` for a terminal: line ends and tabs stay, other unprintable characters become escapes."""
    if text.isprintable():
        return text
    return "".join(
        character if character in "\n\t" or character.isprintable() else _escaped(character)
        for character in text
    )


def one_line(text: str) -> str:
    """Return `text` on one line, with unprintable characters as escapes."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def valid_text(text: str) -> str:
    r"""Return `text` as valid Unicode: a byte that was not UTF-8 becomes `\\xNN`."""
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


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Suspend the cyclic garbage collector, which would traverse millions of fields again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()  # with `unfreeze`, all is old; else the collector would traverse it now
            gc.unfreeze()
            gc.enable()


_SECONDS: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?")
_LONGEST_NUMBER: Final = 18
"""Digits that always fit into 64 bits."""

NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "election.confirmed-self": ("namespace",),
    "election.confirmed-fellow": ("namespace", "fellow"),
    "merge.requests": ("namespace", "groups", "fellows"),
    "merge.started": ("namespace", "fellow"),
    "merge.finished": ("namespace",),
    "merge.applying": ("policy", "group"),
    "fellow.heartbeat": ("fellow",),
    "fellow.late": ("fellow", "elapsed_ns"),
    "namespace.received": ("namespace", "fellow"),
    "namespace.merge-state": ("namespace", "merge_state"),
    "namespace.slaved": ("namespace", "merge_state"),
    "namespace.merge-state-advertised": ("namespace", "merge_state"),
    "lifecycle.address": ("node",),
    "client.request": ("reader",),
    "client.fulfilled": ("reader",),
    "deliver.started": ("reader",),
    "deliver.finished": ("reader",),
    "align.sending": ("group",),
    "align.received": ("group",),
    "group.complete": ("group",),
    **{
        f"align.{name}": ("group", "fellow")
        for name in (
            "request",
            "request-filtered",
            "request-delayed",
            "request-received",
            "request-received-filtered",
            "combined",
            "not-combined",
            "sent",
            "equal",
            "link",
            "refused",
            "completed",
        )
    },
}
"""The fields without which a record of an event is no evidence."""


def is_whole(record: TraceRecord) -> bool:
    """Return whether a record has the fields that its event needs."""
    fields = record.fields
    for name in NEEDED.get(record.event, ()):  # noqa: SIM110 - all() takes twice as long, for every record
        if name not in fields:
            return False
    return True


@functools.lru_cache(maxsize=1 << 16)
def number(text: str | None) -> int | None:
    """Parse a number without a sign; return None for anything else, and for numbers beyond 64 bits."""
    if text and len(text) <= _LONGEST_NUMBER and text.isascii() and text.isdecimal():
        return int(text)
    return None


def nanoseconds(text: str) -> int | None:
    """Parse seconds without a sign, with up to nine digits before and after the point; else None."""
    found = _SECONDS.fullmatch(text)
    return int(found[1]) * SECOND_NS + int((found[2] or "").ljust(9, "0")) if found else None
