"""From the text of a message to its template and fields.

A message is compared with few templates: those whose literal beginning it has (found in a tree of
beginnings), then those that begin with a field and whose longest literal part it contains. Messages without
fields are found by one look into a dictionary.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Final, NamedTuple

from ospltool.trace.meaning.catalogue import (
    Origin,
    Piece,
    Printer,
    compile_pieces,
    engine_templates,
    opensplice_templates,
    pieces,
)

if TYPE_CHECKING:
    import re

    from ospltool.trace.meaning.catalogue import Template

CUT_AT_BYTES: Final = 1022
"""OpenSplice cuts a message here, and its line end is lost."""

LONGEST_MATCHED: Final = 8192
"""A longer message is matched by its beginning, so that no pattern has to walk it several times."""

_LEAF: Final = 2
_FAN_OUT: Final = 24
_CUT_PREFIX: Final = 8
_MASK_START: Final = len("[0x")
_MASK_END: Final = "] "
_NOWHERE: Final = ((0, 0),)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Messages of one template with the same fields. One object for each: compared by identity."""

    template: Template
    names: tuple[str, ...]


class Match(NamedTuple):
    """What a message was made from, and where its fields are.

    Attributes:
        shape: template and names of the fields.
        text: what the template made: the message, or its first line.
        spans: for the whole text and then for each field, where it begins and ends in `text`.
        shift: how much of the message stands before `text`.
        mask: the mask before it; it is then the first field.
    """

    shape: Shape
    text: str
    spans: tuple[tuple[int, int], ...]
    shift: int = 0
    mask: str | None = None

    @property
    def template(self) -> Template:
        """The template."""
        return self.shape.template

    @property
    def fields(self) -> dict[str, str]:
        """The values of the fields by their names."""
        values = [self.text[start:end] for start, end in self.spans[1:]]
        return dict(zip(self.shape.names, values if self.mask is None else [self.mask, *values], strict=True))

    @property
    def places(self) -> list[tuple[int, int]]:
        """Where each field begins and ends in the message, in characters."""
        places = [(start + self.shift, end + self.shift) for start, end in self.spans[1:]]
        return places if self.mask is None else [(_MASK_START, _MASK_START + len(self.mask)), *places]


class _Candidate:
    """A template with fields, ready to be compared. Its pattern is compiled when it is needed first."""

    __slots__ = ("_pattern", "masked", "needle", "parts", "prefix", "shape")

    def __init__(self, template: Template, parts: tuple[Piece, ...]) -> None:
        names = tuple(part.field for part in parts if part.field)
        self.shape = Shape(template, names)
        self.masked = Shape(template, ("mask", *names))  # of a message with the mask before it
        self.parts = parts
        self.prefix = parts[0].literal  # what every message of it begins with
        self.needle = max((part.literal for part in parts[1:]), key=len, default="")
        self._pattern: re.Pattern[str] | None = None

    @property
    def pattern(self) -> re.Pattern[str]:
        """What matches a whole message."""
        if self._pattern is None:
            self._pattern = compile_pieces(self.parts)
        return self._pattern

    @property
    def literal_length(self) -> int:
        """How much of it is fixed; of two templates that match, the one with more is meant."""
        return sum(len(part.literal) for part in self.parts)


@dataclasses.dataclass(slots=True)
class _Node:
    """A node of the tree of beginnings.

    Attributes:
        length: how many characters decide about the next node.
        children: the next nodes.
        candidates: what to try when there is no next node; the longest beginnings first.
    """

    length: int
    children: dict[str, _Node]
    candidates: tuple[_Candidate, ...]


def _tree(candidates: list[_Candidate], known: int, above: tuple[_Candidate, ...]) -> _Node:
    """The tree of candidates that share their first `known` characters."""
    if len(candidates) <= _LEAF:
        return _Node(0, {}, (*candidates, *above))
    shortest = min(len(one.prefix) for one in candidates)
    length = known + 1  # as far as they still differ, and no further than the shortest beginning
    while length < shortest and len({one.prefix[:length] for one in candidates}) < _FAN_OUT:
        length += 1
    groups: dict[str, list[_Candidate]] = {}
    for one in candidates:
        if len(one.prefix) >= length:
            groups.setdefault(one.prefix[:length], []).append(one)
    here = (*(one for one in candidates if len(one.prefix) < length), *above)
    return _Node(length, {prefix: _tree(group, length, here) for prefix, group in groups.items()}, here)


