"""Everything that travels as JSON: written and read back, damaged, and made up (d_* and monitor topics)."""

from __future__ import annotations

import json
import os
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.core import messages, untrusted
from engine.core.messages import Message, Outgoing
from engine.persistence.service import replica_view as view
from engine.runtime import codec, monitor, stream
from tests import fake
from tests.property.values import JSON, values

MESSAGES: tuple[type[Message], ...] = typing.get_args(Message)
VIEWS: tuple[type[monitor.Message], ...] = typing.get_args(monitor.Message)
NODE = msgspec.to_builtins(fake.snapshot(1))
REPLICA = msgspec.to_builtins(fake.replica("a"))
PLAIN = (*MESSAGES, *VIEWS, stream.StreamBegin, stream.GroupBegin, stream.StreamEnd)
ANY = st.sampled_from(PLAIN).flatmap(lambda kind: values(kind))
MESSAGE = st.sampled_from(MESSAGES).flatmap(lambda kind: values(kind))
VIEW = st.sampled_from(VIEWS).flatmap(lambda kind: values(kind))


@given(ANY)
def test_json_is_read_as_it_was_written(value: Any) -> None:
    text = json.dumps(msgspec.to_builtins(value))
    assert untrusted.json_reader(type(value))(text) == value


@given(ANY, st.text(), JSON)
def test_a_field_of_a_newer_version_is_survived(value: Any, name: str, more: Any) -> None:
    document = msgspec.to_builtins(value)
    document.setdefault("+" + name, more)
    assert untrusted.json_reader(type(value))(json.dumps(document)) == value


@given(st.sampled_from((*PLAIN, tuple[str, ...], dict[str, int], float, bool, messages.Epoch)), JSON)
def test_any_plain_value_fits_or_is_a_fault(wanted: Any, value: Any) -> None:
    try:
        made = untrusted.json_reader(wanted)(json.dumps(value))
    except untrusted.JsonFault:
        return
    assert untrusted.json_reader(wanted)(json.dumps(msgspec.to_builtins(made))) == made


@given(st.data())
def test_one_field_of_another_type_fits_or_is_a_fault(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(PLAIN))
    document = msgspec.to_builtins(data.draw(values(kind)))
    field = data.draw(st.sampled_from(sorted(document)))
    document[field] = data.draw(JSON)
    try:
        made = untrusted.json_reader(kind)(json.dumps(document))
    except untrusted.JsonFault:
        return
    msgspec.json.encode(made)
    repr(made).encode()  # a text that cannot be written anywhere must not get in


@given(
    st.sampled_from(MESSAGES).flatmap(lambda kind: values(kind)), st.lists(st.text(max_size=4), max_size=3)
)
def test_messages_arrive_as_they_were_sent(message: Message, to: list[str]) -> None:
    outgoing = Outgoing(message, tuple(to))
    envelope = codec.decode(codec.encode(outgoing))
    assert (envelope.message, envelope.to) == (outgoing.message, outgoing.to)
    assert codec.topic_of(outgoing).startswith("d_")


@given(VIEW)
def test_views_arrive_as_they_were_sent(view: monitor.Message) -> None:
    assert monitor.decode(monitor.encode(view)) == view


def check_refuses_or_takes(data: bytes) -> None:
    """Either a whole message or the fault that is meant for it; what was taken can be sent on."""
    try:
        envelope = codec.decode(data)
    except (codec.PeerFault, codec.UnsupportedMessage):
        pass
    else:
        assert codec.decode(codec.encode(Outgoing(envelope.message, envelope.to))) == envelope
    try:
        view = monitor.decode(data)
    except monitor.MonitorFault:
        pass
    else:
        assert monitor.decode(monitor.encode(view)) == view


@given(st.binary() | st.text().map(lambda text: text.encode(errors="replace")))
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b"9" * 10_000)
@example(b'{"version": %d, "kind": [], "to": [], "body": {}}' % codec.VERSION)
@example(b'{"version": %d, "kind": "Status", "to": {"a": 1}}' % codec.VERSION)
@example(b'{"format_version": 1, "kind": {}, "data": []}')
@example(b'{"format_version": 1, "kind": "event"}')
def test_random_bytes_are_refused_in_order(data: bytes) -> None:
    check_refuses_or_takes(data)


@given(JSON, st.sampled_from([*(kind.__name__ for kind in MESSAGES), "node", "event", "New"]), JSON, JSON)
def test_documents_of_the_right_shape_with_anything_in_it_are_refused_in_order(
    body: Any, kind: str, to: Any, version: Any
) -> None:
    for number in (codec.VERSION, monitor.FORMAT_VERSION, version):
        document = {"version": number, "format_version": number, "kind": kind, "to": to, "body": body}
        document["data"] = body
        check_refuses_or_takes(json.dumps(document).encode())


@given(st.data())
def test_a_damaged_message_is_another_message_or_refused_in_order(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from((*MESSAGES, *VIEWS)))
    value = data.draw(values(kind))
    whole = monitor.encode(value) if kind in VIEWS else codec.encode(Outgoing(value))
    at = data.draw(st.integers(0, len(whole) - 1))
    check_refuses_or_takes(whole[:at])
    check_refuses_or_takes(whole[:at] + data.draw(st.binary(max_size=2)) + whole[at + 1 :])


@pytest.mark.parametrize("text", ['"\\ud800"', '"a\\udfffb"'])
def test_half_a_character_is_refused(text: str) -> None:
    # It cannot be written to any file or terminal, so a node that took it in would fail later.
    with pytest.raises(untrusted.JsonFault):
        untrusted.json_reader(str)(text)


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "1e300", "-1e39", "1" + "0" * 400]
)
def test_a_time_that_never_comes_is_refused(number: str) -> None:
    # An expiry of a fellow that is no number would keep it alive for ever.
    with pytest.raises(untrusted.JsonFault):
        untrusted.json_reader(untrusted.Seconds)(number)


@pytest.mark.parametrize("number", [10**39, -(10**400)], ids=["a little", "much"])
def test_a_number_that_is_larger_than_anything_is_refused(number: int) -> None:
    """Whoever shows it would divide by it: no float has this size, and the console would end."""
    node = json.dumps({"format_version": 1, "kind": "node", "data": NODE | {"started_ns": number}})
    with pytest.raises(monitor.MonitorFault):
        monitor.decode(node.encode())
    whole = json.dumps({"format_version": 1, "kind": "replica", "data": REPLICA | {"values": number}})
    with pytest.raises(view.ViewFault):
        view.decode(whole.encode())


def test_a_path_that_is_no_text_does_not_keep_a_node_from_showing_itself() -> None:
    broken = os.fsdecode(b"/etc/\xff.xml")
    event = monitor.NodeEvent("1", broken, 1, 2, "INIT", "main", "INFO", "an.event", broken)
    shown = monitor.decode(monitor.encode(event))
    assert isinstance(shown, monitor.NodeEvent)
    assert shown.text == "/etc/?.xml"
