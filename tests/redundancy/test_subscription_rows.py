"""What a replica has of durable subscriptions, and what its store has: the same, after every change."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.persistence.core import subscription_ledger as ledger
from engine.persistence.core.messages import OriginalSample, SavedSubscriptions
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.subscriptions import Subscriptions
from engine.persistence.service import replica_store as rows

GROUP, OTHER = b"12345678", b"87654321"
ON = SynchronizationSettings(enable=True, synchronize_durable_subscriptions=True)
ACTS = st.sampled_from(["sample", "sample", "acknowledge", "acknowledge", "register", "delete", "store"])
STEPS = st.lists(st.tuples(ACTS, st.integers(0, 5), st.integers(0, 5)), max_size=40)


@pytest.fixture
def store() -> Iterator[sqlite3.Connection]:
    with contextlib.closing(opened()) as made:
        yield made


def opened() -> sqlite3.Connection:
    made = sqlite3.connect(":memory:")
    made.executescript(rows.SUBSCRIPTION_TABLES)
    return made


def sample_of(number: int) -> OriginalSample:
    return OriginalSample("w" * 32, (1 << 127) + number, b"key", number, b"payload %d" % number)


def carry_out(stock: Subscriptions, act: str, one: int, other: int) -> None:
    name = "ab"[one % 2]
    if act == "sample":
        stock.sample_arrived(sample_of(one))
    elif act == "acknowledge":
        sample = sample_of(other)
        stock.acknowledge(name, "mn"[one % 3 % 2], ((sample.writer, (sample.sequence,)),))
    elif act == "register":
        stock.register(name, 1 + other % 2)
    elif act == "delete":
        stock.delete(name)


def in_order(saved: SavedSubscriptions) -> SavedSubscriptions:
    return SavedSubscriptions(
        tuple(sorted(saved.ledgers, key=lambda each: each.name)),
        tuple(sorted(saved.held, key=lambda each: each.sequence)),
    )


@example([], [("register", 1, 1), ("acknowledge", 1, 0), ("acknowledge", 3, 1)])
@given(STEPS, STEPS)
def test_the_store_has_what_the_replica_has(
    steps: list[tuple[str, int, int]], others: list[tuple[str, int, int]]
) -> None:
    with contextlib.closing(opened()) as made:
        stocks = {GROUP: Subscriptions("i", ON, tuple), OTHER: Subscriptions("i", ON, tuple)}
        for group, part in ((GROUP, steps), (OTHER, others)):
            for act, one, other in [("register", 0, 0), *part, ("store", 0, 0)]:
                carry_out(stocks[group], act, one, other)
                if act != "store":
                    continue
                rows.write_subscriptions(made, {group: stocks[group].changes()})
                saved, damaged = rows.read_subscriptions(made)
                assert damaged == 0
                assert in_order(saved[group]) == in_order(stocks[group].saved())
                again = Subscriptions("i", ON, tuple, saved[group])
                assert again.saved() == stocks[group].saved()
                assert again.changes() == []


def test_a_damaged_sample_is_left_out_and_counted(store: sqlite3.Connection) -> None:
    stock = Subscriptions("i", ON, tuple)
    stock.register("a", 1)
    for number in (1, 2):
        stock.sample_arrived(sample_of(number))
    rows.write_subscriptions(store, {GROUP: stock.changes()})
    store.execute("UPDATE held SET payload = ? WHERE source_time_ns = 1", (b"another",))
    saved, damaged = rows.read_subscriptions(store)
    assert (damaged, saved[GROUP].held) == (1, (sample_of(2),))


@pytest.mark.parametrize(
    "what",
    [
        "held SET number = CAST(number AS TEXT)",
        "acknowledged SET number = CAST(number AS TEXT)",
        "subscription SET quorum = 'x'",
    ],
)
def test_a_row_whose_value_has_another_type_is_left_out_and_counted(
    store: sqlite3.Connection, what: str
) -> None:
    """One bit of a row's header tells text from a blob; the bytes stay the same."""
    stock = Subscriptions("i", ON, tuple)
    stock.register("a", 2)
    one = OriginalSample("w" * 32, 2, b"key", 2, b"payload")
    stock.sample_arrived(one)
    stock.acknowledge("a", "m", ((one.writer, (one.sequence,)),))
    rows.write_subscriptions(store, {GROUP: stock.changes()})
    assert rows.read_subscriptions(store)[1] == 0
    store.execute(f"UPDATE {what}")
    assert rows.read_subscriptions(store)[1] == 1


def test_a_table_that_lost_a_column_cannot_be_read(store: sqlite3.Connection) -> None:
    """As any other damage of the schema; the service then puts the store aside."""
    rows.write_subscriptions(store, {GROUP: Subscriptions("i", ON, tuple).changes()})
    store.execute("ALTER TABLE subscription RENAME COLUMN quorum TO quorun")
    store.execute("INSERT INTO subscription VALUES (?, 'a', 1, 0, 1)", (GROUP,))
    with pytest.raises(sqlite3.OperationalError, match="quorum"):
        rows.read_subscriptions(store)


def test_what_is_forgotten_at_the_bound_leaves_the_store_as_well(
    store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MAX_ACKNOWLEDGED", 10)
    stock = Subscriptions("i", ON, tuple)
    stock.register("a", 1)
    for number in range(30):
        stock.acknowledge("a", "m", (("w", (1 + number,)),))
        rows.write_subscriptions(store, {GROUP: stock.changes()})
    (count,) = store.execute("SELECT count(*) FROM acknowledged").fetchone()
    assert count == 30 - stock.forgotten <= 10