class _Index:
    """The templates of one printer and one origin."""

    def __init__(self, templates: tuple[Template, ...]) -> None:
        self._exact: dict[str, tuple[Shape, Shape]] = {}
        candidates: list[_Candidate] = []
        for template in templates:
            parts = pieces(template.pattern)
            if any(part.field for part in parts):
                candidates.append(_Candidate(template, parts))
            else:
                shapes = (Shape(template, ()), Shape(template, ("mask",)))
                self._exact.setdefault("".join(part.literal for part in parts), shapes)
        candidates.sort(key=lambda one: -one.literal_length)
        others = tuple(one for one in candidates if not one.prefix)
        self._tree = _tree([one for one in candidates if one.prefix], 0, others)
        self._by_beginning: dict[str, list[_Candidate]] = {}
        for one in candidates:
            if len(one.prefix) >= _CUT_PREFIX:
                self._by_beginning.setdefault(one.prefix[:_CUT_PREFIX], []).append(one)

    def find(self, text: str, mask: str | None = None, shift: int = 0) -> Match | None:
        """The template that makes exactly this text."""
        exact = self._exact.get(text)
        if exact is not None:
            return Match(exact[mask is not None], text, _NOWHERE, shift, mask)
        node: _Node | None = self._tree
        while node is not None:
            candidates = node.candidates
            node = node.children.get(text[: node.length])
        for one in candidates:
            if one.needle in text:
                found = one.pattern.fullmatch(text)
                if found:
                    return Match(one.shape if mask is None else one.masked, text, found.regs, shift, mask)
        return None

    def find_cut(self, text: str) -> Match | None:
        """The template of a message whose end is missing: the one that explains most of it.

        A field that reaches the end of the message is left out: half a name or a number is another one.
        """
        best: tuple[int, Match] | None = None
        for one in self._by_beginning.get(text[:_CUT_PREFIX], ()):
            if not text.startswith(one.prefix):
                continue
            for kept in range(len(one.parts) - 1, 0, -1):
                shape, pattern = _beginning(one.shape, one.parts[:kept])
                found = pattern.match(text)
                if found:
                    explained = sum(len(part.literal) for part in one.parts[:kept])
                    if best is None or explained > best[0]:
                        best = explained, _without_end(shape, text, found.regs)
                    break
        return best[1] if best else None


def _without_end(shape: Shape, text: str, spans: tuple[tuple[int, int], ...]) -> Match:
    """The match of a cut message, without a field that was cut with it."""
    if shape.names and spans[-1][1] == len(text):
        return Match(_shorter(shape), text, spans[:-1])
    return Match(shape, text, spans)


@functools.lru_cache(maxsize=1024)
def _shorter(shape: Shape) -> Shape:
    """The shape without its last field."""
    return Shape(shape.template, shape.names[:-1])


@functools.lru_cache(maxsize=1024)
def _beginning(shape: Shape, parts: tuple[Piece, ...]) -> tuple[Shape, re.Pattern[str]]:
    """What the first parts of a template can make; the last field takes what is left if it is text."""
    names = tuple(part.field for part in parts if part.field)
    return Shape(shape.template, names), compile_pieces((*parts, Piece("", "", "")))


class Matcher:
    """Finds templates: those of the trace's own origin first, then those of the other one."""

    def __init__(self, templates: tuple[Template, ...], others: tuple[Template, ...] = ()) -> None:
        def index(printer: Printer) -> tuple[_Index, _Index]:
            return (
                _Index(tuple(one for one in templates if one.printer is printer)),
                _Index(tuple(one for one in others if one.printer is printer)),
            )

        self._event, self._store, self._mask = (
            index(printer) for printer in (Printer.EVENT, Printer.STORE, Printer.MASK)
        )

    def match(self, text: str, *, store: bool = False, cut: bool = False) -> Match | None:
        """The template of a message.

        Args:
            text: the message, without the line ends after it.
            store: the store's printer wrote it.
            cut: it may have been cut at its end.
        """
        if store:
            return _find(self._store, text, None, cut=cut)
        found = self._event[0].find(text)
        if found is not None:
            return found
        if text.startswith("[0x") and _MASK_END in text[:24]:
            mask, _, rest = text[_MASK_START:].partition(_MASK_END)
            return _find(self._mask, rest, mask, cut=cut, shift=len(text) - len(rest))
        return _find(self._event, text, None, cut=cut)


def _find(
    index: tuple[_Index, _Index], text: str, mask: str | None, *, cut: bool, shift: int = 0
) -> Match | None:
    own, other = index
    long = len(text) > LONGEST_MATCHED
    found = None if long else own.find(text, mask, shift) or other.find(text, mask, shift)
    if found is None and (long or "\n" in text):
        # Lines that follow without a header may belong to this record, or to that of another thread.
        line = text.partition("\n")[0][:LONGEST_MATCHED]
        found = own.find(line, mask, shift) or other.find(line, mask, shift)
    if found is None and cut and mask is None:
        found = own.find_cut(text[:LONGEST_MATCHED]) or other.find_cut(text[:LONGEST_MATCHED])
    return found


@functools.cache
def matcher(origin: Origin = Origin.OPENSPLICE) -> Matcher:
    """The matcher for traces of an origin; it knows the templates of the other one too."""
    if origin is Origin.ENGINE:
        return Matcher(engine_templates(), opensplice_templates())
    return Matcher(opensplice_templates(), engine_templates())


@functools.cache
def templates_with_digits() -> tuple[re.Pattern[str], ...]:
    """Patterns of the templates whose literal text has digits, with any digit in the place of each.

    Two messages that differ in digits only are of the same template, unless one of these patterns matches.
    """
    return tuple(
        compile_pieces(pieces(template.pattern), any_digit=True)
        for template in opensplice_templates() + engine_templates()
        if any(character.isdigit() for part in pieces(template.pattern) for character in part.literal)
    )
