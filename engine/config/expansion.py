"""Environment variables in configuration values, by the rules of OpenSplice.

`${VAR}` is the variable or, when it is not set, nothing. `${VAR:-x}` is `x` when the variable is unset or
empty, `${VAR:+x}` is `x` when it is neither, `${VAR:?x}` refuses the configuration with the message `x` when
it is unset or empty. `x` is expanded in turn and may hold further braces. A backslash takes the character
after it as it is. A bare `$VAR` stays as it is written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from engine.config.problems import quoted

MAX_NESTING = 16
"""Variables within alternatives within alternatives; deeper is refused."""

MAX_EXPANDED_CHARS = 65_536
"""Longest value that an expansion may produce; longer is refused."""


class ExpansionFault(ValueError):
    """An expansion that cannot be carried out; `offset` counts characters from the start of the text."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """One variable as it is used in a text; `start` and `end` are offsets in the unexpanded text.

    `operator` is empty for `${VAR}`, otherwise the character after the colon. `is_set` says whether the
    environment has the variable at all.
    """

    name: str
    operator: str
    start: int
    end: int
    is_set: bool

    @property
    def vanishes(self) -> bool:
        """Whether it expands to nothing only because the variable was forgotten."""
        return not self.is_set and not self.operator


@dataclasses.dataclass(frozen=True, slots=True)
class Expanded:
    """An expanded text and the variables that were looked at on the way, in order of appearance."""

    text: str
    uses: tuple[Use, ...] = ()


def expand(raw: str, environ: Mapping[str, str]) -> Expanded:
    """Expand all variables of `raw`.

    Raises:
        ExpansionFault: an expansion that is not closed or malformed, a `:?` whose variable is missing, more
            nesting than MAX_NESTING or a result longer than MAX_EXPANDED_CHARS.
    """
    if "$" not in raw and "\\" not in raw:
        return Expanded(raw)
    expander = _Expander(environ)
    text = expander.expand(raw, 0, 0)
    return Expanded(text, tuple(expander.uses))


class _Expander:
    """One run over one text: collects the uses and counts what has been produced."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.uses: list[Use] = []
        self.produced = 0

    def expand(self, raw: str, base: int, depth: int) -> str:
        """The expansion of `raw`, which starts `base` characters into the whole text."""
        if depth > MAX_NESTING:
            raise ExpansionFault(base, f"variables are nested more than {MAX_NESTING} deep")
        parts: list[str] = []
        at = 0
        while at < len(raw):
            if raw[at] == "\\":
                if at + 1 == len(raw):
                    raise ExpansionFault(base + at, "a backslash at the end escapes nothing")
                parts.append(self._keep(raw[at + 1], base + at))
                at += 2
            elif raw.startswith("${", at):
                end, text = self._variable(raw, at, base, depth)
                parts.append(text)
                at = end
            else:
                end = _plain_until(raw, at)
                parts.append(self._keep(raw[at:end], base + at))
                at = end
        return "".join(parts)

    def _keep(self, text: str, offset: int) -> str:
        self.produced += len(text)
        if self.produced > MAX_EXPANDED_CHARS:
            raise ExpansionFault(offset, f"the value expands to more than {MAX_EXPANDED_CHARS} characters")
        return text

    def _variable(self, raw: str, at: int, base: int, depth: int) -> tuple[int, str]:
        """The end of the variable that starts at `at`, and what it expands to."""
        end = _closing_brace(raw, at + 2)
        if end is None:
            raise ExpansionFault(base + at, f"the variable in {quoted(raw[at:])} is not closed with '}}'")
        name, colon, rest = raw[at + 2 : end].partition(":")
        operator = rest[:1]
        if not name or (colon and operator not in ("-", "+", "?")) or (colon and not operator):
            expected = "expected ${NAME}, ${NAME:-x}, ${NAME:+x} or ${NAME:?x}"
            raise ExpansionFault(base + at, f"{quoted(raw[at : end + 1])} cannot be expanded; {expected}")
        value = self.environ.get(name)
        self.uses.append(Use(name, operator, base + at, base + end + 1, value is not None))
        alternative_at = at + 2 + len(name) + 2
        alternative = raw[alternative_at:end]
        if operator == "+":
            text = self.expand(alternative, base + alternative_at, depth + 1) if value else ""
        elif value or (value is not None and not operator):
            text = self._keep(value, base + at)
        elif operator == "-":
            text = self.expand(alternative, base + alternative_at, depth + 1)
        elif operator == "?":
            reason = self.expand(alternative, base + alternative_at, depth + 1) or "it must be set"
            raise ExpansionFault(base + at, f"variable {quoted(name)} is not set: {quoted(reason)}")
        else:
            text = ""
        return end + 1, text


def _plain_until(raw: str, at: int) -> int:
    """Where the run of ordinary characters that starts at `at` ends."""
    end = at + 1
    while end < len(raw) and raw[end] != "\\" and not raw.startswith("${", end):
        end += 1
    return end


def _closing_brace(raw: str, at: int) -> int | None:
    """The offset of the brace that closes a variable whose inside starts at `at`."""
    nesting = 0
    while at < len(raw):
        char = raw[at]
        if char == "\\":
            at += 1
        elif char == "{":
            nesting += 1
        elif char == "}":
            if not nesting:
                return at
            nesting -= 1
        at += 1
    return None
