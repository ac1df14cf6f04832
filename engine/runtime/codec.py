"""Encoding of the protocol messages as versioned JSON; the core knows nothing of it.

A message of a newer version or of an unknown kind is not an error: it is reported once per sender and
ignored. Another codec only has to make the same values.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import msgspec

from engine.core import messages
from engine.core.messages import Message, Outgoing
from engine.core.untrusted import JsonFault, json_reader

VERSION: Final = 2
"""Nodes that speak another version do not hear each other, and both report it. 1 was never released."""
# Chosen: most messages have kilobytes, the largest some hundred.
MAX_MESSAGE_BYTES: Final = 4 << 20
"""Larger messages are refused before they are parsed: anybody in the domain can send one."""

STATUS_TOPIC: Final = "d_status"
NAME_SPACES_TOPIC: Final = "d_nameSpaces"
DELIVERIES_TOPIC: Final = "d_deliveries"
MESSAGE_TOPIC: Final = "d_message"
STATE_TOPICS: Final = (STATUS_TOPIC, NAME_SPACES_TOPIC, DELIVERIES_TOPIC)
"""Topics whose newest sample of each sender reaches late-joining nodes."""

_READERS: Final = {
    kind.__name__: json_reader(kind)
    for kind in (
        messages.Status,
        messages.NameSpaces,
        messages.Deliveries,
        messages.SampleRequest,
        messages.Refusal,
        messages.NewGroup,
        messages.DeleteData,
        messages.Purge,
        messages.Outdated,
        messages.WriterView,
        messages.WritersEnded,
    )
}
_TOPICS: Final[dict[type[Message], str]] = {
    messages.Status: STATUS_TOPIC,
    messages.NameSpaces: NAME_SPACES_TOPIC,
    messages.Deliveries: DELIVERIES_TOPIC,
}


class PeerFault(ValueError):
    """Bytes of a fellow that are not a protocol message."""


class UnsupportedMessage(ValueError):
    """A message of a version or kind that this node does not know.

    Attributes:
        version: version and kind that the message states.
        name: name that the sender gives itself; empty where the message has none.
    """

    def __init__(self, version: str, name: str = "") -> None:
        super().__init__(f"version or kind {version} is not known")
        self.version = version
        self.name = name


class Envelope(msgspec.Struct, frozen=True):
    """A message with its addressees (none for all nodes)."""

    message: Message
    to: tuple[str, ...]


class _Document(msgspec.Struct):
    """A message on the wire. Of another version only this form is known."""

    version: Any
    kind: str
    to: msgspec.Raw
    body: msgspec.Raw = msgspec.Raw(b"null")


_read_document: Final = json_reader(_Document)
_read_body: Final = json_reader(dict[str, Any])
_read_addressees: Final = json_reader(tuple[str, ...])


def topic_of(outgoing: Outgoing) -> str:
    """Return the topic on which a message travels."""
    return _TOPICS.get(type(outgoing.message), MESSAGE_TOPIC)


def encode(outgoing: Outgoing) -> bytes:
    """Return the message as bytes."""
    document = {
        "version": VERSION,
        "kind": type(outgoing.message).__name__,
        "to": outgoing.to,
        "body": outgoing.message,
    }
    return msgspec.json.encode(document)


def decode(data: bytes) -> Envelope:
    """Return the message in `data`.

    Raises:
        PeerFault: not a protocol message, or damaged.
        UnsupportedMessage: a protocol message that this version does not know.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise PeerFault(f"{len(data)} bytes are more than a message may have")
    try:
        document: _Document = _read_document(data)
    except JsonFault as error:
        raise PeerFault(f"not a protocol message: {error}") from error
    kind = document.kind
    if document.version != VERSION or kind not in _READERS:
        name = ""
        # The name only makes the report nicer, and the body of another version may have any form.
        with contextlib.suppress(JsonFault):
            found = _read_body(document.body).get("name")
            name = found[:80] if isinstance(found, str) else ""
        raise UnsupportedMessage(f"{document.version!r} {kind!r}"[:80], name)
    try:
        return Envelope(_READERS[kind](document.body), _read_addressees(document.to))
    except JsonFault as error:
        raise PeerFault(f"damaged {kind}: {error}") from error
