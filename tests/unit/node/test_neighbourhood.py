"""Fellows attach and detach; channel and discovery tell of it, each in its own order and time."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dds.channel import PeerAttached, PeerDetached
from engine.dds.discovery import ParticipantGone, ParticipantSeen
from engine.dds.participant import Tag, TagRole
from engine.node.neighbourhood import Neighbourhood

NODE, PROCESS = b"n" * 16, b"p" * 16

Told: TypeAlias = ParticipantSeen | ParticipantGone | PeerAttached | PeerDetached

SEEN = ParticipantSeen(PROCESS, Tag(TagRole.NODE, NODE), "127.0.0.1:7410", "host", 1, "", is_own=False)
GONE = ParticipantGone(PROCESS)
ATTACHED = PeerAttached(PROCESS)
DETACHED = PeerDetached(PROCESS)


def check_attached(told: list[Told], *, expected: bool) -> None:
    """What the node was told last, batch by batch; attaching and detaching alternate."""
    neighbourhood = Neighbourhood()
    found = [each for change in told for each in neighbourhood.take([change]).fellows]
    assert all((node, participant) == (NODE.hex(), PROCESS) for node, participant, _ in found)
    states = [attached for _, _, attached in found]
    assert states == [index % 2 == 0 for index in range(len(states))]
    assert (states[-1] if states else False) is expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param([SEEN, ATTACHED], True, id="discovery first"),
        pytest.param([ATTACHED, SEEN], True, id="channel first"),
        pytest.param([SEEN, ATTACHED, DETACHED, GONE], False, id="left"),
        pytest.param([SEEN, ATTACHED, GONE, DETACHED], False, id="left, discovery first"),
        pytest.param([SEEN, ATTACHED, GONE], False, id="lost"),
        pytest.param([SEEN, ATTACHED, GONE, SEEN], True, id="lost and found, overlooked by the channel"),
        pytest.param([SEEN, ATTACHED, DETACHED, ATTACHED, GONE, SEEN], True, id="channel ahead of discovery"),
        pytest.param([SEEN, ATTACHED, GONE, SEEN, DETACHED, ATTACHED], True, id="channel behind discovery"),
        pytest.param([SEEN, GONE, ATTACHED], False, id="gone before it attached"),
    ],
)
def test_a_fellow_ends_attached_whatever_is_told_first(told: list[Told], expected: bool) -> None:
    check_attached(told, expected=expected)


@given(st.integers(0, 4), st.booleans(), st.data())
def test_every_interleaving_of_the_two_sources_ends_alike(
    losses: int, is_there: bool, data: st.DataObject
) -> None:
    """The channel may overlook any of the losses, if the process was found again."""
    discovery: list[Told] = [SEEN]
    channel: list[Told] = [ATTACHED]
    for _ in range(losses):
        discovery += [GONE, SEEN]
        if data.draw(st.booleans(), label="noticed by the channel"):
            channel += [DETACHED, ATTACHED]
    if not is_there:
        discovery.append(GONE)
        channel.append(DETACHED)
    told: list[Told] = []
    while discovery or channel:
        turn = data.draw(st.booleans()) if discovery and channel else bool(discovery)
        told.append((discovery if turn else channel).pop(0))
    check_attached(told, expected=is_there)
