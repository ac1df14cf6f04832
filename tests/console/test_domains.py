"""A fleet with several domains in one console."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from ospltool.cli import domains
from ospltool.cli.domains import watched
from ospltool.health.health import Health
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from tests import fake
from tests.console.conftest import screen_text
from tests.fake import START_NS, ScriptedFeed, node_id
from tests.integration.configurations import Settings
from tests.integration.conftest import own_domain
from tests.integration.lab import Lab
from tui.app import ConsoleApp

Play = Callable[..., None]
PATIENCE_S = 100.0


def domain(number: int, nodes: int, *gone: int) -> ScriptedFeed:
    """A domain; those that are gone were due a moment before the others were heard."""
    heard = tuple(
        ReceivedSnapshot(
            fake.snapshot(
                n,
                fake.name_space(f"Space{number}", 1),
                domain_id=number,
                **({"update_period_ns": 0} if n in gone else {}),
            ),
            START_NS - (n in gone),
        )
        for n in range(1, nodes + 1)
    )
    lost = tuple(FeedNotice(NoticeKind.NODE_LOST, START_NS, "", node_id(n)) for n in gone)
    feed = ScriptedFeed([(START_NS, Update(heard, (), lost))], title=f"domain {number}")
    feed.mode = "live"
    return feed


def test_one_domain_is_shown_and_the_header_says_how_the_others_are(play: Play) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        assert app.feed.title == "domain 8"
        await pilot.press("D")
        header = screen_text(app)[0]
        assert "domain 7" in header
        assert "✖ domain 8: 1 error" in header
        assert "1 OK" in header
        assert any("Space7" in line for line in screen_text(app))
        await pilot.press("d")
        header, *body = screen_text(app)
        assert "domain 8" in header
        assert "2 other OK" in header
        assert any("DUL-NODE-GONE" in line and "n2" in line for line in body)
        await pilot.press("5", "D")
        assert "domain 7" in screen_text(app)[0]
        assert any("nothing is wrong" in line for line in screen_text(app))
        await pilot.press("colon", *"domain 9", "enter")
        assert app.feed.title == "domain 9"
        await pilot.press("1")
        assert any("Space9" in line for line in screen_text(app))
        await pilot.press("colon", *"domain 10", "enter")
        assert any("watched: domain 7, domain 8, domain 9" in line for line in screen_text(app))

    others = tuple((feed, Health) for feed in (domain(8, 2, 2), domain(9, 1)))
    play(domain(7, 1), scenario, size=(120, 40), ticks=2, others=others)


@pytest.mark.parametrize("width", [60, 80])
def test_trouble_elsewhere_is_told_in_a_narrow_terminal_too(play: Play, width: int) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("D")
        assert "✖ domain 8" in screen_text(app)[0]

    play(domain(7, 1), scenario, size=(width, 24), ticks=2, others=((domain(8, 2, 2), Health),))


def test_a_narrow_header_names_the_shown_domain_when_both_are_in_trouble(play: Play) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        header = screen_text(app)[0]
        assert "domain 7" in header
        assert "✖ 1 more" in header or "✖ domain 8" in header

    lost = FeedNotice(NoticeKind.DOMAIN_LOST, START_NS, "", "")
    heard = ReceivedSnapshot(fake.snapshot(1, domain_id=7), START_NS)
    first = ScriptedFeed([(START_NS, Update((heard,), (), (lost,)))], title="domain 7")
    first.mode = "live"
    play(first, scenario, size=(70, 24), ticks=2, others=((domain(8, 2, 2), Health),))


def test_the_console_opens_on_the_domain_in_the_worst_trouble_until_a_key_is_pressed(play: Play) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        assert app.feed.title == "domain 8"
        assert app.systems.verdicts.startswith("domain 8: ERROR · ")
        assert app.systems.verdicts.endswith("; domain 7: OK")
        await pilot.press("d")
        app.tick()
        assert app.feed.title == "domain 7"

    play(domain(7, 1), scenario, size=(80, 24), ticks=2, others=((domain(8, 2, 2), Health),))


def test_with_one_domain_there_is_nothing_to_turn_to(play: Play) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("d")
        assert app.feed.title == "domain 7"
        await pilot.press("question_mark")
        assert not any("next domain" in line for line in screen_text(app))

    play(domain(7, 1), scenario, size=(120, 40))


@pytest.fixture
def labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Lab]]:
    """Two domains with the same settings, as one watcher reaches them."""
    (first, tag), (second, _) = own_domain(), own_domain()
    made = [Lab(tmp_path / str(number), number, tag) for number in (first, second)]
    monkeypatch.setenv("CYCLONEDDS_URI", made[0].uri)
    yield made
    for lab in made:
        lab.close()


@pytest.mark.dds
@pytest.mark.timeout(400)
def test_two_real_domains_of_one_fleet(labs: list[Lab], tmp_path: Path) -> None:
    text = ""
    for lab, names in zip(labs, (("n1", "n2", "n3"), ("a1", "a2", "a3")), strict=True):
        for name, priority in zip(names, (200, 100, 50), strict=True):
            lab.configure(name, Settings().with_priority(priority))
            text += f'[[node]]\nname = "{name}"\ndomain = {lab.domain}\n\n'
        lab.start(*names)
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(text)
    chosen = sorted(watched(str(fleet), None), key=lambda one: one.place.domain_id != labs[0].domain)
    (feed, health), *others = [(domains.live_at(one.place, None), one.health) for one in chosen]

    async def scenario() -> None:
        app = ConsoleApp(feed, title="ospltool", watch_health=health, others=others)
        async with app.run_test(size=(120, 40)) as pilot:

            async def see(what: str) -> None:
                end = time.monotonic() + PATIENCE_S
                while not any(what in line for line in screen_text(app)):
                    assert time.monotonic() < end, (what, screen_text(app))
                    await pilot.pause(0.1)

            await see("3 of 3 nodes complete")
            await see("1 other OK")
            await pilot.press("1")  # a user who works in a domain is not taken to the one in trouble
            labs[1].kill("a2")
            await see(f"✖ domain {labs[1].domain}: 1 error")
            await see("3 of 3 nodes complete")
            await pilot.press("d")
            await see("DUL-NODE-GONE")
            await see("2 of 3 nodes complete")
            labs[1].start("a2")
            await see("3 of 3 nodes complete")

    asyncio.run(scenario())
    for one in (feed, *(other for other, _ in others)):
        one.close()
