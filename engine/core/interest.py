"""Topics and partitions that clients, readers and commands ask about."""

from __future__ import annotations

import dataclasses

from engine.core.expressions import intersection, matches
from engine.core.name_spaces import Element, Group, NameSpace


@dataclasses.dataclass(frozen=True, slots=True)
class Interest:
    """A topic, or topics `by_expression`, in partitions given by expressions."""

    topic: str
    partitions: tuple[str, ...]
    by_expression: bool = False

    @property
    def elements(self) -> tuple[Element, ...]:
        """Return the groups as expressions."""
        return tuple(Element(partition, self.topic) for partition in self.partitions)

    def wants(self, group: Group) -> bool:
        """Whether it includes a group."""
        is_topic = matches(self.topic, group.topic) if self.by_expression else group.topic == self.topic
        return is_topic and any(matches(one, group.partition) for one in self.partitions)

    def touches(self, name_space: NameSpace) -> bool:
        """Whether it could include a group of a name-space."""
        return any(
            intersection(element.topic, self.topic) is not None
            and any(intersection(element.partition, one) is not None for one in self.partitions)
            for element in name_space.elements
        )
