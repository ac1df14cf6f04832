"""Conditions on the fields of a sample: the SQL subset of DDS content filters (DDS 1.4, annex B).

    condition  = term { OR term }            term = factor { AND factor }
    factor     = [NOT] ( "(" condition ")" | predicate )
    predicate  = value comparison value | value [NOT] BETWEEN value AND value | value [NOT] LIKE value
    comparison = "=" | "<>" | "!=" | "<" | "<=" | ">" | ">="
    value      = field { "." field } | number | 'text' | "text" | TRUE | FALSE | "%" digits (a parameter)

Words are read in any case. LIKE takes `%` for any text and `_` for one character. There are no functions, no
arithmetic and no ORDER BY. Logic has three values, as in SQL: a comparison of a missing or incomparable value
is neither true nor false, nor is its negation. Only a true condition accepts a sample.
"""

from __future__ import annotations

import enum
import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import msgspec

MAX_LENGTH: Final = 10_000
"""Characters of an expression; a person writes hundreds."""
MAX_DEPTH: Final = 50
"""Nested parentheses: the parser calls itself for each."""
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<text>'(?:[^']|'')*'|\"[^\"]*\")"
    r"|%(?P<parameter>\d+)|(?P<word>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)|(?P<sign><>|!=|<=|>=|[=<>()]))"
)
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WORDS: Final = ("AND", "OR", "NOT", "BETWEEN", "LIKE", "TRUE", "FALSE")

Path = tuple[str, ...]
Truth = bool | None
_Condition = Callable[[Any], Truth]


class Undecodable(ValueError):
    """Bytes that are not a value of a type, or a type that is not supported; the text says where."""


class ExpressionFault(ValueError):
    """An expression that is invalid or does not fit a type.

    Attributes:
        reason: what is wrong, without the place.
        column: where, from 1.
    """

    def __init__(self, reason: str, column: int) -> None:
        super().__init__(f"column {column}: {reason}")
        self.reason = reason
        self.column = column


class ValueKind(enum.Enum):
    """Values that can be compared with each other; OTHER (structures, sequences, unions) with nothing."""

    NUMBER = "a number"
    TEXT = "a text"
    TRUTH = "TRUE or FALSE"
    OTHER = "not a single value"


Kinds = Mapping[Path, ValueKind]
"""Fields of a type, nested ones by their whole path."""


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    column: int


class _Operand(msgspec.Struct, frozen=True):
    """A field (with a path) or a constant, and where it stands."""

    column: int
    path: Path = ()
    constant: Any = None

    def value(self, sample: Any) -> Any:
        return _field(sample, self.path) if self.path else self.constant

    def kind(self, kinds: Kinds) -> ValueKind:
        if not self.path:
            return _kind_of_constant(self.constant)
        if self.path not in kinds:
            raise ExpressionFault(f"the type has no field '{'.'.join(self.path)}'", self.column)
        return kinds[self.path]


class Expression:
    """A condition on the fields of a sample.

    Args:
        text: the expression (see the module), at most `MAX_LENGTH` characters.
        parameters: values of %0, %1, ..., each a literal as in the expression; any other value is a text.

    Raises:
        ExpressionFault: the expression or a parameter is invalid, or no type could fit it.
    """

    def __init__(self, text: str, parameters: Sequence[str] = ()) -> None:
        self.text = text
        self.parameters = tuple(parameters)
        parser = _Parser(text, self.parameters)
        self._condition = parser.parse()
        self._compared = parser.compared
        for operands, is_like in self._compared:
            _agree([(one, _kind_of_constant(one.constant)) for one in operands if not one.path], is_like)

    @property
    def fields(self) -> frozenset[Path]:
        """Fields that it uses."""
        return frozenset(one.path for some, _ in self._compared for one in some if one.path)

    def check(self, kinds: Kinds) -> None:
        """Refuse an expression that cannot be evaluated on samples of a type.

        Raises:
            ExpressionFault: the type has no such field, or values of different kinds are compared.
        """
        for operands, is_like in self._compared:
            _agree([(one, one.kind(kinds)) for one in operands], is_like)

    def accepts(self, sample: object) -> bool:
        """Whether the condition is true of an object with the fields as attributes, or of a mapping."""
        return self._condition(sample) is True


