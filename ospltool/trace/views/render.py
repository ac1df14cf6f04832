"""Renders records as short or full text, as lines of JSON, or by a template of the user."""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ospltool.output import envelope
from ospltool.output.times import clock, iso
from ospltool.trace.reading.record import RecordKind, TimeBase, TraceRecord, one_line, printable, valid_text
from ospltool.trace.reading.report_logs import REPORT_FIELDS

if TYPE_CHECKING:
    from ospltool.output.documents import RecordData

TEMPLATE_FIELDS: Final = (
    "time", "clock", "time_ns", "node", "file", "offset", "run", "kind", "state", "thread", "level",
    "template", "event", "text", "line", "fellow", "namespace", "group", "conflict", "samples", "source",
)  # fmt: skip
"""Fields of a template of the user, besides the fields of a record's own template."""

_COLOURS: Final = {
    "SEVERE": "1;31", "ERROR": "1;31", "FATAL": "1;31", "CRITICAL": "1;31", "WARNING": "33", "INFO": "1",
    "FINEST": "2", "FINER": "2", "unparsed": "35",
}  # fmt: skip
_HIGHLIGHT: Final = "7"


class RenderError(ValueError):
    """An unusable template or output of the user; the message gives the reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class RenderOptions:
    """Options of the text of records.

    Attributes:
        colour: use terminal colours.
        highlight: expression to highlight, with colours only.
        node_width: width of the column of nodes; 0 for no column.
    """

    colour: bool = False
    highlight: re.Pattern[str] | None = None
    node_width: int = 0


def short(record: TraceRecord, look: RenderOptions = RenderOptions()) -> str:
    """Render a line for each line of the message: time of day, node, level, thread, text."""
    time = "" if record.time_ns is None else clock(record.time_ns)
    late = "<" if record.out_of_order else " "
    node = f"{one_line(record.node):<{look.node_width}} " if look.node_width else ""
    level = record.kind.value if record.kind in {RecordKind.UNPARSED, RecordKind.DAMAGED} else record.level
    head = f"{time:<15}{late}{node}{level:<8} {_column(record.thread, 22)} "
    indent = "\n" + " " * len(head)
    text = printable(record.text).rstrip("\n").replace("\n", indent)
    return _painted(head, text, level, look)


def full(record: TraceRecord, look: RenderOptions = RenderOptions()) -> str:
    """Render everything about a record: a line about it, a line for each field, its text."""
    time = "-" if record.time_ns is None else iso(record.time_ns)
    if record.clock is TimeBase.RELATIVE and record.time_ns is not None:
        time = f"+{record.time_ns // 10**9}.{record.time_ns % 10**9:09d}"
    facts = [
        time,
        one_line(record.node),
        record.kind.value,
        record.state or "-",
        one_line(record.thread) or "-",
        record.level,
        record.template_id or "-",
        record.event or "-",
        f"run {record.run}",
        f"{one_line(valid_text(record.file))}, byte {record.offset}+{record.length}",
    ]
    if record.out_of_order:
        facts.append("out of order")
    if not record.terminated:
        facts.append("no line end")
    fields = "".join(f"\n    {one_line(name)} = {one_line(value)}" for name, value in record.fields.items())
    text = "\n    " + printable(record.text).replace("\n", "\n    ")
    return _painted("  ".join(facts) + fields, text, record.level, look)


def as_json(record: TraceRecord) -> RecordData:
    """Return the record for JSON: times as integers, text as valid Unicode."""
    return {
        "kind": record.kind.value,
        "node": valid_text(record.node),
        "file": valid_text(record.file),
        "offset": record.offset,
        "length": record.length,
        "time_ns": record.time_ns,
        "clock": record.clock.value,
        "run": record.run,
        "state": valid_text(record.state),
        "thread": valid_text(record.thread),
        "level": record.level,
        "template": record.template_id or None,
        "event": record.event or None,
        "out_of_order": record.out_of_order,
        "terminated": record.terminated,
        "fields": {valid_text(name): valid_text(value) for name, value in record.fields.items()},
        "text": valid_text(record.text),
    }


def json_line(record: TraceRecord) -> str:
    """Return the record as one line of JSON."""
    return envelope.line("trace-record", as_json(record)).rstrip("\n")


def by_template(template: str) -> Callable[[TraceRecord], str]:
    r"""Return a renderer for a template such as `{clock} {node} {text}`.

    Names are those of `TEMPLATE_FIELDS` and the fields of a record's template (empty where a record has no
    such field); `\n` and `\t` are understood.

    Raises:
        RenderError: the template is malformed, or does more than name fields.
    """
    template = template.replace("\\n", "\n").replace("\\t", "\t")
    try:
        parts = [
            (literal, field, spec, conversion)
            for literal, field, spec, conversion in string.Formatter().parse(template)
        ]
    except ValueError as cause:
        raise RenderError(f"{template!r}: {cause}") from None
    for _, field, spec, conversion in parts:
        if field is not None and (
            not field.isidentifier() or conversion or not re.fullmatch(r"[<>^]?\d{0,3}", spec or "")
        ):
            raise RenderError(
                f"{template!r}: {{{field}}} is not the name of a field (known: {', '.join(TEMPLATE_FIELDS)})"
            )
        if field is not None and field not in _known_fields():
            raise RenderError(
                f"{template!r}: no message has a field {field}; `ospltool trace explain` shows those of one"
            )

    def render(record: TraceRecord) -> str:
        shown = []
        for literal, field, spec, _ in parts:
            shown.append(literal)
            if field is not None:
                shown.append(format(_value(record, field), spec or ""))
        return "".join(shown)

    return render


def _known_fields() -> set[str]:
    """Return the fields of all messages and reports, and the columns."""
    from ospltool.trace.meaning.catalogue import catalogue, pieces  # only for this output

    of_messages = {piece.field for one in catalogue() for piece in pieces(one.pattern)}
    return {*TEMPLATE_FIELDS, *REPORT_FIELDS, *of_messages}


def _value(record: TraceRecord, name: str) -> str:
    match name:
        case "time":
            return "" if record.time_ns is None else iso(record.time_ns)
        case "clock":
            return "" if record.time_ns is None else clock(record.time_ns)
        case "time_ns":
            return "" if record.time_ns is None else str(record.time_ns)
        case "text":
            return printable(record.text)
        case "line":
            return one_line(record.text)
        case "template":
            return record.template_id
        case "kind" | "state" | "level" | "event" | "node" | "file" | "offset" | "run" | "thread":
            return one_line(str(getattr(record, name)))
        case _:
            return one_line(record.fields.get(name, ""))


def _column(text: str, width: int) -> str:
    """Pad text to a column; longer text is not cut."""
    return f"{one_line(text):<{width}}"


def _painted(head: str, text: str, level: str, look: RenderOptions) -> str:
    if not look.colour:
        return head + text
    colour = _COLOURS.get(level)
    if look.highlight is not None:
        begin, end = f"\x1b[{_HIGHLIGHT}m", "\x1b[27m"
        text = look.highlight.sub(lambda found: f"{begin}{found[0]}{end}" if found[0] else "", text)
    return f"\x1b[{colour}m{head}{text}\x1b[0m" if colour else head + text
