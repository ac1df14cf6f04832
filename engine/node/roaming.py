"""A host that gets its address late: a node that chooses its interface itself moves to the one that came up.

Cyclone DDS takes its network interfaces when a domain is made and never again. So the node ends in order,
takes its data along, and begins anew in the same process.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from engine.core.settings import StoredSet
from engine.dds.interfaces import address_of, suitable_interface

if TYPE_CHECKING:
    from engine.core.namespaces import Element
    from engine.dataset.dataset import DataSet
    from engine.dataset.groups import GroupDescription
    from engine.runtime.runtime import Runtime
    from engine.runtime.startup import Found

PERIOD_S: Final = 1.0
"""How often the interfaces are looked at."""
LOOKS: Final = 2
"""Looks in a row that must find the same: an interface comes up in several steps."""


class InterfaceWatch:
    """Tells when the interface that AUTO means is another one than the node uses.

    An interface that is down, or has lost its address, is no reason to move: a cable is plugged in again.
    """

    def __init__(self) -> None:
        self._name = suitable_interface()
        self._address = address_of(self._name) if self._name else ""
        self._due_s = 0.0
        self._found: tuple[str, str] | None = None
        self._times = 0

    def look(self, now: float) -> str:
        """The interface to move to, by name and address; empty where there is no reason."""
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


@dataclasses.dataclass(frozen=True, slots=True)
class Carried:
    """Complete sets that a node takes along, by name-space: they need not be on a disk."""

    sets: dict[str, tuple[DataSet, list[GroupDescription]]] = dataclasses.field(default_factory=dict)
    stored: dict[str, StoredSet] = dataclasses.field(default_factory=dict)
    wanted: dict[str, tuple[Element, ...]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, runtime: Runtime) -> Carried:
        """What a runtime holds at its end."""
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
            )
        return carried

    def added_to(self, found: Found) -> Found:
        """What a store held, with these sets in the place of its own."""
        parts = {name: part for name, part in found.parts.items() if name not in self.sets}
        return dataclasses.replace(
            found,
            sets={**found.sets, **self.sets},
            stored={**found.stored, **self.stored},
            parts=parts,
            wanted={**found.wanted, **self.wanted},
        )
