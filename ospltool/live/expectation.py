"""What should be there in one domain, as a fleet file or a configuration says it; recordings keep it."""

from __future__ import annotations

import dataclasses
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class ExpectedSpace:
    """Wanted number of nodes with a complete copy of a name-space, and of those on disk; 0 if unspecified."""

    name: str
    copies: int = 0
    on_disk: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Expectation:
    """Expected contents of one domain. `nodes` are the nodes' own names.

    `is_whole` says that there should be no other nodes: a fleet file names all, a configuration only its own.
    `file` is the fleet file as the user named it; empty without one.
    """

    nodes: tuple[str, ...] = ()
    name_spaces: tuple[ExpectedSpace, ...] = ()
    is_whole: bool = True
    file: str = ""

    def space(self, name: str) -> ExpectedSpace:
        """Return the expectation for a name-space; an empty one if the fleet file does not name it."""
        return next((one for one in self.name_spaces if one.name == name), ExpectedSpace(name))


NOTHING: Final = Expectation()
