"""A reader that comes to a process that has been served: one node serves the process again."""

from __future__ import annotations

import pytest

from engine.core.messages import Deliveries, Delivery, ReaderKey
from engine.core.readers import FIRST_PAUSE_S, ReaderTable

KEY = ReaderKey("process", "Track", ("",), "space")
NODES = ("a", "b")


def served_by_a() -> dict[str, ReaderTable]:
    """Two nodes that know that a has served the reader."""
    tables = {node: ReaderTable(node) for node in NODES}
    for table in tables.values():
        table.seen(KEY, frozenset(("host",)), None)
    assert tables["a"].open(lambda *_: "a", 0.0) == [KEY]
    tables["a"].done(KEY)
    tables["b"].take_claims(tables["a"].message(1), "a")
    return tables


def due(tables: dict[str, ReaderTable], now: float) -> list[str]:
    return [node for node, table in tables.items() if table.open(lambda *_: "a", now)]


@pytest.mark.parametrize("again", ["joined", "serve_again"])
def test_who_is_in_charge_serves_again_after_a_pause_whatever_others_say(again: str) -> None:
    tables = served_by_a()
    for table in tables.values():
        getattr(table, again)(KEY, 0.0)
    assert due(tables, 0.0) == []
    tables["b"].take_claims(tables["a"].message(1), "a")
    tables["a"].take_claims(tables["b"].message(1), "b")
    hearsay = Deliveries(1, 1, (Delivery(KEY, "somebody", done=True),))
    assert tables["a"].in_charge_of("space") == [KEY]
    assert due(tables, FIRST_PAUSE_S) == ["a"]
    tables["a"].done(KEY)
    assert due(tables, 10 * FIRST_PAUSE_S) == [], "once"
    tables["b"].take_claims(hearsay, "c")
    assert due(tables, 10 * FIRST_PAUSE_S) == []


def test_a_second_attempt_that_fails_is_tried_again_later() -> None:
    tables = served_by_a()
    tables["a"].joined(KEY, 0.0)
    assert due(tables, FIRST_PAUSE_S) == ["a"]
    tables["a"].failed(KEY, FIRST_PAUSE_S)
    assert due(tables, FIRST_PAUSE_S) == []
    assert due(tables, 4 * FIRST_PAUSE_S) == ["a"]


def test_when_nobody_is_in_charge_any_more_the_successor_serves_again() -> None:
    tables = served_by_a()
    successor = tables["b"]
    successor.lost("a")
    successor.joined(KEY, 0.0)
    assert successor.open(lambda *_: "b", FIRST_PAUSE_S) == []
    assert successor.take_over(lambda *_: "b")
    assert successor.open(lambda *_: "b", FIRST_PAUSE_S) == [KEY]


def test_while_the_first_delivery_is_open_a_further_reader_changes_nothing() -> None:
    table = ReaderTable("a")
    table.seen(KEY, frozenset(("host",)), None)
    assert table.open(lambda *_: "a", 0.0) == [KEY]
    table.joined(KEY, 0.0)
    assert table.open(lambda *_: "a", 10.0) == []
