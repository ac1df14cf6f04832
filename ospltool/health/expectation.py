"""Which nodes, name-spaces and copies there should be: the fleet file as health sees it."""

from __future__ import annotations

import dataclasses
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class ExpectedSpace:
    """How many nodes should hold a name-space complete, and how many of them on disk; 0 for not said."""

    name: str
    copies: int = 0
    on_disk: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Expectation:
    """What should be there in one domain. `nodes` are the names that nodes show of themselves."""

    nodes: tuple[str, ...] = ()
    name_spaces: tuple[ExpectedSpace, ...] = ()

    def space(self, name: str) -> ExpectedSpace:
        """What is expected of a name-space; nothing when the fleet file does not name it."""
        return next((one for one in self.name_spaces if one.name == name), ExpectedSpace(name))


NOTHING: Final = Expectation()
