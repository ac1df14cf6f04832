"""When a reader of the library asks again, because something may have passed it by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.dds import abi
from ospltool.client.cache import SampleCache
from ospltool.client.reader import RETURN_S, Arrivals

WRITER = b"w" * 16
BEGAN_S = 100.0


class Play:
    """The arrivals of a reader whose matched writers the test decides."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.matched: dict[bytes, int] = {}
        live: Any = SimpleNamespace(
            entity=0,
            topic=SimpleNamespace(name="T"),
            drain=lambda _: [],
            matched_writers=lambda: self.matched,
        )
        session: Any = SimpleNamespace(
            signal=SimpleNamespace(attach=lambda *_: None),
            writers=lambda _: {},
            writers_seen=0,
            deliverers=set(),
            discovered=lambda: None,
        )

        def take_status(_: int, status: Any, __: int) -> None:
            status._obj.value = 1  # who matches has changed

        monkeypatch.setattr(abi, "take_status", take_status)
        self.arrivals = Arrivals(session, live, SampleCache(1), None, 1_000, holds=False)

    def match(self, now: float) -> None:
        self.matched[WRITER] = 1
        self.arrivals.take_live(now)

    def asks_again(self) -> bool:
        return any(self.arrivals.is_missing(BEGAN_S + after_s) for after_s in (0, 5, 10, 20, 40, 80))


@pytest.mark.parametrize(
    ("answered_s", "matched_s", "asks_again"),
    [
        (0.1, 0.2, False),
        (0.2, 0.1, False),
        (5.0, 0.5, False),
        (0.1, 2.0, True),
        (1.9, 2.0, True),
        (5.0, 2.0, True),
        (0.1, 60.0, True),
    ],
    ids=[
        "at once",
        "before the answer",
        "long before a slow answer",
        "late",
        "late, just after a slow answer",
        "late, before a slow answer",
        "after all hope is lost",
    ],
)
def test_a_writer_that_is_found_late_may_have_written_before(
    monkeypatch: pytest.MonkeyPatch, answered_s: float, matched_s: float, asks_again: bool
) -> None:
    """What a service was asked for at 0 is what there was until a second later."""
    play = Play(monkeypatch)

    def answer(now: float) -> None:
        play.arrivals.expect([WRITER], (), BEGAN_S, now)

    events = [(answered_s, answer), (matched_s, play.match)]
    for at_s, happens in sorted(events, key=lambda event: event[0]):
        play.arrivals.take_live(BEGAN_S + at_s - 0.01)
        happens(BEGAN_S + at_s)
    assert play.asks_again() is asks_again


def test_asking_again_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch)
    play.arrivals.expect([WRITER], (), BEGAN_S, BEGAN_S + 0.1)
    play.match(BEGAN_S + 5)
    assert play.arrivals.is_missing(BEGAN_S + 5 + RETURN_S)
    play.arrivals.expect([WRITER], (), BEGAN_S + 5 + RETURN_S, BEGAN_S + 20)
    assert not play.asks_again()
