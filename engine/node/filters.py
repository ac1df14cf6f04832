"""Content filters of a node: //OpenSplice/Domain/Filters. What they do not accept is not kept there.

Payloads are decoded in groups that have a filter, and in no others.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from engine.dataset.content import Expression, ExpressionFault, Undecodable
from engine.dataset.sample import DATA
from engine.dds.decoding import decode, key_names, kinds_of
from engine.runtime.ports import FilterRefused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.config.settings import ContentFilter
    from engine.core.namespaces import Element
    from engine.dataset.groups import GroupDescription, TypeDescription
    from engine.runtime.ports import Gate
    from engine.tracing.tracer import Tracer


@dataclasses.dataclass(frozen=True, slots=True)
class _Filter:
    expression: Expression
    elements: tuple[Element, ...]
    place: str


class _TypeGate:
    """A filter on samples of one type."""

    def __init__(self, expression: Expression, description: TypeDescription) -> None:
        self._expression = expression
        self._type = description
        self._decides_by_key = {path[0] for path in expression.fields} <= set(key_names(description))

    def accepts(self, status: int, payload: bytes) -> bool | None:
        """See `engine.runtime.ports.Gate`."""
        if not status & DATA and not self._decides_by_key:
            return None
        try:
            return self._expression.accepts(decode(self._type, status, payload))
        except Undecodable:
            return False


class ContentFilters:
    """The filters of a configuration; of those that match a group, the first one applies.

    Args:
        filters: as configured; each has been parsed before.
        tracer: is told of those that have no effect.
    """

    def __init__(self, filters: Iterable[ContentFilter], tracer: Tracer) -> None:
        self._filters = []
        for each in filters:
            if each.elements:
                self._filters.append(_Filter(Expression(each.content), each.elements, str(each.origin)))
            else:
                cause = "it has no PartitionTopic" if each.content.strip() else "its condition is empty"
                tracer.event("filter.ignored", place=each.origin, cause=cause)

    def gate(self, description: GroupDescription) -> Gate | None:
        """The filter of a group; None where none applies.

        Raises:
            FilterRefused: it does not fit the group's type; the text has file, line and the column in the
                condition.
        """
        for each in self._filters:
            if any(element.contains(description.group) for element in each.elements):
                try:
                    each.expression.check(kinds_of(description.type))
                    return _TypeGate(each.expression, description.type)
                except (ExpressionFault, Undecodable) as fault:
                    name = description.type.name
                    raise FilterRefused(f"{each.place}: type {name}: the condition, {fault}") from fault
        return None
