"""A watcher that stood still takes its own silence for that of no node."""

from __future__ import annotations

import pytest

from ospltool.health.health import Health
from ospltool.health.own_pauses import HEARING_S, OwnPauses
from ospltool.health.system import System
from ospltool.live.feed import ReceivedSnapshot, Update
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, ScriptedFeed


class Watch:
    """A watch of three nodes, of which those named are heard at each of its looks."""

    def __init__(self) -> None:
        self.feed = ScriptedFeed([], title="domain 7")
        self.feed.mode = "live"
        self.system = System((self.feed, Health))
        self.system.pauses = OwnPauses(lambda: self.now_s)
        self.now_s = 0.0

    def look(self, *numbers: int) -> list[str]:
        """Hear nodes now; returns the codes of the open incidents."""
        now_ns = START_NS + int(self.now_s * S)
        met = {n: tuple(fake.fellow(other) for other in (1, 2, 3) if other != n) for n in numbers}
        heard = (fake.snapshot(n, fake.name_space("Orders", 1), fellows=met[n]) for n in numbers)
        self.feed.add(now_ns, Update(tuple(ReceivedSnapshot(one, now_ns) for one in heard)))
        self.system.update()
        return sorted(one.code.id for one in self.system.health.open)

    def run(self, seconds: float, *numbers: int) -> list[str]:
        """Look every half second; returns the codes that were told in it."""
        told = []
        for _ in range(int(2 * seconds)):
            self.now_s += 0.5
            told += self.look(*numbers)
        return told


@pytest.mark.parametrize("pause_s", [3.0, 6.0, 3_600.0])
def test_the_silence_of_the_watcher_is_nobodys(pause_s: float) -> None:
    watch = Watch()
    assert watch.run(5, 1, 2, 3) == []
    watch.now_s += pause_s
    assert watch.look() == [], "it has heard nobody since"
    assert watch.run(1, 1, 2) == [], "n3 has not come yet"
    assert watch.run(5, 1, 2, 3) == []
    assert f"did not look for {pause_s + 0.0:.1f} s" in watch.system.pauses.news()
    assert watch.system.pauses.news() == "", "once"


def test_who_died_meanwhile_is_told_when_it_had_time_to_be_heard() -> None:
    watch = Watch()
    watch.run(5, 1, 2, 3)
    watch.now_s += 6
    assert watch.run(HEARING_S - 1, 1, 2) == []
    assert "DUL-NODE-SILENT" in watch.run(3, 1, 2)


def test_a_watcher_that_is_starved_all_the_time_still_tells() -> None:
    watch = Watch()
    watch.run(5, 1, 2, 3)
    told = []
    for _ in range(10):
        watch.now_s += 4
        told += watch.look(1, 2)
    assert "DUL-NODE-SILENT" in told
