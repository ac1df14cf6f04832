"""Cyclic garbage of the console, looked for while nobody waits."""

from __future__ import annotations

import gc
from typing import Final

YOUNG: Final = 10_000
"""New objects from which a look at them is worth while."""
LOOKS: Final = 4
"""Looks at new objects before all that are left of them are looked at once more."""


def look_for_garbage_less_often() -> None:
    """Make automatic collections rare: with 200 nodes a full one takes a third of a second.

    The console's data has no cycles and is freed when it is replaced; the garbage of Textual is found among
    young objects by `look_for_garbage`.
    """
    gc.freeze()
    gc.set_threshold(5 * YOUNG, 2 * LOOKS, 500)


def look_for_garbage() -> None:
    """Look through the objects that are new, if they are many; takes a few milliseconds."""
    young, looks, _ = gc.get_count()
    if young >= YOUNG:
        gc.collect(1 if looks >= LOOKS else 0)
