"""The pictures of the README, taken from the console while the demo's nodes run.

make screenshots
"""

from __future__ import annotations

import asyncio
import pathlib
import tempfile

from engine.dds.uri import cyclone_uri
from ospltool.demo.acts import ACTS
from ospltool.demo.stage import Stage
from ospltool.live.dds import LiveFeed
from tui import glyphs, themes
from tui.app import ConsoleApp

DOMAIN = 198
IMAGES = pathlib.Path(__file__).parent.parent / "docs" / "images"
SIZES = {"overview": (120, 30), "overview-small": (80, 24)}
ACTS_BEFORE = 2
"""Acts that are played before a picture is taken: the nodes have met, and hold data."""


async def take(name: str, size: tuple[int, int], stage: Stage, feed: LiveFeed) -> None:
    """One picture of the overview, once it shows all three nodes complete; the feed has heard the events."""
    look = themes.choose("ops-dark", no_color=False, term="xterm-256color")
    app = ConsoleApp(feed, title="ospltool", signs=glyphs.choose("utf-8", ascii_only=False), theme=look)
    async with app.run_test(size=size) as pilot:
        feed.say("A publisher wrote 1000 persistent instances and is gone. Three nodes hold them.")
        await asyncio.to_thread(stage.wait_for, "all are complete and equal", stage.equal)
        await asyncio.to_thread(feed.wait, 2.0)
        await pilot.pause(2.0)
        (IMAGES / f"{name}.svg").write_text(app.export_screenshot(), encoding="utf-8")


def main() -> None:
    """Play, and take all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    feed = LiveFeed(DOMAIN, uri=cyclone_uri())
    with tempfile.TemporaryDirectory(prefix="ospltool-pictures-") as directory:
        feeds = {name: LiveFeed(DOMAIN, uri=cyclone_uri()) for name in SIZES}
        stage = Stage(pathlib.Path(directory), DOMAIN, feed)
        try:
            for act in ACTS[:ACTS_BEFORE]:
                print(act.perform(stage))
            for name, size in SIZES.items():
                asyncio.run(take(name, size, stage, feeds[name]))
        finally:
            stage.close()
            for one in (feed, *feeds.values()):
                one.close()


if __name__ == "__main__":
    main()
