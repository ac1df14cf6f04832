"""The screens by name, in the order of their number keys; the tenth has 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from textual.screen import Screen

from tui.screens.alignment import AlignmentScreen
from tui.screens.conflicts import ConflictsScreen
from tui.screens.findings import FindingsScreen
from tui.screens.groups import GroupsScreen
from tui.screens.incidents import IncidentScreen, IncidentsScreen
from tui.screens.name_space import NameSpaceScreen
from tui.screens.node import NodeScreen
from tui.screens.overview import OverviewScreen
from tui.screens.persistence import PersistenceScreen
from tui.screens.stores import StoreScreen
from tui.screens.trace import TraceScreen

SCREENS: Final[dict[str, Callable[[], Screen[Any]]]] = {
    screen.NAME: screen
    for screen in (
        OverviewScreen,
        NodeScreen,
        NameSpaceScreen,
        AlignmentScreen,
        IncidentsScreen,
        GroupsScreen,
        TraceScreen,
        StoreScreen,
        FindingsScreen,
        PersistenceScreen,
        IncidentScreen,
        ConflictsScreen,
    )
}
"""Every screen by its name. The first ten have a number and a tab."""

TABS: Final = tuple(SCREENS)[:10]
