"""Which samples a DurableWriter may forget."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from engine.dataset.sample import DATA, DISPOSE, Sample, make_sample
from engine.dds.client_protocol.naming import SampleVerdict
from ospltool.client.ledger import NodeVerdicts, PendingQueue

HELD, STORED, MISSING, MEMORY, SUPERSEDED, DELETED, REFUSED = (
    SampleVerdict.HELD,
    SampleVerdict.STORED,
    SampleVerdict.MISSING,
    SampleVerdict.IN_MEMORY,
    SampleVerdict.SUPERSEDED,
    SampleVerdict.DELETED,
    SampleVerdict.REFUSED,
)
IN_A, IN_BOTH = ("a",), ("a", "b")


def ledger_of(keys: str, partitions: tuple[str, ...] = IN_A, nodes: int = 1) -> PendingQueue:
    """A ledger with a sample of each of these instances, in this order."""
    made = PendingQueue(partitions, nodes, 1_000, 1 << 20, None)
    for number, key in enumerate(keys):
        add(made, make_sample(number, b"w" * 16, DATA, key.encode(), b"x"))
    return made


def answer(
    node: str,
    partitions: tuple[str, ...],
    verdicts: list[SampleVerdict],
    *,
    is_on_disk: bool = True,
    store: str = "",
) -> NodeVerdicts:
    return NodeVerdicts(node, partitions, is_on_disk, verdicts, store or f"{node}'s")


def add(ledger: PendingQueue, sample: Sample) -> None:
    entry = ledger.add(sample)
    assert entry is not None
    entry.is_written = True


def left(ledger: PendingQueue) -> str:
    return "".join(entry.sample.key.decode() for entry in ledger.first())


def test_of_an_instance_a_sample_leaves_after_all_before_it() -> None:
    ledger = ledger_of("aba")
    last = make_sample(9, b"w" * 16, DISPOSE, b"a", b"x")
    add(ledger, last)
    entries = ledger.first()
    assert ledger.judge(entries, [answer("n", IN_A, [MISSING, STORED, STORED, STORED])]) == 1
    assert left(ledger) == "aaa"
    assert [one.number for one in ledger.following(entries[:1], ledger.first())] == [1, 3, 4]
    assert ledger.judge(ledger.first(), [answer("n", IN_A, [SUPERSEDED, STORED, STORED])]) == 3
    assert (len(ledger), ledger.bytes, ledger.settled) == (0, 0, 4)
    assert ledger.is_settled_until(4)


def test_what_is_in_memory_counts_only_while_all_say_so_at_once() -> None:
    ledger = ledger_of("a", nodes=2)
    entries = ledger.first()
    assert not ledger.judge(entries, [answer("m", IN_A, [HELD], is_on_disk=False)])
    assert not ledger.judge(
        entries, [answer("n", IN_A, [HELD], is_on_disk=False), answer("m", IN_A, [MISSING], is_on_disk=False)]
    )
    assert not ledger.judge(entries, [answer("n", IN_A, [SUPERSEDED], is_on_disk=False)])
    assert not ledger.judge(entries, [answer("n", IN_A, [MEMORY]), answer("m", IN_A, [MEMORY])])
    assert ledger.judge(
        entries,
        [answer("n", IN_A, [HELD], is_on_disk=False), answer("m", IN_A, [SUPERSEDED], is_on_disk=False)],
    )


def test_what_is_on_disk_counts_from_then_on_and_in_each_partition() -> None:
    ledger = ledger_of("a", IN_BOTH, nodes=2)
    entries = ledger.first()
    assert not ledger.judge(entries, [answer("n", IN_BOTH, [STORED])])
    assert not ledger.judge(entries, [answer("n", IN_BOTH, [STORED])]), "one node is one node"
    assert not ledger.judge(entries, [answer("m", ("a",), [STORED])])
    assert ledger.judge(entries, [answer("o", ("b",), [STORED])])


def test_a_former_store_counts_only_while_it_answers_beside_the_one_of_its_name() -> None:
    ledger = ledger_of("a", nodes=2)
    entries = ledger.first()
    assert not ledger.judge(entries, [answer("n", IN_A, [STORED], store="1")])
    assert not ledger.judge(entries, [answer("n", IN_A, [STORED], store="2")]), "its disk was exchanged"
    assert not ledger.judge(entries, [answer("n", IN_A, [STORED], store="3")]), "again"
    assert not ledger.judge(entries, [answer("n", (), [MISSING], store="4")]), "it does not count yet"
    assert not ledger.judge(entries, [answer("m", IN_A, [STORED])]), "nor does what it had before"
    assert ledger.judge(entries, [answer("n", IN_A, [STORED], store="4")])


def test_two_nodes_of_one_name_are_two_while_both_answer() -> None:
    ledger = ledger_of("a", nodes=2)
    entries = ledger.first()
    assert not ledger.judge(entries, [answer("n", IN_A, [STORED], store="1")])
    both = [answer("n", IN_A, [MISSING], store="1"), answer("n", IN_A, [STORED], store="2")]
    assert ledger.judge(entries, both)


@given(
    st.text("abc", max_size=12),
    st.lists(st.lists(st.lists(st.sampled_from(list(SampleVerdict)), min_size=12, max_size=12), max_size=3)),
    st.integers(1, 3),
)
def test_nothing_leaves_that_fewer_nodes_have(
    keys: str, rounds: list[list[list[SampleVerdict]]], nodes: int
) -> None:
    ledger = ledger_of(keys, nodes=nodes)
    has: dict[int, set[int]] = {}
    for said in rounds:
        entries = ledger.first()
        for node, entry in itertools.product(range(len(said)), entries):
            if said[node][entry.number - 1].is_kept:
                has.setdefault(entry.number, set()).add(node)
        before = {entry.number for entry in entries}
        verdicts = [[each[entry.number - 1] for entry in entries] for each in said]
        ledger.judge(entries, [answer(str(node), IN_A, each) for node, each in enumerate(verdicts)])
        gone = before - {entry.number for entry in ledger.first()}
        few = {number for number in gone if len(has.get(number, ())) < nodes}
        for number in few:
            last = {each[number - 1] for each in said}
            assert last & {DELETED, REFUSED}
            assert all(one in (DELETED, REFUSED) or one.is_kept for one in last)
        assert sum(count for _, count, _ in ledger.tell_given_up()) == len(few)
        assert ledger.written == ledger.settled + ledger.deleted + ledger.refused + len(ledger)


def test_what_nodes_will_never_take_leaves_uncounted_and_is_told_once() -> None:
    ledger = ledger_of("ab")
    names = [entry.name for entry in ledger.first()]
    assert not ledger.judge(
        ledger.first(), [answer("n", IN_A, [MISSING, MEMORY]), answer("m", IN_A, [DELETED] * 2)]
    )
    assert ledger.judge(ledger.first(), [answer("n", IN_A, [DELETED, STORED])]) == 2
    assert (len(ledger), ledger.bytes, ledger.settled, ledger.deleted) == (0, 0, 1, 1)
    assert ledger.tell_given_up() == [(DELETED, 1, (names[0],))]
    assert ledger.tell_given_up() == []


def test_what_a_limit_keeps_out_leaves_once_all_who_answer_say_so() -> None:
    ledger = ledger_of("abc", nodes=2)
    names = [entry.name for entry in ledger.first()]
    full = [REFUSED, REFUSED, DELETED]
    assert not ledger.judge(
        ledger.first(), [answer("n", IN_A, full), answer("m", IN_A, [MISSING, MEMORY, MEMORY])]
    )
    answers = [answer("n", IN_A, full), answer("m", IN_A, [REFUSED, STORED, REFUSED])]
    assert ledger.judge(ledger.first(), answers) == 3
    assert (len(ledger), ledger.settled, ledger.deleted, ledger.refused) == (0, 0, 1, 2)
    assert ledger.tell_given_up() == [(REFUSED, 2, tuple(names[:2])), (DELETED, 1, (names[2],))]


def test_what_may_still_be_withdrawn_is_not_asked_about_and_what_was_is_gone() -> None:
    ledger = ledger_of("ab")
    sample = make_sample(9, b"w" * 16, DATA, b"c", b"x")
    entry = ledger.add(sample)
    assert entry is not None
    assert left(ledger) == "ab"
    assert ledger.add(sample) is None, "one sample, however often it is written at one time"
    ledger.withdraw(entry)
    assert (len(ledger), ledger.written, ledger.holds(entry)) == (2, 2, False)
