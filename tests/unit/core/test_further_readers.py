"""One node serves a process, also when a further reader comes, or a node that is as near to it."""

from __future__ import annotations

import pytest

from engine.core.messages import Deliveries, Delivery, ReaderKey
from engine.core.readers import CAME_S, FIRST_PAUSE_S, HANDED_OVER_S, ReaderTable, Server, choose_server
from tests.unit.core.cluster import DELAY_S, NS, Cluster, three

READER = ReaderKey("p1", "T", ("*",), NS)
KEY = ReaderKey("process", "Track", ("",), "space")
NODES = ("a", "b")


def served_by_a() -> dict[str, ReaderTable]:
    """Two nodes that know that a has served the reader."""
    tables = {node: ReaderTable(node) for node in NODES}
    for table in tables.values():
        table.seen(KEY, frozenset(("host",)), None)
    assert tables["a"].open(lambda *_: "a", 0.0) == [KEY]
    tables["a"].done(KEY)
    tables["b"].take_claims(tables["a"].message(1, 0.0), "a")
    return tables


def due(tables: dict[str, ReaderTable], now: float) -> list[str]:
    return [node for node, table in tables.items() if table.open(lambda *_: "a", now)]


def test_many_readers_that_come_at_once_are_told_of_in_few_messages() -> None:
    """Each message names all of them: one for each that was served were a million names for 1,000."""
    cluster = Cluster()
    three(cluster)
    cluster.run_until(cluster.settled)
    node = cluster.members["a"].core
    readers = [ReaderKey("p", f"T{number}", ("",), NS) for number in range(1_000)]
    for reader in readers:
        node.reader_seen(reader, frozenset(("h",)), cluster.now)
    assert node.next_event() is not None
    told = [message.message for message in node.messages_to_send(cluster.now)]
    for reader in readers:
        node.delivered(reader, cluster.now, done=True)
        told += [message.message for message in node.messages_to_send(cluster.now)]
    assert len([message for message in told if isinstance(message, Deliveries)]) <= 2
    last: list[Deliveries] = []
    while not last:
        later = node.next_timer()
        assert later < cluster.now + 1.0
        node.handle_timer(later)
        sent = [one.message for one in node.messages_to_send(later)]
        last = [message for message in sent if isinstance(message, Deliveries)]
    assert {claim.reader for claim in last[0].deliveries if claim.done} >= set(readers)


@pytest.mark.parametrize("again", ["joined", "serve_again"])
def test_who_is_in_charge_serves_again_after_a_pause_whatever_others_say(again: str) -> None:
    tables = served_by_a()
    for table in tables.values():
        getattr(table, again)(KEY, 0.0)
    assert due(tables, 0.0) == []
    tables["b"].take_claims(tables["a"].message(1, 0.0), "a")
    tables["a"].take_claims(tables["b"].message(1, 0.0), "b")
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


def on_hosts() -> dict[str, ReaderTable]:
    """A node on the reader's host, and one with a higher id that is not; both know the reader."""
    hosts = {"local": frozenset(("host",)), "remote": frozenset(("elsewhere",))}
    tables = {node: ReaderTable(node, lambda each: hosts.get(each, frozenset())) for node in hosts}
    for table in tables.values():
        table.seen(KEY, frozenset(("host",)), None)
    return tables


def serve(table: ReaderTable, node: str) -> None:
    assert table.open(lambda *_: node, 0.0) == [KEY]
    table.done(KEY)


def tell(tables: dict[str, ReaderTable]) -> None:
    for sender, receiver in (("local", "remote"), ("remote", "local")):
        tables[receiver].take_claims(tables[sender].message(1, 0.0), sender)


def in_charge(tables: dict[str, ReaderTable]) -> list[str]:
    return [node for node, table in tables.items() if table.in_charge_of("space")]


def test_of_two_that_served_a_reader_the_one_on_its_host_is_in_charge() -> None:
    """The other one does not miss what the reader misses (soak 5, phase 76)."""
    tables = on_hosts()
    for node, table in tables.items():
        serve(table, node)
    tell(tables)
    assert in_charge(tables) == ["local"]
    assert tables["local"].take_handed_over(0.0) == []


