"""Which writers have said that they end, and which were lost with their participants."""

from __future__ import annotations

from typing import Final

import pytest

from engine.capture.neighbourhood import DiscoveryChanges
from engine.core.name_spaces import Group
from engine.dds.discovery import EndpointGone, ParticipantGone
from engine.node.intake import SAID_S, TURN_COUNTS_S, SaidEnds

PROCESS: Final = b"p" * 12 + b"\0\0\1\xc1"
WRITER: Final = b"p" * 12 + b"\0\0\1\2"
GROUPS: Final = (Group("stock", "T", "type"),)
END: Final = EndpointGone(WRITER, 7)
SAID: Final = [(WRITER, 7)]
TURNS: Final = int(SAID_S / TURN_COUNTS_S)


def ends(*each: EndpointGone | ParticipantGone) -> DiscoveryChanges:
    return DiscoveryChanges(ends=[*each])


def taken(said: SaidEnds, turns: int, from_s: float) -> list[tuple[bytes, int]]:
    return [end for number in range(turns) for end in said.ended_writers(from_s + number * TURN_COUNTS_S)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param([ends(END)], SAID, id="deleted"),
        pytest.param([ends(END, ParticipantGone(PROCESS, 8))], SAID, id="deleted with its process"),
        pytest.param([ends(END, ParticipantGone(PROCESS, 7))], [], id="lost in one batch"),
        pytest.param([ends(END), ends(ParticipantGone(PROCESS, 7))], [], id="lost in two"),
        pytest.param([ends(END, ParticipantGone(b"q" * 16, 7))], SAID, id="another process"),
        pytest.param([ends(EndpointGone(WRITER))], [], id="time unknown"),
        pytest.param([ends(END), DiscoveryChanges(writers=[(WRITER, GROUPS)])], [], id="back"),
    ],
)
def test_an_end_counts_as_said_unless_the_participant_ended_at_the_same_instant(
    changes: list[DiscoveryChanges], expected: list[tuple[bytes, int]]
) -> None:
    said = SaidEnds()
    for each in changes:
        said.changed(each)
    assert taken(said, TURNS + 1, 1.0) == expected


def test_a_standstill_does_not_make_an_end_count_before_discovery_has_had_its_turn() -> None:
    said = SaidEnds()
    said.ended_writers(0.5)
    said.changed(ends(END))
    assert said.ended_writers(100.0) == []
    assert taken(said, TURNS - 2, 100.0 + TURN_COUNTS_S) == []
    assert taken(said, 2, 100.0 + TURNS * TURN_COUNTS_S) == SAID
