from __future__ import annotations

import pytest

from ospltool.views import text
from ospltool.views.cells import Cell, Column, Rows, single
from tui.widgets.sheet import Sorting

NAMES = ("harbour.orders.berth", "harbour.orders.crane", "harbour.orders.truck")


@pytest.mark.parametrize(
    "ordered",
    [
        ("now", "3 s", "59 s", "12 min", "5 h", "9 d"),
        ("9", "1,000", "999,999", "1.2 M", "3.4 G"),
        ("900 B", "1.5 KiB", "1.0 MiB"),
        ("1 %", "41 %", "100 %"),
        ("7/s", "150/s"),
        ("12", "n2", "n10", "x", ""),
    ],
)
def test_figures_are_ranked_by_value_with_unit_then_words_then_nothing(ordered: tuple[str, ...]) -> None:
    mixed = sorted(ordered)
    assert tuple(sorted(mixed, key=text.rank)) == ordered


@pytest.mark.parametrize(
    ("names", "width", "shown"),
    [
        (("a", "bb"), 4, ["a", "bb"]),
        (("orders-east", "ticks-west"), 8, ["orders-…", "ticks-w…"]),
        (NAMES, 8, ["…s.berth", "…s.crane", "…s.truck"]),
        (("long.name.1.in", "long.name.2.in", "x"), 6, ["….1.in", "….2.in", "x"]),
        (("same.name.once", "same.name.once"), 6, ["same.…", "same.…"]),
        (("ab",), 1, ["…"]),
    ],
)
def test_names_are_cut_where_they_stay_different(
    names: tuple[str, ...], width: int, shown: list[str]
) -> None:
    cut = text.distinct(names, width)
    assert cut == shown
    assert all(len(name) <= width for name in cut)


def table(*ages: str) -> Rows[str]:
    columns = (Column("mark", "", 1), Column("name", "name", 4), Column("age", "age", 6))

    def render(item: str, key: str) -> Cell:
        return single({"mark": "*", "name": item.split("=")[0], "age": item.split("=")[1]}[key])

    return Rows(columns, [(item.split("=")[0], item) for item in ages], render, width=40)


ROWS = ("n2=3 min", "n10=5 s", "n1=", "n3=2 h")


def test_sorting_walks_through_columns_and_back_to_the_order_of_the_source() -> None:
    sorting, rows = Sorting(), table(*ROWS)
    sorting.update(rows)
    assert list(sorting.keys) == ["n2", "n10", "n1", "n3"]
    sorting.next(rows)
    assert [sorting.column, *sorting.keys] == ["name", "n1", "n2", "n3", "n10"]
    sorting.next(rows)
    assert [sorting.column, *sorting.keys] == ["age", "n3", "n2", "n10", "n1"]
    assert [sorting.source_row(place) for place in range(4)] == [3, 0, 1, 2]
    sorting.turn(rows)
    assert list(sorting.keys) == ["n10", "n2", "n3", "n1"]
    sorting.next(rows)
    assert [sorting.column, *sorting.keys] == ["", "n2", "n10", "n1", "n3"]


def test_choosing_a_column_again_turns_it_and_then_ends_sorting() -> None:
    sorting, rows = Sorting(), table(*ROWS)
    for keys in (("n3", "n2", "n10", "n1"), ("n10", "n2", "n3", "n1"), ("n2", "n10", "n1", "n3")):
        sorting.choose(rows, "age")
        assert sorting.keys == keys


def test_rows_keep_their_places_for_a_while_although_figures_change(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr("tui.widgets.sheet.time.monotonic", lambda: now_s[0])
    sorting = Sorting()
    sorting.choose(table("a=1", "b=2"), "age")
    assert list(sorting.keys) == ["b", "a"]
    sorting.update(table("a=9", "b=2"))
    assert list(sorting.keys) == ["b", "a"]
    sorting.update(table("a=9", "b=2", "c=5"))
    assert list(sorting.keys) == ["a", "c", "b"]
    now_s[0] += 3
    sorting.update(table("a=0", "b=2", "c=5"))
    assert list(sorting.keys) == ["c", "b", "a"]
