"""The timelines of the specification, as the client library shows them."""

from __future__ import annotations

import pytest

from engine.dataset.sample import Sample
from ospltool.client.cache import CacheEntry, SampleCache
from tests.timelines import DEPTHS, ROWS, Row, fact, shown

KEY = b""
EVERYTHING = 1_000


class Play:
    """A reader's cache that goes through a script; writers are there from their first word on."""

    def __init__(self, depth: int) -> None:
        self.cache = SampleCache(depth)
        self.cache.group_depth(0)
        self.away: set[bytes] = set()

    def run(self, script: str) -> SampleCache:
        for word in script.split():
            self._word(word)
        return self.cache

    def _word(self, word: str) -> None:
        writer = word[0].encode() * 16
        if word in ("take", "read"):
            getattr(self.cache, word)(EVERYTHING)
        elif word[1] in "-~":
            self.away.add(writer)
            self.cache.found(writer)
            self.cache.lost(writer, int(word[2:]), autodispose=word[1] == "-")
        elif word[1] == "+":
            self.away.discard(writer)
            self.cache.found(writer)
            if word[2:]:
                self.cache.add_update([fact(word[0] + word[2:])])
        else:
            self._said(fact(word))

    def _said(self, sample: Sample) -> None:
        """By the writer, or of one that is away by a service."""
        is_away = sample.writer in self.away
        if not is_away:
            self.cache.found(sample.writer)
        self.cache.add([sample], is_historical=is_away)


def timeline(cache: SampleCache) -> str:
    known = cache._instances.get(KEY)
    return shown(known.instance.timeline) if known else ""


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_timeline(row: Row, depth: int) -> None:
    cache = Play(depth).run(row.script)
    assert timeline(cache) == row.timeline(depth)
    state = cache.state_of(KEY)
    assert (state.removeprefix("NOT_ALIVE_") if state else "NONE") == row.state
    assert cache.count == len(row.timeline(depth).split())


def facts_of(look: CacheEntry) -> tuple[str, int, int, int]:
    entry = shown([look.entry])
    return entry, look.sample_rank, look.generation_rank, look.absolute_generation_rank


def test_ranks_count_what_follows_and_generations() -> None:
    cache = Play(0).run("aS1 aS2 a-3 a+")
    assert [facts_of(look) for look in cache.read(4)] == [
        ("S1", 3, 1, 1),
        ("S2", 2, 1, 1),
        ("D3", 1, 1, 1),
        ("S1'", 0, 0, 0),
    ]
    looks = cache.take(2)
    assert [facts_of(look) for look in looks] == [("S1", 1, 0, 1), ("S2", 0, 0, 1)]
    assert [look.view for look in looks] == ["NOT_NEW", "NOT_NEW"]
    assert [look.entry.is_read for look in cache.take(EVERYTHING)] == [True, True, False]


def test_a_generation_is_new_until_it_is_looked_at() -> None:
    play = Play(0)
    views = [
        [look.view for look in play.run(script).take(EVERYTHING)] for script in ("aS1", "aS2", "a-3", "a+")
    ]
    assert views == [["NEW"], ["NOT_NEW"], ["NOT_NEW"], ["NEW", "NEW"]]
