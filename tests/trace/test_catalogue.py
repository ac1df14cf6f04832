"""Templates: each is found again in what it makes, and says what it means where it matters."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.tracing.catalogue import catalogue as engine_catalogue
from engine.tracing.record import EventRecord, TextFormat, message
from ospltool.trace.meaning import exchanges, skew, trace_facts
from ospltool.trace.meaning.catalogue import (
    Printer,
    Product,
    Template,
    catalogue,
    compile_pieces,
    engine_templates,
    opensplice_templates,
    pieces,
)
from ospltool.trace.meaning.matcher import CUT_AT_BYTES, divided, matcher
from ospltool.trace.reading.reader import TraceParser
from ospltool.trace.reading.record import LEVELS
from ospltool.trace.reading.sources import TraceFile
from ospltool.trace.views import conversation

MANY = [
    one
    for one in opensplice_templates() + engine_templates()
    if sum(part.kind in {"text", "group"} for part in pieces(one.pattern)) > 3
]
"""Templates with several free fields."""

EXAMPLES = {
    "addr": "1250527713",
    "int": "42",
    "num": "0.25",
    "time": "1795223310.000000001",
    "hex": "01ff",
    "ptr": "0x7f12ab00",
    "triple": "1,2,3",
    "pair": "645, 3",
    "word": "word",
    "group": "sensor.area3.Track",
    "text": "any text",
}


def made(template: Template, values: dict[str, str] | None = None) -> str:
    parts = []
    for piece in pieces(template.pattern):
        parts.append(piece.literal)
        if piece.field:
            parts.append((values or {}).get(piece.field, EXAMPLES[piece.kind]))
    text = "".join(parts)
    return f"[0x00000002] {text}" if template.printer is Printer.MASK else text


ALL = opensplice_templates() + engine_templates()


def test_each_template_is_found_in_its_own_message() -> None:
    for template in ALL:
        found = matcher(template.origin).match(made(template), store=template.printer is Printer.STORE)
        assert found is not None, template.id
        assert found.template is template, f"{template.id} hides behind {found.template.id}"


def test_fields_come_back_as_they_were() -> None:
    template = catalogue().get("d_sampleChainListener:1345")
    assert template is not None
    text = made(
        template, {"equal": "equal ", "group": "a b.c 'd'.T", "fellow": "7", "samples": "3", "links": "1"}
    )
    found = matcher().match(text)
    assert found is not None
    assert found.fields == {
        "equal": "equal ",
        "fellow": "7",
        "group": "a b.c 'd'.T",
        "samples": "3",
        "links": "1",
    }


NAMES = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=30)


@given(NAMES, NAMES)
def test_names_of_any_kind_do_not_confuse_a_pattern(namespace: str, role: str) -> None:
    text = f"State and master of namespace '{namespace}' for role '{role}' cleared"
    found = matcher().match(text)
    assert found is not None
    assert found.template.event == "namespace.cleared"
    fields = found.fields
    assert (
        f"State and master of namespace '{fields['namespace']}' for role '{fields['role']}' cleared" == text
    )


def test_ids_are_unique_and_levels_are_levels() -> None:
    ids = [template.id for template in ALL]
    assert len(ids) == len(set(ids))
    assert {level for template in ALL for level in template.levels} <= set(LEVELS)


def test_fields_of_one_template_have_different_names() -> None:
    for template in ALL:
        names = [piece.field for piece in pieces(template.pattern) if piece.field]
        assert len(names) == len(set(names)), template.id
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names), template.id


def test_an_ambiguous_level_is_a_question_mark() -> None:
    found = matcher().match("historicalDataRequest from reader [1, 2] fulfilled.")
    assert found is not None
    assert (found.template.level, set(found.template.levels)) == ("?", {"FINER", "FINE"})


def test_every_event_that_is_looked_for_exists_for_opensplice() -> None:
    events = {template.event for template in opensplice_templates()}
    wanted = {
        *exchanges.FOLLOWERS,
        *trace_facts.CREATED,
        *trace_facts._LOSSES,
        *skew._SENT,
        *skew._RECEIVED,
        "lifecycle.address",
        "lifecycle.configuration",
        "lifecycle.entering-state",
        "election.confirmed-self",
        "election.confirmed-fellow",
        "merge.requests",
        "client.request",
        "client.fulfilled",
    }
    assert wanted - events - {"align.completed", "merge.finished"} == set()  # only our engine says that
    assert conversation.ALL not in events


def test_templates_with_an_event_are_explained() -> None:
    assert [template.id for template in ALL if template.event and not template.meaning] == []


def test_events_of_our_engine_are_found_by_their_own_names() -> None:
    for kind in engine_catalogue().values():
        text = message(kind, {name: number for number, name in enumerate(kind.fields)})
        found = matcher(Product.ENGINE).match(text)
        assert found is not None, kind.id


def test_a_line_of_our_engine_is_read_back() -> None:
    kind = engine_catalogue()["group.complete"]
    fields = {"group": "partA.T\n1"}
    event = EventRecord(1, 1795223310000000001, "COMPLETE", kind, fields, message(kind, fields))
    line = TextFormat()(event) + "\n"
    source = TraceFile(__import__("pathlib").Path("n1.log"), "n1", origin=Product.ENGINE)
    (record,) = TraceParser(source).parse(line.encode(), 0)
    assert (record.event, record.level, record.time_ns) == ("group.complete", "FINER", 1795223310000000001)


def begins_with_enough(template: Template) -> bool:
    """Whether enough stands before its first field to know it by."""
    parts = pieces(template.pattern)
    return template.printer is Printer.EVENT and len(parts) > 1 and len(parts[0].literal) >= 8


def test_a_cut_message_is_still_known() -> None:
    for template in filter(begins_with_enough, opensplice_templates()):
        parts = pieces(template.pattern)
        whole = made(template)
        cut = whole[: max(len(parts[0].literal) + len(EXAMPLES[parts[0].kind]), len(whole) - 4)]
        found = matcher().match(cut, cut=True)
        assert found is not None, template.id
        assert found.template.pattern.startswith(parts[0].literal), template.id


def test_a_message_as_long_as_opensplice_allows_is_cut_and_known() -> None:
    states = ", ".join(f"(aRole{number}, {number})" for number in range(90))
    whole = (
        f"Received nameSpace 'ns' from fellow 7 (his master: 8, confirmed: 1, mergeState: (R,3), quality: "
        "1.0, "
        f"mergedStates:{{{states}}}, extensions: {{}})."
    )
    found = matcher().match(whole[:CUT_AT_BYTES], cut=True)
    assert found is not None
    assert found.template.event == "namespace.received"
    assert found.fields["master"] == "8"


def test_very_long_messages_are_matched_by_their_first_line() -> None:
    found = matcher().match("Configuration:\n" + "- a : b\n" * 5000)
    assert found is not None
    assert found.template.event == "lifecycle.configuration"


@pytest.mark.parametrize("text", ["", " ", "no such message", "\n", "[0x", "[0x00000001] ", "Group"])
def test_other_text_is_no_message(text: str) -> None:
    assert matcher().match(text) is None
    assert matcher().match(text, cut=True) is None


def test_a_message_that_can_be_divided_in_many_ways_takes_no_longer() -> None:
    """As after damage, or by intent: what stands between the fields stands hundreds of times."""
    for template in MANY:
        parts = pieces(template.pattern)
        between = "".join(part.literal for part in parts[1:])
        for text in (
            parts[0].literal + between * (8_000 // len(between)),
            parts[0].literal + between * 40 + "\0",
        ):
            begun = time.process_time()
            matcher(template.origin).match(text[:8_000], store=template.printer is Printer.STORE, cut=True)
            assert time.process_time() - begun < 2.0, f"{template.id}: a regular expression takes minutes"


@given(st.sampled_from(MANY), st.data())
def test_it_is_divided_as_the_regular_expression_does(template: Template, data: st.DataObject) -> None:
    parts = pieces(template.pattern)
    literals = [part.literal for part in parts if part.literal.strip()]
    values = st.lists(st.sampled_from(["x", "7", " ", ",", "'", *literals[1:]]), max_size=4).map("".join)
    text = "".join(part.literal + (data.draw(values) if part.field else "") for part in parts)
    found = compile_pieces(parts).fullmatch(text)
    assert divided(parts, text) == (found.regs if found else None)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("Checking for completeness of local groups.", {}),
        ("Checking for completeness of local groups with fellows [12,13].", {"fellows": "12,13"}),
        (
            "Chain received: merge action 0x7f01, conflict 12, nameSpace ns, fellows [12]",
            {"action": "0x7f01", "conflict": "12", "namespace": "ns", "fellows": "12"},
        ),
    ],
)
def test_messages_of_older_releases_have_templates(text: str, fields: dict[str, str]) -> None:
    found = matcher().match(text)
    assert found is not None
    assert found.fields == fields
