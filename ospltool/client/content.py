"""Content filters: the conditions of DDS (SQL), evaluated here, because only here is the type known.

    condition  = term { OR term }            term = factor { AND factor }
    factor     = [NOT] ( "(" condition ")" | predicate )
    predicate  = value comparison value | value [NOT] BETWEEN value AND value | value [NOT] LIKE value
    comparison = "=" | "<>" | "!=" | "<" | "<=" | ">" | ">="
    value      = field { "." field } | number | 'text' | TRUE | FALSE | "%" digits (a parameter)

Words are read in any case. LIKE takes `%` for any text and `_` for one character. There are no functions,
no arithmetic and no ORDER BY; a comparison of what cannot be compared is false.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from ospltool.client.errors import InvalidFilter

MAX_LENGTH: Final = 10_000
MAX_DEPTH: Final = 50
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<text>'(?:[^']|'')*')"
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

Value = Callable[[Any], Any]
Condition = Callable[[Any], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    column: int


class ContentFilter:
    """A condition on the fields of a sample.

    Args:
        expression: see the module.
        parameters: values of %0, %1, …; each is a literal as in the expression (`'text'`, a number), and
            what is neither is taken as text.

    Raises:
        InvalidFilter: the expression or a parameter is not understood; the text has column and reason.
    """

    def __init__(self, expression: str, parameters: Sequence[str] = ()) -> None:
        self.expression = expression
        self.parameters = tuple(parameters)
        parser = _Parser(expression, self.parameters)
        self._condition = parser.parse()

    def accepts(self, sample: object) -> bool:
        """Whether the condition holds; a field that the sample does not have makes a comparison false."""
        return self._condition(sample)


class _Parser:
    def __init__(self, expression: str, parameters: tuple[str, ...]) -> None:
        self._expression = expression
        self._parameters = parameters
        if len(expression) > MAX_LENGTH:
            raise InvalidFilter(f"a filter has at most {MAX_LENGTH} characters")
        self._tokens = self._split()
        self._at = 0
        self._depth = 0

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while self._expression[at:].strip():
            found = _TOKEN.match(self._expression, at)
            if found is None or found.lastgroup is None:
                rest = self._expression[at:]
                self._fail("this is not understood", at + len(rest) - len(rest.lstrip()))
            kind, text = found.lastgroup, found[found.lastgroup]
            if kind == "word" and text.upper() in _WORDS:
                kind, text = "keyword", text.upper()
            tokens.append(_Token(kind, text, found.start(found.lastgroup)))
            at = found.end()
        return tokens

    def _fail(self, reason: str, column: int) -> NoReturn:
        raise InvalidFilter(f"filter, column {column + 1}: {reason}")

    def parse(self) -> Condition:
        condition = self._alternatives()
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._fail(f"'{token.text}' is too much", token.column)
        return condition

    def _next(self, wanted: str) -> _Token:
        if self._at == len(self._tokens):
            self._fail(f"{wanted} is missing", len(self._expression))
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, *texts: str) -> str:
        """The next token, if it is one of these keywords or signs."""
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.kind in ("keyword", "sign") and token.text in texts:
                self._at += 1
                return token.text
        return ""

    def _alternatives(self) -> Condition:
        terms = [self._conjunction()]
        while self._accept("OR"):
            terms.append(self._conjunction())
        return terms[0] if len(terms) == 1 else lambda sample: any(term(sample) for term in terms)

    def _conjunction(self) -> Condition:
        factors = [self._factor()]
        while self._accept("AND"):
            factors.append(self._factor())
        return factors[0] if len(factors) == 1 else lambda sample: all(one(sample) for one in factors)

    def _factor(self) -> Condition:
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
        return (lambda sample: not condition(sample)) if negated else condition

    def _predicate(self) -> Condition:
        left = self._value()
        negated = bool(self._accept("NOT"))
        if self._accept("BETWEEN"):
            low = self._value()
            if not self._accept("AND"):
                self._fail("AND is missing after BETWEEN", self._next("AND").column)
            condition = _between(left, low, self._value())
        elif self._accept("LIKE"):
            condition = _like(left, self._value())
        else:
            token = self._next("a comparison")
            if negated or token.text not in _COMPARISONS:
                self._fail(f"a comparison is expected, not '{token.text}'", token.column)
            condition = _compare(_COMPARISONS[token.text], left, self._value())
        return (lambda sample: not condition(sample)) if negated else condition

    def _value(self) -> Value:
        token = self._next("a value")
        if token.kind == "word":
            path = token.text.split(".")
            return lambda sample: _field(sample, path)
        if token.kind == "parameter":
            index = int(token.text)
            if index >= len(self._parameters):
                self._fail(f"there is no parameter %{index}", token.column)
            return _constant(_literal(self._parameters[index]))
        if token.kind in ("number", "text") or token.text in ("TRUE", "FALSE"):
            return _constant(_literal(token.text))
        return self._fail(f"a value is expected, not '{token.text}'", token.column)


def _literal(text: str) -> object:
    """A number, a quoted text, a truth value; anything else is a text."""
    stripped = text.strip()
    if len(stripped) >= 2 and stripped[0] == stripped[-1] == "'":
        return stripped[1:-1].replace("''", "'")
    if stripped.upper() in ("TRUE", "FALSE"):
        return stripped.upper() == "TRUE"
    for kind in (int, float):
        try:
            return kind(stripped)
        except ValueError:
            continue
    return text


def _constant(value: object) -> Value:
    return lambda _: value


def _field(sample: Any, path: list[str]) -> Any:
    for name in path:
        sample = getattr(sample, name, None)
    return getattr(sample, "name", sample)  # an enumeration is compared by its name


def _compare(comparison: Callable[[Any, Any], Any], left: Value, right: Value) -> Condition:
    def holds(sample: Any) -> bool:
        first, second = left(sample), right(sample)
        if first is None or second is None:
            return False
        try:
            return bool(comparison(first, second))
        except TypeError:
            return False

    return holds


def _between(value: Value, low: Value, high: Value) -> Condition:
    above, below = _compare(operator.ge, value, low), _compare(operator.le, value, high)
    return lambda sample: above(sample) and below(sample)


def _like(value: Value, pattern: Value) -> Condition:
    def holds(sample: Any) -> bool:
        text, wanted = value(sample), pattern(sample)
        if not isinstance(text, str) or not isinstance(wanted, str):
            return False
        return _compiled(wanted).fullmatch(text) is not None

    return holds


def _compiled(pattern: str) -> re.Pattern[str]:
    """As in `engine.core.expressions`: what stands between two `%` is looked for once, from the left."""
    first, *others = [
        "".join("." if char == "_" else re.escape(char) for char in part) for part in pattern.split("%")
    ]
    if not others:
        return re.compile(first, re.DOTALL)
    middle = "".join(f"(?>.*?{part})" for part in others[:-1] if part)
    return re.compile(f"{first}{middle}.*{others[-1]}", re.DOTALL)
