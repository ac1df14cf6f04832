"""A node's data as clients request it: the name-spaces that a request touches, and their groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.name_spaces import Group
from engine.core.states import Phase
from engine.dds.client_protocol.messages import Completeness, GroupState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.core.name_space_state import NameSpaceState
    from engine.core.name_spaces import Interest
    from engine.dataset.groups import GroupDescription
    from engine.dataset.sample_rows import SampleRows
    from engine.runtime.runtime import Runtime


class ClientView:
    """A client's view of a runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def name_spaces(self, interest: Interest) -> list[NameSpaceState]:
        """Return the name-spaces that the interest touches."""
        return [state for state in self._runtime.core.name_spaces if interest.touches(state.name_space)]

    def is_responsible(self, state: NameSpaceState) -> bool:
        """Tell whether this node answers unaddressed requests for a name-space: its master does."""
        return state.is_master(self._runtime.settings.node)

    def want(self, state: NameSpaceState, interest: Interest) -> None:
        """Request data for a client that a Lazy alignee may not keep yet."""
        self._runtime.shared.want(state.name, interest.elements)

    def groups(
        self, states: list[NameSpaceState], interest: Interest
    ) -> Iterator[tuple[GroupDescription, SampleRows]]:
        """Return the current samples of the groups of an interest."""
        for state in states:
            data = self._runtime.spaces[state.name]
            for group, group_set in sorted(data.working.groups.items()):
                description = self._runtime.descriptions.get(group)
                if description is not None and interest.wants(group):
                    yield description, group_set.samples()

    def completeness(self, state: NameSpaceState, group: Group) -> Completeness:
        """Return the completeness of a group; a group of which a part may be missing is incomplete."""
        if state.phase is Phase.DISCOVER or not state.keeps(group):
            return Completeness.UNKNOWN
        return Completeness.COMPLETE if state.has_group(group) else Completeness.INCOMPLETE

    def filtered(self, groups: list[GroupState]) -> list[int]:
        """Return the places of the groups of which a content filter of this node withholds samples."""
        gated = {(group.partition, group.topic) for group in self._runtime.shared.gates}
        return [place for place, one in enumerate(groups) if (one.partition, one.topic) in gated]

    def group_states(self, states: list[NameSpaceState], interest: Interest | None) -> list[GroupState]:
        """Return the completeness of the groups of an interest; of all groups with None."""
        told = [
            (group, self.completeness(state, group))
            for state in states
            for group in self._runtime.spaces[state.name].working.groups
        ]
        told += [  # the node keeps nothing of a group whose content filter does not fit
            (group, Completeness.INCOMPLETE)
            for group in self._runtime.shared.refused
            if self._runtime.core.name_space_of(group) in states
        ]
        found = {
            GroupState(group.partition, group.topic, completeness)
            for group, completeness in told
            if interest is None or interest.wants(group)
        }
        return sorted(found, key=lambda one: (one.partition, one.topic))
