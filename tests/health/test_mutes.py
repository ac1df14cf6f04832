"""Mutes: what they cover, how long, when they lift themselves, and that every watcher knows them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from ospltool.health.export import health
from ospltool.health.health import Health
from ospltool.health.mutes import Mutes, place
from ospltool.live.expectation import Expectation
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id

MINUTE_NS = 60 * S


class Case:
    """Nodes that are heard again and again but for those that are left out, and two watchers of them."""

    def __init__(self, path: Path | None = None) -> None:
        self.model = SystemModel()
        self.path = path
        self.health = self.watcher()
        self.now_ns = START_NS
        self.met = set[int]()

    def watcher(self) -> Health:
        return Health(self.model, mutes=Mutes(self.path, "domain 7"))

    def hear(self, *numbers: int, seconds: float = 3) -> None:
        self.met.update(numbers)
        fellows = tuple(fake.fellow(n) for n in sorted(self.met))
        until_ns = self.now_ns + int(seconds * S)
        while self.now_ns < until_ns:
            self.now_ns = min(self.now_ns + S, until_ns)
            heard = (
                ReceivedSnapshot(fake.snapshot(n, fellows=fellows, time_ns=self.now_ns), self.now_ns)
                for n in numbers
            )
            self.model.apply(Update(tuple(heard)), self.now_ns)
        self.health.update(self.now_ns)

    def check(self, is_open: str, is_muted: str) -> None:
        assert " ".join(one.who for one in self.health.open) == is_open
        assert " ".join(one.who for one in self.health.muted) == is_muted


def test_what_is_muted_is_counted_and_not_told_until_its_time_is_over() -> None:
    case = Case()
    case.hear(1, 2, 3)
    case.hear(1)
    case.check("n2 n3", "")
    case.health.mute("DUL-NODE-SILENT", "n2", MINUTE_NS)
    case.check("n3", "n2")
    verdict = case.health.verdict
    assert (verdict.warnings, verdict.muted) == (1, 1)
    assert verdict.text.startswith("WARNING · 1 warning, 1 muted · ")
    case.hear(1, seconds=57)
    case.check("n3", "n2")
    case.hear(1, seconds=3)
    case.check("n2 n3", "")


def test_a_mute_of_a_code_covers_everybody_who_has_it_now_and_lifts_when_there_are_more() -> None:
    case = Case()
    case.hear(1, 2, 3)
    case.hear(1, 3)
    case.health.mute("DUL-NODE-SILENT", "", MINUTE_NS)
    case.check("", "n2")
    assert case.health.verdict.text.startswith("OK · 1 muted · ")
    case.hear(1)
    case.check("n2 n3", "")


def test_the_mutes_that_stand_are_listed_with_what_they_hide() -> None:
    case = Case()
    case.hear(1, 2, 3)
    case.health.mute("DUL-STORE-FULL", "", MINUTE_NS)
    case.health.mute("DUL-NODE-GONE", "n2", 2 * MINUTE_NS)
    case.hear(1)
    shown = [(one.name, one.until_ns, one.words(hidden)) for one, hidden in case.health.standing_mutes]
    assert shown == [
        ("DUL-STORE-FULL", START_NS + 63 * S, "hides nothing now"),
        ("DUL-NODE-GONE:n2", START_NS + 123 * S, "hides DUL-NODE-SILENT n2"),
    ]
    case.hear(1, seconds=58)
    assert [one.name for one, _ in case.health.standing_mutes] == ["DUL-NODE-GONE:n2"]


def test_what_is_muted_before_it_is_there_is_compared_with_how_it_was_at_first() -> None:
    case = Case()
    case.hear(1, 2, 3)
    case.health.mute("DUL-NODE-SILENT", "", MINUTE_NS)
    case.hear(1, 3)
    case.check("", "n2")
    case.hear(1)
    case.check("n2 n3", "")


def test_a_muted_silent_node_that_is_gone_is_told() -> None:
    case = Case()
    case.hear(1, 2)
    case.hear(1)
    case.health.mute("DUL-NODE-SILENT", "n2", MINUTE_NS)
    case.check("", "n2")
    lost = FeedNotice(NoticeKind.NODE_LOST, case.now_ns, "", node_id(2))
    case.model.apply(Update(notices=(lost,)), case.now_ns)
    case.hear(1)
    case.check("n2", "")


def test_a_node_that_is_muted_as_gone_is_muted_for_who_never_heard_it() -> None:
    case = Case()
    case.health = Health(case.model, Expectation(("n1", "n2")), mutes=Mutes())
    case.hear(1)
    case.hear(1, seconds=5)
    case.check("n2", "")
    case.health.mute("DUL-NODE-GONE", "n2", MINUTE_NS)
    case.check("", "n2")


@pytest.mark.parametrize("who", ["n2", ""])
def test_a_mute_is_lifted_by_the_code_that_is_shown(who: str) -> None:
    case = Case()
    case.health = Health(case.model, Expectation(("n1", "n2")), mutes=Mutes())
    case.hear(1)
    case.hear(1, seconds=5)
    case.health.mute("DUL-NODE-GONE", "n2", MINUTE_NS)
    assert [one.code.id for one in case.health.muted] == ["DUL-NODE-ABSENT"]
    assert not case.health.unmute("DUL-NODE-ABSENT", "n3")
    assert not case.health.unmute("DUL-STORE-FULL", who)
    assert case.health.unmute("DUL-NODE-ABSENT", who)
    case.check("n2", "")


def test_another_watcher_knows_the_mutes_of_this_system_and_a_change_of_them(tmp_path: Path) -> None:
    path = tmp_path / "state" / "mutes.json"
    case = Case(path)
    case.hear(1, 2)
    case.hear(1)
    other = case.watcher()
    case.health.mute("DUL-NODE-SILENT", "n2", MINUTE_NS)
    other.update(case.now_ns)
    assert [one.who for one in other.muted] == ["n2"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    elsewhere = Health(case.model, mutes=Mutes(path, "domain 8"))
    elsewhere.update(case.now_ns)
    elsewhere.mute("DUL-CLOCK-SKEW", "", MINUTE_NS)
    assert elsewhere.muted == []
    assert other.unmute("DUL-NODE-SILENT", "n2")
    assert not other.unmute("DUL-NODE-SILENT", "n2")
    case.hear(1)
    case.check("n2", "")
    assert list(json.loads(path.read_text("utf-8"))) == ["domain 8"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"domain 7": 3}', '{"domain 7": [{"code": 3}]}', "[" * 99_999]
)
def test_a_damaged_file_of_mutes_mutes_nothing_and_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mutes.json"
    path.write_text(text, "utf-8")
    case = Case(path)
    case.hear(1, 2)
    case.hear(1)
    case.check("n2", "")
    case.health.mute("DUL-NODE-SILENT", "n2", MINUTE_NS)
    case.check("", "n2")


def test_mutes_that_cannot_be_written_hold_for_this_watcher_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    case = Case(tmp_path / "file" / "mutes.json")
    case.hear(1, 2)
    case.hear(1)
    case.health.mute("DUL-NODE-SILENT", "n2", MINUTE_NS)
    case.check("", "n2")
    assert "mutes.json: " in case.health.mutes.problem


def test_where_mutes_are() -> None:
    assert place({"XDG_STATE_HOME": "/s"}) == Path("/s/ospltool/mutes.json")
    assert place({}).parts[-4:] == (".local", "state", "ospltool", "mutes.json")


def test_a_mute_that_ends_is_told_once_with_its_reason(tmp_path: Path) -> None:
    case = Case(tmp_path / "mutes.json")
    case.hear(1, 2, 3)
    case.hear(1, 3)
    other = case.watcher()
    other.update(case.now_ns)
    for who, lasts_ns in (("", MINUTE_NS), ("n2", 2 * S), ("n3", MINUTE_NS)):
        case.health.mute("DUL-NODE-SILENT", who, lasts_ns)
    other.update(case.now_ns + S)
    case.hear(1)
    case.health.unmute("DUL-NODE-SILENT", "n3")
    told = [
        "mute of DUL-NODE-SILENT ended: what it hid got worse",
        "mute of DUL-NODE-SILENT:n2 ended: its time is over",
    ]
    assert [one.text for one in case.health.mutes.news()] == told
    assert case.health.mutes.news() == []
    other.update(case.now_ns)
    assert [one.text for one in other.mutes.news()] == [
        *told,
        "mute of DUL-NODE-SILENT:n3 ended: it was lifted",
    ]
    assert health(case.health, case.now_ns)["ended_mutes"] == [
        {"code": "DUL-NODE-SILENT", "who": who, "ended_ns": case.now_ns, "why": why}
        for who, why in (("", "what it hid got worse"), ("n2", "its time is over"))
    ]
