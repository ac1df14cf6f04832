"""Names of many nodes on the screens, which are cut where they stay different."""

from __future__ import annotations

import pytest

from tests import fake
from tests.console.test_screen_views import view_of
from tui import text
from tui.cells import plain
from tui.viewmodel import name_space, node, stores


@pytest.mark.parametrize("width", [80, 120])
def test_names_of_many_nodes_are_cut_where_they_stay_different(width: int) -> None:
    """Two hundred stations were `station-0…` each on the screen of stores."""
    numbers = range(101, 131)
    fellows = tuple(fake.fellow(n, name=f"weather-station-{n}") for n in numbers)
    view = view_of(
        *(
            fake.snapshot(n, fake.name_space("Orders", n), name=f"weather-station-{n}", fellows=fellows)
            for n in numbers
        )
    )
    nodes = list(view.model.nodes.values())
    for table, column in (
        (stores.stores(view, width), "node"),
        (name_space.holders(view, "Orders", width), "node"),
        (name_space.holders(view, "Orders", width), "master"),
        (node.fellows(view, nodes[0], width), "name"),
    ):
        place = [one.key for one in table.columns].index(column)
        room = table.columns[place].width
        shown = [plain(table.cell(row, place)) for row in range(len(table.keys))]
        assert len({text.fit(one, room) for one in shown}) == len(table.keys), shown
        assert "weather-station-1" in table.value(0, place), "what is copied is whole"


def test_a_name_that_is_alone_in_its_column_is_told_apart_from_those_of_other_nodes() -> None:
    """The master of all name-spaces was `station…`."""
    ids = range(101, 104)
    fellows = tuple(fake.fellow(n, name=f"weather-station-{n}") for n in ids)
    view = view_of(
        *(
            fake.snapshot(n, fake.name_space("Orders", 103), name=f"weather-station-{n}", fellows=fellows)
            for n in ids
        )
    )
    table = node.name_spaces(view, view.model.ordered_nodes()[0], 80)
    place = [one.key for one in table.columns].index("master")
    shown = text.fit(plain(table.cell(0, place)), table.columns[place].width)
    assert shown.endswith("-103"), shown
