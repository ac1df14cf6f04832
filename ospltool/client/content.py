"""Content filters of readers, evaluated in the client, which knows the type.

The language is that of `engine.dataset.content`.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.dataset.content import Expression, ExpressionFault
from ospltool.client.errors import InvalidFilter


class ContentFilter:
    """A condition on the fields of a sample.

    Args:
        expression: see `engine.dataset.content`.
        parameters: values of %0, %1, …; each is a literal as in the expression (`'text'`, a number), or else
            plain text.

    Raises:
        InvalidFilter: the expression or a parameter is malformed; the text has column and reason.
    """

    def __init__(self, expression: str, parameters: Sequence[str] = ()) -> None:
        try:
            self._expression = Expression(expression, parameters)
        except ExpressionFault as error:
            raise InvalidFilter(f"filter, {error}") from error
        self.expression = expression
        self.parameters = tuple(parameters)

    def accepts(self, sample: object) -> bool:
        """Return whether the condition holds; a comparison of a field that the sample lacks is false."""
        return self._expression.accepts(sample)
