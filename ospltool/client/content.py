"""Content filters of readers, evaluated here, because only here is the type known.

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
        parameters: values of %0, %1, …; each is a literal as in the expression (`'text'`, a number), and
            what is neither is taken as text.

    Raises:
        InvalidFilter: the expression or a parameter is not understood; the text has column and reason.
    """

    def __init__(self, expression: str, parameters: Sequence[str] = ()) -> None:
        try:
            self._expression = Expression(expression, parameters)
        except ExpressionFault as error:
            raise InvalidFilter(f"filter, {error}") from error
        self.expression = expression
        self.parameters = tuple(parameters)

    def accepts(self, sample: object) -> bool:
        """Whether the condition holds; a comparison of a field that the sample does not have is not true."""
        return self._expression.accepts(sample)
