"""Environment variables in configuration values, by the rules of OpenSplice.

`${VAR}` is the variable or, if it is not set, nothing. `${VAR:-x}` is `x` if the variable is unset or empty,
`${VAR:+x}` is `x` if it is neither, `${VAR:?x}` refuses the configuration with the message `x` if it is unset
or empty. `x` is expanded in turn and may contain further braces. A backslash escapes the next character. A
bare `$VAR` stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from engine.config.problems import quoted

# People write one or two levels; the expansion is recursive, and Python's stack ends at some hundred.
MAX_NESTING = 16
"""Limit for the nesting of variables in alternatives."""

# Far above any value; a few variables that name each other double with each level.
MAX_EXPANDED_CHARS = 65_536
"""Limit for the characters of an expanded value."""


class ExpansionFault(ValueError):
    """An expansion failed; `offset` counts characters from the start of the text."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


class Use(msgspec.Struct, frozen=True):
    """One use of a variable; `start` and `end` are offsets in the unexpanded text.

    `operator` is empty for `${VAR}`, otherwise the character after the colon. `is_set` tells whether the
    environment has the variable.
    """

    name: str
    operator: str
    start: int
    end: int
    is_set: bool

    @property
    def vanishes(self) -> bool:
        """Whether it expands to nothing because the variable is not set."""
        return not self.is_set and not self.operator


class Expanded(msgspec.Struct, frozen=True):
    """An expanded text and the variables used in it, in order of appearance."""

    text: str
    uses: tuple[Use, ...] = ()


def expand(raw: str, environ: Mapping[str, str]) -> Expanded:
    """Expand all variables of `raw`.

    Raises:
        ExpansionFault: an expansion is not closed or malformed, the variable of a `:?` is missing, the
            nesting exceeds MAX_NESTING, or the result exceeds MAX_EXPANDED_CHARS.
    """
    if "$" not in raw and "\\" not in raw:
        return Expanded(raw)
    if len(raw) > MAX_EXPANDED_CHARS:
        raise ExpansionFault(0, f"a value with variables is longer than {MAX_EXPANDED_CHARS} characters")
    expander = _Expander(raw, environ)
    text, _ = expander.expand(0, 0)
    return Expanded(text, tuple(expander.uses))


_PLAIN = re.compile(r"[^\\${}]+|.", re.DOTALL)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_NAME = re.compile(r"[^:}]*")


class _Expander:
    """The expansion of one text, in a single pass."""

    def __init__(self, raw: str, environ: Mapping[str, str]) -> None:
        self.raw = raw
        self.environ = environ
        self.uses: list[Use] = []
        self.produced = 0

    def expand(self, at: int, depth: int) -> tuple[str, int]:
        """Expand from `at` on; return the text and its end: that of the text, or an alternative's brace."""
        parts: list[str] = []
        nesting = 0
        while at < len(self.raw):
            char = self.raw[at]
            if char == "\\":
                if at + 1 == len(self.raw):
                    raise ExpansionFault(at, "a backslash at the end escapes nothing")
                parts.append(self._bounded(self.raw[at + 1], at))
                at += 2
                continue
            if self.raw.startswith("${", at):
                text, at = self._variable(at, depth)
                parts.append(text)
                continue
            if depth and char == "}" and not nesting:
                break
            nesting += (char == "{") - (char == "}")
            found = _PLAIN.match(self.raw, at)
            assert found, "every character matches"
            parts.append(self._bounded(found.group(), at))
            at = found.end()
        return "".join(parts), at

    def _bounded(self, text: str, offset: int) -> str:
        self.produced += len(text)
        if self.produced > MAX_EXPANDED_CHARS:
            raise ExpansionFault(offset, f"the value expands to more than {MAX_EXPANDED_CHARS} characters")
        return text

    def _variable(self, start: int, depth: int) -> tuple[str, int]:
        """Expand the variable at `start`; return the text and the variable's end."""
        if depth == MAX_NESTING:
            raise ExpansionFault(start, f"variables are nested more than {MAX_NESTING} deep")
        found = _NAME.match(self.raw, start + 2)
        assert found, "an empty name matches as well"
        name, at = found.group(), found.end()
        operator = ""
        is_plain = not self.raw.startswith(":", at)
        if not is_plain:
            operator = self.raw[at + 1 : at + 2]
            at += 2
        if at >= len(self.raw) and operator != "}":
            raise self._not_closed(start)
        if not name or (not is_plain and operator not in ("-", "+", "?")):
            expected = "expected ${NAME}, ${NAME:-x}, ${NAME:+x} or ${NAME:?x}"
            raise ExpansionFault(start, f"{quoted(self.raw[start:at])} cannot be expanded; {expected}")
        value = self.environ.get(name)
        place = len(self.uses)
        use = Use(name, operator, start, start, value is not None)
        self.uses.append(use)
        if operator and bool(value) == (operator == "+"):
            text, end = self.expand(at, depth + 1)
        else:
            text, end = self._bounded(value or "", start) if operator != "+" else "", self._skip(at)
        if end >= len(self.raw):
            raise self._not_closed(start)
        if operator == "?" and not value:
            reason = quoted(text or "it must be set")
            raise ExpansionFault(start, f"variable {quoted(name)} is not set: {reason}")
        self.uses[place] = msgspec.structs.replace(use, end=end + 1)
        return text, end + 1

    def _skip(self, at: int) -> int:
        """Return the end of an unused alternative: its closing brace, or the end of the text."""
        nesting = 0
        for found in _BRACE.finditer(self.raw, at):
            if found.group() == "{":
                nesting += 1
            elif found.group() == "}":
                if not nesting:
                    return found.start()
                nesting -= 1
        return len(self.raw)

    def _not_closed(self, start: int) -> ExpansionFault:
        return ExpansionFault(start, f"the variable in {quoted(self.raw[start:])} is not closed with '}}'")
