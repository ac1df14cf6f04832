"""What is acknowledged: a state that merges the same in any order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.persistence.core import subscription_ledger as ledger_module
from engine.persistence.core.subscription_ledger import LedgerState, SubscriptionLedger, SubscriptionTerms

Act = tuple[str, str, int]
ACTS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("vw"), st.integers(1, 6)), max_size=12)


@st.composite
def ledgers(draw: st.DrawFn) -> SubscriptionLedger:
    terms = SubscriptionTerms(draw(st.integers(1, 2)), draw(st.booleans()))
    made = SubscriptionLedger(LedgerState("s", terms, draw(st.integers(1, 3))))
    for member, writer, number in draw(ACTS):
        made.acknowledge(member, writer, [number])
    return made


def joined(*parts: LedgerState) -> LedgerState:
    first, *rest = parts
    made = SubscriptionLedger(first)
    for part in rest:
        made.join(part)
    return made.state()


@given(ledgers(), ledgers(), ledgers())
def test_joining_is_commutative_associative_and_idempotent(
    one: SubscriptionLedger, two: SubscriptionLedger, three: SubscriptionLedger
) -> None:
    a, b, c = one.state(), two.state(), three.state()
    assert joined(a, b) == joined(b, a)
    assert joined(joined(a, b), c) == joined(a, joined(b, c))
    assert joined(a, a) == a
    assert SubscriptionLedger(joined(a, b)).join(a) is None, "nothing is new"


@given(st.integers(1, 3), ACTS)
def test_a_sample_is_done_when_the_quorum_has_acknowledged_it(quorum: int, acts: list[Act]) -> None:
    ledger = SubscriptionLedger(LedgerState("s", SubscriptionTerms(), quorum))
    for member, writer, number in acts:
        ledger.acknowledge(member, writer, [number])
    for writer in "vw":
        for number in range(1, 7):
            who = {act[0] for act in acts if act[1:] == (writer, number)}
            assert ledger.is_done(writer, number) == (len(who) >= quorum)
            for member in "abc":
                assert ledger.has(member, writer, number) == (member in who or len(who) >= quorum)


@given(ledgers(), ledgers())
def test_who_joins_only_what_is_new_ends_with_the_same(
    one: SubscriptionLedger, other: SubscriptionLedger
) -> None:
    third = SubscriptionLedger(one.state())
    new = one.join(other.state())
    if new is not None:
        third.join(new)
    assert third.state() == one.state()


def test_a_deletion_ends_what_was_acknowledged_and_the_next_registration_begins_anew() -> None:
    ledger = SubscriptionLedger(LedgerState("s", SubscriptionTerms(), 1))
    ledger.acknowledge("m", "w", [1, 2])
    old = ledger.state()
    ledger.join(LedgerState("s", SubscriptionTerms(1, True), 1))
    assert ledger.state().done == ()
    assert ledger.join(old) is None, "what comes late of a deleted one counts no more"
    ledger.join(LedgerState("s", SubscriptionTerms(2), 3))
    assert (ledger.quorum, ledger.is_done("w", 1)) == (3, False)


def test_at_the_bound_the_oldest_acknowledgements_are_forgotten_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_module, "MAX_ACKNOWLEDGED", 20)
    ledger = SubscriptionLedger(LedgerState("s", SubscriptionTerms(), 1))
    for number in range(1, 26):
        ledger.acknowledge("m", "w", [number])
    kept = [number for number in range(1, 26) if ledger.is_done("w", number)]
    assert kept == list(range(26 - len(kept), 26))
    assert (len(kept) <= 20, ledger.forgotten) == (True, 25 - len(kept))


def test_members_beyond_the_bound_are_refused_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_MEMBERS", 2)
    ledger = SubscriptionLedger(LedgerState("s", SubscriptionTerms(), 3))
    for member in "abc":
        ledger.acknowledge(member, "w", [1])
    assert (ledger.is_done("w", 1), ledger.refused, ledger.members()) == (False, 1, {"a": 1, "b": 1})


def test_a_quorum_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="quorum"):
        SubscriptionLedger(LedgerState("s", SubscriptionTerms(), 0))