def _agree(operands: list[tuple[_Operand, ValueKind]], is_like: bool) -> None:
    """Refuse values of different kinds; LIKE takes texts."""
    for operand, kind in operands:
        first = ValueKind.TEXT if is_like else operands[0][1]
        if kind is ValueKind.OTHER:
            raise ExpressionFault(f"'{'.'.join(operand.path)}' is {kind.value}", operand.column)
        if kind is not first:
            raise ExpressionFault(f"{kind.value} cannot be compared with {first.value}", operand.column)


class _Parser:
    def __init__(self, text: str, parameters: tuple[str, ...]) -> None:
        self._text = text
        self._parameters = parameters
        self.compared: list[tuple[tuple[_Operand, ...], bool]] = []
        if len(text) > MAX_LENGTH:
            raise ExpressionFault(f"a filter has at most {MAX_LENGTH} characters", MAX_LENGTH + 1)
        self._tokens = self._split()
        self._at = 0
        self._depth = 0

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while self._text[at:].strip():
            found = _TOKEN.match(self._text, at)
            if found is None or found.lastgroup is None:
                rest = self._text[at:]
                self._fail("this is not understood", at + len(rest) - len(rest.lstrip()))
            kind, text = found.lastgroup, found[found.lastgroup]
            if kind == "word" and text.upper() in _WORDS:
                kind, text = "keyword", text.upper()
            tokens.append(_Token(kind, text, found.start(found.lastgroup)))
            at = found.end()
        return tokens

    def _fail(self, reason: str, column: int) -> NoReturn:
        raise ExpressionFault(reason, column + 1)

    def parse(self) -> _Condition:
        condition = self._alternatives()
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._fail(f"'{token.text}' is too much", token.column)
        return condition

    def _next(self, wanted: str) -> _Token:
        if self._at == len(self._tokens):
            self._fail(f"{wanted} is missing", len(self._text))
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, *texts: str) -> str:
        """Take the next token if it is one of these keywords or signs."""
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.kind in ("keyword", "sign") and token.text in texts:
                self._at += 1
                return token.text
        return ""

    def _alternatives(self) -> _Condition:
        terms = [self._conjunction()]
        while self._accept("OR"):
            terms.append(self._conjunction())
        return terms[0] if len(terms) == 1 else _any(terms)

    def _conjunction(self) -> _Condition:
        factors = [self._factor()]
        while self._accept("AND"):
            factors.append(self._factor())
        return factors[0] if len(factors) == 1 else _all(factors)

    def _factor(self) -> _Condition:
        negated = False
        while self._accept("NOT"):
            negated = not negated
        if self._accept("("):
            self._depth += 1
            if self._depth > MAX_DEPTH:
                self._fail(
                    f"more than {MAX_DEPTH} parentheses in each other", self._tokens[self._at - 1].column
                )
            condition = self._alternatives()
            if not self._accept(")"):
                self._next("')'")
                token = self._tokens[self._at - 1]
                self._fail(f"')' is expected, not '{token.text}'", token.column)
            self._depth -= 1
        else:
            condition = self._predicate()
        return _not(condition) if negated else condition

    def _predicate(self) -> _Condition:
        left = self._operand()
        negated = bool(self._accept("NOT"))
        if self._accept("BETWEEN"):
            low = self._operand()
            if not self._accept("AND"):
                self._fail("AND is missing after BETWEEN", self._next("AND").column)
            high = self._operand()
            self.compared.append(((left, low, high), False))
            condition = _all([_compare(operator.ge, left, low), _compare(operator.le, left, high)])
        elif self._accept("LIKE"):
            pattern = self._operand()
            self.compared.append(((left, pattern), True))
            condition = _like(left, pattern)
        else:
            token = self._next("a comparison")
            if negated or token.text not in _COMPARISONS:
                self._fail(f"a comparison is expected, not '{token.text}'", token.column)
            right = self._operand()
            self.compared.append(((left, right), False))
            condition = _compare(_COMPARISONS[token.text], left, right)
        return _not(condition) if negated else condition

    def _operand(self) -> _Operand:
        token = self._next("a value")
        column = token.column + 1
        if token.kind == "word":
            return _Operand(column, tuple(token.text.split(".")))
        if token.kind == "parameter":
            index = int(token.text) if len(token.text) < 6 else len(self._parameters)
            if index >= len(self._parameters):
                self._fail(f"there is no parameter %{token.text}", token.column)
            return _Operand(column, constant=_literal(self._parameters[index]))
        if token.kind in ("number", "text") or token.text in ("TRUE", "FALSE"):
            return _Operand(column, constant=_literal(token.text))
        return self._fail(f"a value is expected, not '{token.text}'", token.column)


