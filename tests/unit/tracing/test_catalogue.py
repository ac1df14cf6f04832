from __future__ import annotations

import pytest

from engine.core.name_spaces import Group
from engine.tracing.catalogue import THREADS, EventType, UnknownEventError, catalogue, field_names
from engine.tracing.record import EventFieldsError, fill_in, message


def plain_fields(kind: EventType) -> dict[str, object]:
    return {name: f"{name}{index}" for index, name in enumerate(kind.fields)}


def test_every_event_is_described_and_found_again_from_its_text() -> None:
    for kind in catalogue().values():
        assert kind.thread in THREADS, kind.id
        assert kind.text.isprintable(), kind.id
        assert kind.meaning.endswith("."), kind.id
        assert len(set(kind.fields)) == len(kind.fields), kind.id
        assert set(field_names(kind.report_text)) <= set(kind.fields), kind.id
        fields = plain_fields(kind)
        assert catalogue().match(message(kind, fields)) == (kind, fields), kind.id


def test_a_text_that_no_event_has_matches_nothing() -> None:
    assert catalogue().match("Confirming master: I am the master for nameSpace 'a'. And more") is None


@pytest.mark.parametrize(
    ("event_id", "fields", "expected"),
    [
        (
            "election.confirmed-self",
            {"namespace": "ns"},
            "Confirming master: I am the master for nameSpace 'ns'.",
        ),
        (
            "election.confirmed-fellow",
            {"namespace": "ns", "fellow": "42"},
            "Confirming master: Fellow '42' is the master for nameSpace 'ns'.",
        ),
        (
            "lifecycle.fellows-known",
            {"count": 2},
            "I now know 2 fellows. Wait for fellow namespaces to get complete...",
        ),
        ("group.complete", {"group": Group("P", "T")}, "Group P.T is now complete."),
        (
            "align.request",
            {"group": Group("P", "T"), "fellow": "7", "source": "1,2,3"},
            "Write samplerequest for group P.T to fellow 7 using source (1,2,3)",
        ),
        (
            "namespace.added",
            {"namespace": "n", "aligner": True, "alignee": "Lazy", "durability": "D"},
            "Add namespace 'n' to administration with policy {aligner=TRUE, alignee=Lazy, durability=D}",
        ),
        (
            "watch.lease-renewed",
            {"expiry_ns": 5_000_000_000},
            "Lease renewed for 5.000000000 seconds.",
        ),
        (
            "watch.progress-lost",
            {"activity": "d_status", "tid": "0x1", "before": 3, "after": 3},
            'Progress changed: "d_status"(0x1):d:3->3',
        ),
        (
            "election.not-needed",
            {"namespace": "n", "master": None, "confirmed": False},
            "No need to find a new master for nameSpace 'n', current master is nobody (confirmed=FALSE)",
        ),
    ],
)
def test_messages_read_as_in_opensplice(event_id: str, fields: dict[str, object], expected: str) -> None:
    assert message(catalogue()[event_id], fields) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("skew_ns", -1_500_000_000, "-1.500000000"),
        ("count", 12, "12"),
        ("rate", 0.1, "0.1"),
        ("fellow", b"\x01\xff", "01ff"),
        ("fellows", ["a", "b"], "a,b"),
        ("candidates", ("a", 2), "a,2"),
        ("cause", None, "none"),
    ],
)
def test_field_values_are_written_by_their_kind(name: str, value: object, expected: str) -> None:
    assert fill_in(f"<{{{name}}}>", {name: value}) == f"<{expected}>"


def test_an_unknown_event_and_wrong_fields_are_our_own_mistakes() -> None:
    with pytest.raises(UnknownEventError):
        catalogue()["election.nonsense"]
    with pytest.raises(EventFieldsError, match="namespace"):
        message(catalogue()["election.confirmed-self"], {"nameSpace": "a"})
