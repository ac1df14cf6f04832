"""A new run in the same process, with the data of the one before, which ends in order.

It begins when a network interface comes up late, for nodes that choose their interface themselves, because
Cyclone DDS reads the interfaces only when a domain is created. It also begins when the store turns out to be
an older copy.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from engine.core.lazy_dataclass import lazy_dataclass
from engine.core.settings import StoredSet
from engine.dds.interfaces import address_of, suitable_interface

if TYPE_CHECKING:
    from engine.core.name_spaces import Element
    from engine.dataset.dataset import DataSet
    from engine.dataset.groups import GroupDescription
    from engine.runtime.runtime import Runtime
    from engine.runtime.startup import StoredContent

PERIOD_S: Final = 1.0
"""Period of checks of the interfaces."""
LOOKS: Final = 2
"""Consecutive checks that must find the same interface: it comes up in several steps."""


class InterfaceWatch:
    """Finds out when AUTO means another interface than the one that the node uses.

    A node does not move because its interface is down or has lost its address: that may be a pulled cable.
    """

    def __init__(self) -> None:
        self._name = suitable_interface()
        self._address = address_of(self._name) if self._name else ""
        self._due_s = 0.0
        self._found: tuple[str, str] | None = None
        self._times = 0

    def look(self, now: float) -> str:
        """Return name and address of the interface to move to; empty if the node should stay."""
        if now < self._due_s:
            return ""
        self._due_s = now + PERIOD_S
        name = suitable_interface()
        found = name, address_of(name)
        stays = not name or found == (self._name, self._address)
        if stays or (self._name and address_of(self._name) == self._address):
            self._found, self._times = None, 0
            return ""
        self._times = self._times + 1 if found == self._found else 1
        self._found = found
        return f"{name} ({found[1]})" if self._times >= LOOKS else ""


@lazy_dataclass(frozen=True, slots=True)
class CarriedSets:
    """Complete sets that a node takes along in memory, by name-space."""

    sets: dict[str, tuple[DataSet, list[GroupDescription]]] = dataclasses.field(default_factory=dict)
    stored: dict[str, StoredSet] = dataclasses.field(default_factory=dict)
    wanted: dict[str, tuple[Element, ...]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, runtime: Runtime) -> CarriedSets:
        """Collect the sets of a runtime at its end."""
        carried = cls()
        for name, data in runtime.spaces.items():
            state = data.state
            carried.wanted[name] = state.wanted
            if not data.is_switched:
                continue
            groups = data.working.groups
            descriptions = [runtime.descriptions[group] for group in groups if group in runtime.descriptions]
            carried.sets[name] = data.working, descriptions
            carried.stored[name] = StoredSet(
                data.working.summary().newest_ns,
                state.lineage,
                state.line,
                apart=state.apart,
                role=runtime.settings.role,
                part=state.may_lack,
                whole=state.whole,
                restored=runtime.shared.is_restored,
                purges=state.purges,
            )
        return carried

    def added_to(self, found: StoredContent) -> StoredContent:
        """Return the content of a store with these sets in place of its own."""
        parts = {name: part for name, part in found.parts.items() if name not in self.sets}
        return dataclasses.replace(
            found,
            sets={**found.sets, **self.sets},
            stored={**found.stored, **self.stored},
            parts=parts,
            wanted={**found.wanted, **self.wanted},
        )
