"""A writer that the tap of its group never matches is told, whatever the reason."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, cast

import pytest

from engine.capture.matching import LOOK_S, MATCH_S, MatchWatch
from engine.capture.neighbourhood import Neighbourhood
from engine.capture.unkept import UnkeptReason
from engine.dds.discovery import EndpointGone
from tests.unit.node.test_neighbourhood import APPLICATION, DESCRIPTION, TYPE, endpoint

if TYPE_CHECKING:
    from engine.capture.tap_registry import TapRegistry
    from engine.core.name_spaces import Group

WRITER = b"1" * 16


class Taps:
    """Tells of every writer whether it is matched."""

    def __init__(self, matched: bool | None) -> None:
        self.matched = matched

    def is_matched(self, group: Group, writer: int) -> bool | None:
        assert (group.topic, writer) == ("Observations", 7)
        return self.matched


class Scene:
    def __init__(self, matched: bool | None, handle: int = 7) -> None:
        self.taps = Taps(matched)
        self.neighbourhood = Neighbourhood()
        self.neighbourhood.take([APPLICATION])
        seen = dataclasses.replace(endpoint(WRITER, is_writer=True), handle=handle)
        self.neighbourhood.take([seen])
        changes = self.neighbourhood.resolved(TYPE, DESCRIPTION)
        self.watch = MatchWatch(cast("TapRegistry", self.taps), self.neighbourhood)
        self.watch.watch(changes.offers)

    def told(self, *times_s: float) -> list[str]:
        return [unkept.why for now_s in times_s for unkept in self.watch.turn(now_s)]

    @property
    def shown(self) -> list[str]:
        return [unkept.why for unkept in self.neighbourhood.unkept]


def test_a_writer_without_a_match_is_told_once_and_kept_once_it_matches() -> None:
    scene = Scene(matched=False)
    assert scene.told(0, MATCH_S - 0.1, MATCH_S + 1) == []
    assert scene.shown == []
    times = [MATCH_S + 2 + LOOK_S * number for number in range(5)]
    assert scene.told(*times) == [UnkeptReason.UNMATCHED]
    assert scene.shown == [UnkeptReason.UNMATCHED]
    assert scene.neighbourhood.routes[WRITER]  # what arrives after all is kept
    scene.taps.matched = True
    assert scene.neighbourhood.unkept.take_kept() == []
    assert scene.told(MATCH_S + 20) == []
    assert scene.shown == []
    assert [one.why for one in scene.neighbourhood.unkept.take_kept()] == [UnkeptReason.UNMATCHED]


@pytest.mark.parametrize(
    ("matched", "handle", "goes"),
    [(True, 7, False), (None, 7, False), (False, 7, True), (False, 0, False)],
    ids=["matched", "no tap", "gone", "unknown here"],
)
def test_other_writers_are_not_told(matched: bool | None, handle: int, goes: bool) -> None:
    scene = Scene(matched, handle)
    assert scene.told(0, MATCH_S + 1) == []
    if goes:
        scene.neighbourhood.take([EndpointGone(WRITER)])
    assert scene.told(*(MATCH_S + 2 + LOOK_S * number for number in range(5))) == []
    assert scene.shown == []
