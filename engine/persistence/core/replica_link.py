"""A link between two replicas: each side gets all messages of the other in order, or the link is down.

Each side names its end of the link by a random number. A message carries both numbers and its place in the
order, so that no message of an earlier link counts on this one, and a missing message restarts the link.
Pure: frames go in, frames and events come out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from engine.persistence.core.messages import MessageFault

VERSION: Final = 2
"""Of the frame; a replica of another one is refused with its first hello."""
_MAGIC: Final = b"ospp"
_FRAME: Final = struct.Struct(">4sBQQQ?")
"""Magic, version, both numbers, place in the order, and whether it is a hello; its body names the sender."""
_UNKNOWN: Final = 0
_IS_UP: Final = 1
"""Place of a hello that needs no answer."""


class Arrived(Struct, frozen=True):
    """A message of the other side."""

    body: bytes


class Up(Struct, frozen=True):
    """The link is up; `hello` is the body of the other side's hello."""

    hello: bytes


class Down(Struct, frozen=True):
    """The link is down; messages that have not arrived are lost."""


Event = Arrived | Up | Down


class ReplicaLink:
    """One end of a link.

    Args:
        hello: the body of this side's hello.
        new_number: returns random numbers from 1 to 2**64 - 1.

    Attributes:
        is_up: whether messages can be sent.
        breaks: how often it went down because a message was missing.
    """

    def __init__(self, hello: bytes, new_number: Callable[[], int]) -> None:
        self._hello = hello
        self._new_number = new_number
        self._own = new_number()
        self._other = _UNKNOWN
        self._sent = 0
        self._received = 0
        self.is_up = False
        self.breaks = 0

    def hello(self) -> bytes:
        """Return the frame that begins the link; send it again from time to time until the link is up."""
        return self._frame(self._hello, _IS_UP if self.is_up else 0, is_hello=True)

    def frame(self, body: bytes) -> bytes:
        """Return the frame of a message; frames are sent in this order. Only while the link is up."""
        assert self.is_up
        self._sent += 1
        return self._frame(body, self._sent)

    def _frame(self, body: bytes, number: int, *, is_hello: bool = False) -> bytes:
        return _FRAME.pack(_MAGIC, VERSION, self._own, self._other, number, is_hello) + body

    def restart(self) -> list[Event]:
        """Restart the link, because the other side is gone or lost a message."""
        events: list[Event] = [Down()] if self.is_up else []
        self._own = self._new_number()
        self._other = _UNKNOWN
        self.is_up = False
        return events

    def receive(self, frame: bytes) -> tuple[list[Event], list[bytes]]:
        """Take in a frame of the other side; return events and frames to answer.

        Raises:
            MessageFault: not a frame, or one of another version.
        """
        if len(frame) < _FRAME.size or frame[:4] != _MAGIC:
            raise MessageFault("not a frame")
        _, version, theirs, ours, number, is_hello = _FRAME.unpack_from(frame)
        if version != VERSION:
            raise MessageFault(f"version {version} is not known")
        body = frame[_FRAME.size :]
        if is_hello:
            return self._greet(theirs, ours, body, is_up=number == _IS_UP)
        if not self.is_up or (theirs, ours) != (self._other, self._own):
            return [], []
        if number != self._received + 1:
            self.breaks += 1
            return self.restart(), [self.hello()]
        self._received = number
        return [Arrived(body)], []

    def _greet(self, theirs: int, ours: int, body: bytes, *, is_up: bool) -> tuple[list[Event], list[bytes]]:
        events: list[Event] = []
        if theirs == _UNKNOWN:
            raise MessageFault("a hello without a number")
        if theirs != self._other:
            if self.is_up:
                events.append(Down())
                self.is_up = False
            self._other = theirs
        if self.is_up:
            return events, [] if is_up and ours == self._own else [self.hello()]
        if ours == self._own:
            assert self._other != _UNKNOWN, "a link is up when both numbers are known"
            self.is_up = True
            self._sent = self._received = 0
            events.append(Up(body))
        return events, [self.hello()]
