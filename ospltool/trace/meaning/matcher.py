"""Finds the template and the fields of a message.

A message is compared with few templates: those with its literal beginning (found in a tree of beginnings),
then those that begin with a field and whose longest literal part it contains. Messages without fields are
found in a dictionary.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ospltool.trace.meaning.catalogue import (
    KINDS,
    PatternPart,
    Printer,
    Product,
    Template,
    compile_pieces,
    engine_templates,
    opensplice_templates,
    pieces,
)

CUT_AT_BYTES: Final = 1022
"""Size at which OpenSplice cuts a message, with its line end."""

# Eight times OpenSplice's cut; lines of our own nodes may list the groups of a set.
LONGEST_MATCHED: Final = 8192
"""Length up to which a message is matched; of longer ones the beginning is, which bounds the time."""

Spans = tuple[tuple[int, int], ...]
_FREE: Final = frozenset({"text", "group"})
_REST: Final = PatternPart("", "", "")
"""The end of the parts of a message that was cut: anything may follow."""

# Chosen: below it a regular expression is faster than `divided`; beyond, its time has no bound.
_MOST_WAYS: Final = 1_000
"""Ways to divide a message between its free fields, up to which a regular expression may try them."""

# Chosen: a line that takes more has no template.
_MOST_STEPS: Final = 20_000
# Of two candidates each is tried; a further level of the tree would cost as much.
_LEAF: Final = 2
# Chosen: enough branches that few candidates are left, and a prefix that is short.
_FAN_OUT: Final = 24
# Shorter beginnings are common to many templates.
_CUT_PREFIX: Final = 8
_MASK_START: Final = len("[0x")
_MASK_END: Final = "] "
_NOWHERE: Final = ((0, 0),)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A template and a list of its fields; shapes are compared by identity."""

    template: Template
    names: tuple[str, ...]


class Match(NamedTuple):
    """The template of a message, and the places of its fields.

    Attributes:
        shape: template and names of the fields.
        text: the part that the template made: the message, or its first line.
        spans: beginning and end in `text`, of the whole text and then of each field.
        shift: characters of the message before `text`.
        mask: the mask before it, which is then the first field; None without one.
    """

    shape: Shape
    text: str
    spans: tuple[tuple[int, int], ...]
    shift: int = 0
    mask: str | None = None

    @property
    def template(self) -> Template:
        """The template of the message."""
        return self.shape.template

    @property
    def fields(self) -> dict[str, str]:
        """Values of the fields by name."""
        values = [self.text[start:end] for start, end in self.spans[1:]]
        return dict(zip(self.shape.names, values if self.mask is None else [self.mask, *values], strict=True))

    @property
    def places(self) -> list[tuple[int, int]]:
        """Beginning and end of each field in the message, in characters."""
        places = [(start + self.shift, end + self.shift) for start, end in self.spans[1:]]
        return places if self.mask is None else [(_MASK_START, _MASK_START + len(self.mask)), *places]


class _WholePattern:
    """Matches whole messages made of parts, in a time that does not explode.

    A regular expression tries all ways to divide a message between its free fields. In a message in which the
    texts between them stand hundreds of times, by damage or by intent, that takes minutes; such a message is
    divided part by part instead.
    """

    __slots__ = ("_ends", "_parts", "_regex")

    def __init__(self, parts: tuple[PatternPart, ...]) -> None:
        self._parts = parts
        pairs = itertools.pairwise(parts)
        ends = [after.literal for part, after in pairs if part.kind in _FREE and after.literal]
        self._ends = tuple(ends) if len(ends) > 1 else ()
        self._regex: re.Pattern[str] | None = None

    def spans(self, text: str) -> Spans | None:
        """Return the places of the message and of its fields; None if it does not match."""
        if self._ends and math.prod(map(text.count, self._ends)) > _MOST_WAYS:
            return divided(self._parts, text)
        if self._regex is None:
            self._regex = compile_pieces(self._parts)
        found = self._regex.match(text) if self._parts[-1] is _REST else self._regex.fullmatch(text)
        return found.regs if found else None


def divided(parts: tuple[PatternPart, ...], text: str) -> Spans | None:
    """Divide a message between parts, as the regular expression does, or give up after many steps.

    A free field that cannot end before the end of the message cannot do so from a later place either.
    """
    dead: dict[int, int] = {}
    left = _MOST_STEPS

    def rest_of(number: int, at: int) -> Spans | None:
        nonlocal left
        if number == len(parts):
            return () if at == len(text) else None
        part = parts[number]
        if not text.startswith(part.literal, at):
            return None
        at += len(part.literal)
        if not part.field:
            return () if part is _REST else rest_of(number + 1, at)
        if at >= dead.get(number, len(text) + 1):
            return None
        for end in _ends_of(part, parts[number + 1] if number + 1 < len(parts) else None, text, at):
            left -= 1
            if left < 0:
                return None
            after = rest_of(number + 1, end)
            if after is not None:
                return ((at, end), *after)
        if part.kind in _FREE:
            dead[number] = min(at, dead.get(number, at))
        return None

    found = rest_of(0, 0)
    return None if found is None else ((0, len(text)), *found)


def _ends_of(part: PatternPart, after: PatternPart | None, text: str, at: int) -> Iterator[int]:
    """Yield the places where a field that begins here may end, in the order of the regular expression."""
    if part.kind not in _FREE:
        pattern = re.compile(KINDS[part.kind])
        found = pattern.match(text, at)
        for end in range(found.end(), at, -1) if found else ():
            if pattern.fullmatch(text, at, end):
                yield end
    elif after is None or (not after.field and not after.literal):
        yield len(text)
    elif not after.literal:
        yield from range(at, len(text) + 1)
    else:
        end = text.find(after.literal, at)
        while end >= 0:
            yield end
            end = text.find(after.literal, end + 1)


