"""Templates of the messages of OpenSplice and ospltool, with their meanings, and how to match them.

A trace line does not contain the level of its record; the template of the message has it. Templates of
OpenSplice are data (`opensplice.tsv` beside this module), those of ospltool come from its own catalogue.
Both share a vocabulary of *events* (`align.request`, `election.confirmed-self`), so that readers of traces
need one set of names only.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib.resources
import re
import string
from collections.abc import Iterator
from typing import Final

from engine.tracing.catalogue import catalogue as engine_catalogue

UNKNOWN_LEVEL: Final = "?"


class Product(enum.StrEnum):
    """Product that printed a message."""

    OPENSPLICE = "opensplice"
    ENGINE = "engine"


class Printer(enum.StrEnum):
    """Printing routine of OpenSplice that writes a message."""

    EVENT = "event"
    STORE = "store"
    """The store's routine, with `PersistentStore` in place of state and thread."""
    MASK = "mask"
    """Messages that a mask switches on; they begin with the mask in square brackets."""


KINDS: Final = {
    "addr": r"\d+",
    "int": r"-?\d+",
    "num": r"-?\d+(?:\.\d+)?",
    "time": r"-?\d+\.\d+|[A-Za-z]+",
    "hex": r"[0-9a-fA-F]+",
    "ptr": r"0x[0-9a-fA-F]+|\(nil\)",
    "triple": r"\d+,\d+,\d+",
    "pair": r"-?\d+, -?\d+",
    "word": r"[^\s]+",
}
"""Regular expressions of the kinds of fields; `text` and `group` (partition.topic) are free."""

_WORD_FIELDS: Final = frozenset({"fellow", "master", "node", "origin", "conflict"})
"""Addresses, and the conflict, which ospltool names by its lineage: `4/6a05e896`."""

_INTEGER_FIELDS: Final = frozenset({"samples", "count", "links", "run", "priority", "own_priority"})


@dataclasses.dataclass(frozen=True, slots=True)
class Template:
    """One kind of message."""

    id: str
    """Place where OpenSplice prints it (`d_admin:1053`), or the event of ospltool."""
    event: str
    """Event of the shared vocabulary; empty if it has none."""
    levels: tuple[str, ...]
    """Levels at which it is printed."""
    printer: Printer
    """Routine that prints it."""
    thread: str
    """Thread that usually prints it; empty if unknown or one of several."""
    sites: tuple[str, ...]
    """All places in OpenSplice's source; empty for ospltool."""
    pattern: str
    """Message with `{field:kind}` for its variable parts."""
    meaning: str
    """Explanation and advice; empty if there is none."""
    origin: Product
    """Product that prints it."""

    @property
    def level(self) -> str:
        """Level, or `?` if it is not certain."""
        return self.levels[0] if len(self.levels) == 1 else UNKNOWN_LEVEL


@dataclasses.dataclass(frozen=True, slots=True)
class PatternPart:
    """A part of a pattern: literal text, then a field, empty at the end of the pattern."""

    literal: str
    field: str
    kind: str


def pieces(pattern: str) -> tuple[PatternPart, ...]:
    """Return the parts of a pattern, in order."""
    return tuple(
        PatternPart(literal, field or "", (kind or "text") if field else "")
        for literal, field, kind, _ in string.Formatter().parse(pattern)
    )


def pattern_text(pattern: str) -> str:
    """Return a pattern without the kinds of its fields, for people: `Fellow {fellow} ...`."""
    return "".join(piece.literal + (f"{{{piece.field}}}" if piece.field else "") for piece in pieces(pattern))


@functools.cache
def opensplice_templates() -> tuple[Template, ...]:
    """Return the templates of OpenSplice, in the order of its source."""
    source = importlib.resources.files(__package__).joinpath("opensplice.tsv").read_text(encoding="utf-8")
    lines = source.splitlines()
    names = lines[0].split("\t")
    return tuple(_template(dict(zip(names, line.split("\t"), strict=True))) for line in lines[1:])


def _template(row: dict[str, str]) -> Template:
    return Template(
        id=row["id"],
        event=row["event"],
        levels=tuple(row["level"].split("|")),
        printer=Printer(row["printer"]),
        thread=row["thread"],
        sites=tuple(row["sites"].split()),
        pattern=row["pattern"],
        meaning=row["meaning"],
        origin=Product.OPENSPLICE,
    )


@functools.cache
def engine_templates() -> tuple[Template, ...]:
    """Return the templates of ospltool, from its own catalogue."""
    return tuple(
        Template(
            id=kind.id,
            event=kind.id,
            levels=(kind.level.name,),
            printer=Printer.EVENT,
            thread=kind.thread,
            sites=(),
            pattern=_typed(kind.text),
            meaning=kind.meaning,
            origin=Product.ENGINE,
        )
        for kind in engine_catalogue().values()
    )


def _typed(text: str) -> str:
    """Return a message of ospltool as a pattern; the names of its fields tell their kinds."""
    parts = []
    for literal, field, _, _ in string.Formatter().parse(text):
        parts.append(literal.replace("{", "{{").replace("}", "}}"))
        if field is None:
            continue
        if field in _INTEGER_FIELDS:
            kind = "int"
        elif field in _WORD_FIELDS:
            kind = "word"
        elif field.endswith("_ns"):
            kind = "time"
        else:
            kind = "text"
        parts.append(f"{{{field}:{kind}}}")
    return "".join(parts)


class TemplateCatalogue:
    """All templates, by id."""

    def __init__(self, templates: tuple[Template, ...]) -> None:
        self._templates = {template.id: template for template in templates}

    def __iter__(self) -> Iterator[Template]:
        return iter(self._templates.values())

    def __len__(self) -> int:
        return len(self._templates)

    def get(self, template_id: str) -> Template | None:
        """Return the template with an id; None if there is none."""
        return self._templates.get(template_id)

    def named(self, name: str) -> list[Template]:
        """Return the templates with an id, an event or a place in OpenSplice's source (`d_admin:1053`)."""
        wanted = name.strip().replace(".c:", ":")
        return [
            template
            for template in self
            if wanted in {template.id, template.event} or wanted in template.sites
        ]


@functools.cache
def catalogue() -> TemplateCatalogue:
    """Return the templates of OpenSplice and ospltool."""
    return TemplateCatalogue(opensplice_templates() + engine_templates())


def compile_pieces(parts: tuple[PatternPart, ...], *, any_digit: bool = False) -> re.Pattern[str]:
    """Return the regular expression that matches a whole message made from these parts.

    Args:
        parts: the parts of a pattern.
        any_digit: let any digit match a digit in the literal text.
    """
    expression = []
    for part, following in zip(parts, (*parts[1:], None), strict=True):
        literal = re.escape(part.literal)
        expression.append(re.sub("[0-9]", "[0-9]", literal) if any_digit else literal)
        if part.field:
            expression.append(f"(?P<{part.field}>{_value_pattern(part.kind, following)})")
    return re.compile("".join(expression), re.DOTALL)


def _value_pattern(kind: str, following: PatternPart | None) -> str:
    """Return the regular expression of a value.

    Free text matches like `.*?`, but faster: a value ends right before the first character of the literal
    that follows, so only those places are tried.
    """
    if kind not in {"text", "group"}:
        return KINDS[kind]
    if following is None or not following.literal:
        return ".*" if following is None or not following.field else ".*?"
    end = re.escape(following.literal[0])
    return f"[^{end}]*(?:{end}[^{end}]*)*?"
