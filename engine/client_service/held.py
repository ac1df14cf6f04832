"""What a node holds, as clients ask for it: which name-spaces a request touches, and the data in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.namespaces import Group
from engine.core.states import Phase
from engine.dds.client_protocol.messages import Completeness, GroupState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.core.interest import Interest
    from engine.core.namespace import NameSpaceState
    from engine.dataset.groups import GroupDescription
    from engine.dataset.rows import Rows
    from engine.runtime.runtime import Runtime


class Held:
    """A view of a runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def name_spaces(self, interest: Interest) -> list[NameSpaceState]:
        """The name-spaces that the interest touches."""
        return [state for state in self._runtime.core.name_spaces if interest.touches(state.name_space)]

    def is_responsible(self, state: NameSpaceState) -> bool:
        """Whether this node answers for a name-space when nobody is addressed: its master does."""
        return state.is_master(self._runtime.settings.node)

    def want(self, state: NameSpaceState, interest: Interest) -> None:
        """A client wants data that a Lazy alignee may not keep yet."""
        self._runtime.holdings.want(state.name, interest.elements)

    def groups(
        self, states: list[NameSpaceState], interest: Interest
    ) -> Iterator[tuple[GroupDescription, Rows]]:
        """The samples of the groups that are meant, as they are now."""
        for state in states:
            data = self._runtime.spaces[state.name]
            for group, group_set in sorted(data.working.groups.items()):
                description = self._runtime.descriptions.get(group)
                if description is not None and interest.wants(group):
                    yield description, group_set.samples()

    def completeness(self, state: NameSpaceState, group: Group) -> Completeness:
        """What of a group is here; of one of which only a part may be here, nobody can call it complete."""
        if state.phase is Phase.DISCOVER or not state.keeps(group):
            return Completeness.UNKNOWN
        return Completeness.COMPLETE if state.has_group(group) else Completeness.INCOMPLETE

    def filtered(self, groups: list[GroupState]) -> list[int]:
        """Which of these groups a content filter of this node withholds a part of, by their places."""
        gated = {(group.partition, group.topic) for group in self._runtime.holdings.gates}
        return [place for place, one in enumerate(groups) if (one.partition, one.topic) in gated]

    def group_states(self, states: list[NameSpaceState], interest: Interest | None) -> list[GroupState]:
        """The completeness of the groups that are meant, of all with None."""
        told = [
            (group, self.completeness(state, group))
            for state in states
            for group in self._runtime.spaces[state.name].working.groups
        ]
        told += [  # nothing is kept of a group whose content filter does not fit
            (group, Completeness.INCOMPLETE)
            for group in self._runtime.holdings.refused
            if self._runtime.core.name_space_of(group) in states
        ]
        found = {
            GroupState(group.partition, group.topic, completeness)
            for group, completeness in told
            if interest is None or interest.wants(group)
        }
        return sorted(found, key=lambda one: (one.partition, one.topic))