class _Candidate:
    """A template with fields. Its pattern is compiled at its first use."""

    __slots__ = ("masked", "needle", "parts", "pattern", "prefix", "shape")

    def __init__(self, template: Template, parts: tuple[PatternPart, ...]) -> None:
        names = tuple(part.field for part in parts if part.field)
        self.shape = Shape(template, names)
        self.masked = Shape(template, ("mask", *names))  # for a message with a mask before it
        self.parts = parts
        self.prefix = parts[0].literal  # the beginning of all of its messages
        self.needle = max((part.literal for part in parts[1:]), key=len, default="")
        self.pattern = _WholePattern(parts)

    @property
    def literal_length(self) -> int:
        """Length of the literal text; of two templates that match, the longer one wins."""
        return sum(len(part.literal) for part in self.parts)


@dataclasses.dataclass(slots=True)
class _Node:
    """A node of the tree of beginnings.

    Attributes:
        length: number of characters that choose the next node.
        children: next nodes.
        candidates: candidates to try if there is no next node, longest beginnings first.
    """

    length: int
    children: dict[str, _Node]
    candidates: tuple[_Candidate, ...]


def _tree(candidates: list[_Candidate], known: int, above: tuple[_Candidate, ...]) -> _Node:
    """Return the tree of candidates that share their first `known` characters."""
    if len(candidates) <= _LEAF:
        return _Node(0, {}, (*candidates, *above))
    shortest = min(len(one.prefix) for one in candidates)
    length = known + 1  # grows while they differ, up to the shortest beginning
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
        # The most text of its own first: others may match the same line with fewer words and longer fields.
        candidates.sort(key=lambda one: -one.literal_length)
        others = tuple(one for one in candidates if not one.prefix)
        self._tree = _tree([one for one in candidates if one.prefix], 0, others)
        self._by_beginning: dict[str, list[_Candidate]] = {}
        for one in candidates:
            if len(one.prefix) >= _CUT_PREFIX:
                self._by_beginning.setdefault(one.prefix[:_CUT_PREFIX], []).append(one)

    def find(self, text: str, mask: str | None = None, shift: int = 0) -> Match | None:
        """Return the match of exactly this text."""
        exact = self._exact.get(text)
        if exact is not None:
            return Match(exact[mask is not None], text, _NOWHERE, shift, mask)
        node: _Node | None = self._tree
        while node is not None:
            candidates = node.candidates
            node = node.children.get(text[: node.length])
        for one in candidates:
            if one.needle in text:
                found = one.pattern.spans(text)
                if found:
                    return Match(one.shape if mask is None else one.masked, text, found, shift, mask)
        return None

    def find_cut(self, text: str) -> Match | None:
        """Return the match that explains most of a message whose end is missing.

        A field that reaches the end of the message is left out, since half a name or number is wrong.
        """
        best: tuple[int, Match] | None = None
        for one in self._by_beginning.get(text[:_CUT_PREFIX], ()):
            if not text.startswith(one.prefix):
                continue
            for kept in range(len(one.parts) - 1, 0, -1):
                shape, pattern = _beginning(one.shape, one.parts[:kept])
                found = pattern.spans(text)
                if found:
                    explained = sum(len(part.literal) for part in one.parts[:kept])
                    if best is None or explained > best[0]:
                        best = explained, _without_end(shape, text, found)
                    break
        return best[1] if best else None


def _without_end(shape: Shape, text: str, spans: tuple[tuple[int, int], ...]) -> Match:
    """Return the match of a cut message, without a field that was cut with it."""
    if shape.names and spans[-1][1] == len(text):
        return Match(_shorter(shape), text, spans[:-1])
    return Match(shape, text, spans)


@functools.lru_cache(maxsize=1024)
def _shorter(shape: Shape) -> Shape:
    """Return the shape without its last field."""
    return Shape(shape.template, shape.names[:-1])


@functools.lru_cache(maxsize=1024)
def _beginning(shape: Shape, parts: tuple[PatternPart, ...]) -> tuple[Shape, _WholePattern]:
    """Return shape and pattern of the first parts of a template; a last field of kind text takes the rest."""
    names = tuple(part.field for part in parts if part.field)
    return Shape(shape.template, names), _WholePattern((*parts, _REST))


class Matcher:
    """A finder of templates: those of the trace's own origin first, then those of the other one."""

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
        """Find the template of a message.

        Args:
            text: the message, without line ends after it.
            store: the store's printer wrote the message.
            cut: the message may have been cut at its end.
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
def matcher(origin: Product = Product.OPENSPLICE) -> Matcher:
    """Return the matcher for traces of an origin, which knows the templates of the other one, too."""
    if origin is Product.ENGINE:
        return Matcher(engine_templates(), opensplice_templates())
    return Matcher(opensplice_templates(), engine_templates())


@functools.cache
def templates_with_digits() -> tuple[re.Pattern[str], ...]:
    """Return patterns of the templates with digits in their literal text, where any digit matches.

    Two messages that differ only in digits have the same template, unless one of these patterns matches.
    """
    return tuple(
        compile_pieces(pieces(template.pattern), any_digit=True)
        for template in opensplice_templates() + engine_templates()
        if any(character.isdigit() for part in pieces(template.pattern) for character in part.literal)
    )
