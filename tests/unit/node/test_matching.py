"""A writer that the tap of its group never matches is told, whatever the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from engine.capture.intake import END_S, LOOK_S, MATCH_S, SHOWN_S, MatchWatch
from engine.capture.neighbourhood import Neighbourhood
from engine.capture.unkept import UnkeptReason
from engine.dataset.sample import DATA, captured_sample
from engine.dds.discovery import EndpointGone
from engine.dds.writer_names import WRITER_GONE
from tests.unit.node.test_neighbourhood import APPLICATION, DESCRIPTION, TYPE, endpoint

if TYPE_CHECKING:
    from engine.capture.tap_registry import TapRegistry
    from engine.core.name_spaces import Group

WRITER = b"1" * 16


class Taps:
    """Tells of every writer whether it is matched."""

    def __init__(self, matched: bool | None) -> None:
        self.matched = matched
        self.is_behind = False

    def is_tapped(self, group: Group) -> bool:
        assert group.topic == "Observations"
        return self.matched is not None

    def has_news(self) -> bool:
        return self.is_behind

    def is_matched(self, groups: tuple[Group, ...], writer: int) -> bool | None:
        assert (groups[0].topic, writer) == ("Observations", 7)
        return self.matched


class Scene:
    def __init__(self, matched: bool | None, handle: int = 7) -> None:
        self.taps = Taps(matched)
        self.neighbourhood = Neighbourhood()
        self.neighbourhood.apply([APPLICATION])
        seen = msgspec.structs.replace(endpoint(WRITER, is_writer=True), handle=handle)
        self.neighbourhood.apply([seen])
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


LOOKS = [MATCH_S + 2 + LOOK_S * number for number in range(5)]
ENDS = [END_S - LOOK_S, END_S, END_S + LOOK_S, END_S + 20]


@pytest.mark.parametrize(
    ("matched", "handle"), [(True, 7), (None, 7), (False, 0)], ids=["matched", "no tap", "unknown here"]
)
def test_other_writers_are_not_told(matched: bool | None, handle: int) -> None:
    scene = Scene(matched, handle)
    assert scene.told(0, MATCH_S + 1, *LOOKS, *ENDS) == []
    assert scene.shown == []


@pytest.mark.parametrize("matched", [False, True], ids=["never matched", "matched when it was dead"])
def test_a_writer_that_ends_before_a_sample_of_it_is_captured_is_told_once(matched: bool) -> None:
    """It has a row for some time, because people look for what is missing after it has gone."""
    scene = Scene(matched)
    assert scene.told(0) == []
    if matched:
        scene.watch.heard([captured_sample(0, WRITER, WRITER_GONE, b"", b"")])
    scene.neighbourhood.apply([EndpointGone(WRITER)])
    scene.taps.is_behind = True  # a sample of it may wait there
    assert scene.told(MATCH_S + 1, *LOOKS, *ENDS) == []
    scene.taps.is_behind = False
    assert scene.told(END_S + 30, END_S + 40) == [UnkeptReason.ENDED]
    assert scene.shown == [UnkeptReason.ENDED]
    assert scene.told(END_S + 29 + SHOWN_S, END_S + 31 + SHOWN_S) == []
    assert scene.shown == []


def test_a_writer_that_ends_after_a_sample_of_it_is_not_told() -> None:
    scene = Scene(matched=True)
    scene.watch.heard([captured_sample(0, WRITER, DATA, b"", b"")])
    scene.neighbourhood.apply([EndpointGone(WRITER)])
    assert scene.told(0, MATCH_S + 1, *LOOKS, *ENDS) == []


@pytest.mark.parametrize("told", [False, True], ids=["refused", "without a match"])
def test_a_writer_that_was_told_before_it_ends_is_not_told_again(told: bool) -> None:
    scene = Scene(matched=False)
    if told:
        assert scene.told(0, *LOOKS) == [UnkeptReason.UNMATCHED]
    else:
        (offer,) = scene.neighbourhood.offers("Observations", DESCRIPTION.type_id)
        scene.neighbourhood.refuse(offer, UnkeptReason.QOS, "RELIABILITY")
    scene.neighbourhood.apply([EndpointGone(WRITER)])
    assert scene.told(0, *ENDS) == []


def test_a_writer_without_a_tap_that_ends_is_not_told() -> None:
    scene = Scene(matched=None)
    scene.neighbourhood.apply([EndpointGone(WRITER)])
    assert scene.told(0, *LOOKS, *ENDS) == []