def _literal(text: str) -> Any:
    """Return a number, a quoted text or a truth value; anything else is a text."""
    stripped = text.strip()
    if len(stripped) >= 2 and stripped[0] == stripped[-1] and stripped[0] in "'\"":
        inner = stripped[1:-1]
        return inner.replace("''", "'") if stripped[0] == "'" else inner
    if stripped.upper() in ("TRUE", "FALSE"):
        return stripped.upper() == "TRUE"
    for kind in (int, float):
        try:
            return kind(stripped)
        # Not a number of this kind; the next kind, and then the text, is tried.
        except ValueError:
            continue
    return text


def _kind_of_constant(value: Any) -> ValueKind:
    if isinstance(value, bool):
        return ValueKind.TRUTH
    return ValueKind.TEXT if isinstance(value, str) else ValueKind.NUMBER


def _field(sample: Any, path: Path) -> Any:
    for name in path:
        sample = sample.get(name) if isinstance(sample, Mapping) else getattr(sample, name, None)
    return sample.name if isinstance(sample, enum.Enum) else sample


def _any(terms: list[_Condition]) -> _Condition:
    def holds(sample: Any) -> Truth:
        found: Truth = False
        for term in terms:
            truth = term(sample)
            if truth:
                return True
            found = None if truth is None else found
        return found

    return holds


def _all(factors: list[_Condition]) -> _Condition:
    def holds(sample: Any) -> Truth:
        found: Truth = True
        for factor in factors:
            truth = factor(sample)
            if truth is False:
                return False
            found = None if truth is None else found
        return found

    return holds


def _not(condition: _Condition) -> _Condition:
    def holds(sample: Any) -> Truth:
        truth = condition(sample)
        return None if truth is None else not truth

    return holds


def _compare(comparison: Callable[[Any, Any], Any], left: _Operand, right: _Operand) -> _Condition:
    def holds(sample: Any) -> Truth:
        first, second = left.value(sample), right.value(sample)
        if first is None or second is None or isinstance(first, str) is not isinstance(second, str):
            return None
        try:
            return bool(comparison(first, second))
        # Values of kinds that have no order, such as sequences: the comparison is then unknown (NULL), as
        # in SQL.
        except TypeError:
            return None

    return holds


def _like(value: _Operand, pattern: _Operand) -> _Condition:
    def holds(sample: Any) -> Truth:
        text, wanted = value.value(sample), pattern.value(sample)
        if not isinstance(text, str) or not isinstance(wanted, str):
            return None
        return _compiled(wanted).fullmatch(text) is not None

    return holds


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of LIKE, with atomic groups as in `engine.core.expressions`."""
    first, *others = [
        "".join("." if char == "_" else re.escape(char) for char in part) for part in pattern.split("%")
    ]
    if not others:
        return re.compile(first, re.DOTALL)
    middle = "".join(f"(?>.*?{part})" for part in others[:-1] if part)
    return re.compile(f"{first}{middle}.*{others[-1]}", re.DOTALL)