def test_a_node_on_its_host_takes_a_reader_over_that_another_one_served() -> None:
    """The other one lets go of what it keeps there, when the first one has had time for it."""
    tables = on_hosts()
    serve(tables["remote"], "remote")
    tell(tables)
    assert in_charge(tables) == ["remote"]
    assert tables["local"].take_over(lambda *_: "remote") == [], "while it is not complete"
    assert tables["local"].take_over(lambda *_: "local") == [KEY]
    tell(tables)
    assert in_charge(tables) == ["local"]
    assert tables["remote"].take_over(lambda *_: "local") == []
    assert tables["remote"].take_handed_over(1.0) == []
    assert tables["remote"].next_retry() == 1.0 + HANDED_OVER_S
    assert tables["remote"].take_handed_over(1.0 + HANDED_OVER_S) == [KEY]
    assert tables["remote"].take_handed_over(100.0) == []


def test_what_comes_back_is_not_let_go_of() -> None:
    tables = on_hosts()
    for node, table in tables.items():
        serve(table, node)
    tell(tables)
    assert tables["remote"].take_handed_over(0.0) == []
    tables["remote"].lost("local")
    assert tables["remote"].take_over(lambda *_: "remote") == [KEY]
    assert tables["remote"].take_handed_over(100.0) == []


@pytest.mark.parametrize(("late_s", "served"), [(0.0, "a"), (0.4, "z"), (2.0, "z")])
def test_one_node_serves_a_reader_on_the_host_of_a_node_that_becomes_complete(
    late_s: float, served: str
) -> None:
    """Whether the others have heard of it when the reader comes, or not."""
    cluster = Cluster()
    three(cluster)
    cluster.run_until(cluster.settled)
    newcomer = cluster.start("z", priority=250, host="its own")
    cluster.run_until(lambda: newcomer.core.name_spaces[0].complete, step_s=DELAY_S / 4)
    cluster.run(late_s)
    for member in cluster.members.values():
        member.core.reader_seen(READER, frozenset(("its own",)), cluster.now)
        member.core.handle_timer(cluster.now)
    cluster.run(2)
    assert "".join(name for name, member in cluster.members.items() for _ in member.served) == served


def test_a_reader_that_came_just_before_the_node_in_charge_was_lost_is_served_by_its_successor() -> None:
    tables = served_by_a()
    for table in tables.values():
        table.joined(KEY, 0.0)
    tables["b"].lost("a")
    assert tables["b"].take_over(lambda *_: "b") == [KEY]
    assert tables["b"].open(lambda *_: "b", 10.0) == [KEY]
    assert not tables["b"].is_begun(KEY), "that node had served the others before"
    tables["b"].done(KEY)
    assert tables["b"].open(lambda *_: "b", 20.0) == []


def test_a_reader_that_came_long_before_the_node_in_charge_was_lost_is_not_served_again() -> None:
    tables = served_by_a()
    tables["b"].joined(KEY, 0.0)
    assert tables["b"].open(lambda *_: "a", CAME_S) == []
    tables["b"].lost("a")
    assert tables["b"].take_over(lambda *_: "b") == [KEY]
    assert tables["b"].open(lambda *_: "b", CAME_S) == []


def test_a_delivery_that_a_lost_node_has_begun_is_known_as_such_until_it_is_done() -> None:
    tables = {node: ReaderTable(node) for node in NODES}
    for table in tables.values():
        table.seen(KEY, frozenset(("host",)), None)
    assert tables["a"].open(lambda *_: "a", 0.0) == [KEY]
    assert not tables["a"].is_begun(KEY)
    tables["b"].take_claims(tables["a"].message(1, 0.0), "a")
    tables["b"].lost("a")
    assert tables["b"].open(lambda *_: "b", 1.0) == [KEY]
    assert tables["b"].is_begun(KEY)
    tables["b"].done(KEY)
    assert not tables["b"].is_begun(KEY)


def test_the_node_in_charge_of_a_process_serves_its_readers_of_other_partitions_too() -> None:
    table = ReaderTable("b")
    other = KEY._replace(partitions=("", "x"))
    for reader in (KEY, other):
        table.seen(reader, frozenset(("host",)), None)
    assert table.node_at(other.place) is None
    table.take_claims(Deliveries(1, 1, (Delivery(KEY, "a", done=True),)), "a")
    assert table.node_at(other.place) == "a"
    servers = [Server(node, frozenset(), node == "b", 100) for node in NODES]
    assert choose_server(servers, frozenset()) == "b"
    assert choose_server(servers, frozenset(), "a") == "a"
    table.lost("a")
    assert table.node_at(other.place) is None
