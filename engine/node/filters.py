"""Content filters of a node (//OpenSplice/Domain/Filters); the node keeps only samples that they accept.

The node decodes payloads only in groups that have a filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from engine.dataset.content import Expression, ExpressionFault, Undecodable
from engine.dataset.sample import DATA
from engine.dds.decoding import class_of, decode, key_names, kinds_of
from engine.runtime.ports import FilterRefused
from engine.runtime.withholding import at_once, filtered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.config.settings import ContentFilterSettings
    from engine.core.name_spaces import Element
    from engine.dataset.groups import GroupDescription, TypeDescription
    from engine.runtime.ports import Gate
    from engine.runtime.startup import StoredContent
    from engine.tracing.tracer import Tracer


class _Filter(msgspec.Struct, frozen=True):
    expression: Expression
    elements: tuple[Element, ...]
    place: str


class _TypeGate:
    """A filter on samples of one type."""

    def __init__(self, expression: Expression, description: TypeDescription) -> None:
        self._expression = expression
        self._type = description
        self._class = class_of(description)
        keys = {(name,) for name in key_names(description)}
        self._decides_by_key = expression.fields <= keys

    def accepts(self, status: int, payload: bytes) -> bool | None:
        """See `engine.runtime.ports.Gate`."""
        try:
            if status & DATA:
                return self._expression.accepts(self._class.deserialize(payload))
            if not self._decides_by_key:
                return None
            return self._expression.accepts(decode(self._type, status, payload))
        except Exception:  # the wheel raises errors of many classes for bytes of another type
            return False


class ContentFilters:
    """The filters of a configuration; the first that matches a group applies.

    Args:
        filters: the configured filters, valid expressions.
        tracer: takes the events of filters without effect.

    Attributes:
        elements: all groups that have one.
    """

    def __init__(self, filters: Iterable[ContentFilterSettings], tracer: Tracer) -> None:
        self._tracer = tracer
        self._filters = []
        for each in filters:
            if each.elements:
                self._filters.append(_Filter(Expression(each.content), each.elements, str(each.origin)))
            else:
                tracer.event("filter.ignored", place=each.origin, cause=each.why_ignored)
        self.elements = tuple(element for each in self._filters for element in each.elements)

    def gate(self, description: GroupDescription) -> Gate | None:
        """Return the filter of a group; None if none applies.

        Raises:
            FilterRefused: the filter does not fit the group's type; the text has file, line, and the column
                in the condition.
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

    def left_of(self, found: StoredContent, renew: Callable[[], None]) -> StoredContent:
        """Apply the filters to stored sets, because a filter may be newer than the store.

        Args:
            found: the content of the store. It is not changed.
            renew: called repeatedly meanwhile.

        Raises:
            FilterRefused: a filter does not fit a stored type; the text names the group, too.
        """
        sets = {}
        for name, (data, descriptions) in found.sets.items():
            gates = {}
            for description in descriptions:
                try:
                    gate = self.gate(description)
                except FilterRefused as refusal:
                    raise FilterRefused(f"group {description.group}: {refusal}") from refusal
                if gate is not None:
                    gates[description.group] = gate
            left = at_once(filtered(data, gates), renew)
            sets[name] = left, descriptions
            if left is not data and (removed := data.summary().count - left.summary().count):
                self._tracer.event("filter.removed", namespace=name, samples=removed)
        return msgspec.structs.replace(found, sets=sets)
