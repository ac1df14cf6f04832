"""Encoding of the protocol messages as versioned JSON; the core knows nothing of it.

A message of a newer version or of an unknown kind is not an error: it is reported once per sender and
ignored. Another codec only has to make the same values.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec

from engine.core import messages, plain
from engine.core.messages import Message, Outgoing

VERSION: Final = 2
"""Nodes that speak another version do not hear each other, and both report it. 1 was never released."""
MAX_MESSAGE_BYTES: Final = 4 << 20

STATUS_TOPIC: Final = "d_status"
NAME_SPACES_TOPIC: Final = "d_nameSpaces"
DELIVERIES_TOPIC: Final = "d_deliveries"
MESSAGE_TOPIC: Final = "d_message"
STATE_TOPICS: Final = (STATUS_TOPIC, NAME_SPACES_TOPIC, DELIVERIES_TOPIC)
"""Topics whose newest sample of each sender reaches late-joining nodes."""

_KINDS: Final[dict[str, type[Message]]] = {
    kind.__name__: kind
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


def topic_of(outgoing: Outgoing) -> str:
    """Return the topic on which a message travels."""
    return _TOPICS.get(type(outgoing.message), MESSAGE_TOPIC)


def encode(outgoing: Outgoing) -> bytes:
    """Return the message as bytes."""
    document = {
        "version": VERSION,
        "kind": type(outgoing.message).__name__,
        "to": outgoing.to,
        "body": plain.to_plain(outgoing.message),
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode(data: bytes) -> Envelope:
    """Return the message in `data`.

    Raises:
        PeerFault: not a protocol message, or damaged.
        UnsupportedMessage: a protocol message that this version does not know.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise PeerFault(f"{len(data)} bytes are more than a message may have")
    try:
        document = json.loads(data)
        version, kind, to = document["version"], document["kind"], document["to"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PeerFault(f"not a protocol message: {plain.words_of(error)}") from error
    if not isinstance(kind, str):
        raise PeerFault("its kind is not a text")
    if version != VERSION or kind not in _KINDS:
        body = document.get("body")
        name = body.get("name") if isinstance(body, dict) else None
        raise UnsupportedMessage(f"{version!r} {kind!r}"[:80], name[:80] if isinstance(name, str) else "")
    try:
        message: Message = plain.from_plain(_KINDS[kind], document.get("body"))
        return Envelope(message, plain.from_plain(tuple[str, ...], to))
    except plain.PlainFault as error:
        raise PeerFault(f"damaged {kind}: {error}") from error
