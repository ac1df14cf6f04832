"""The pictures of the README, taken from the console while the demo's nodes run.

make screenshots
"""

from __future__ import annotations

import asyncio
import pathlib
import tempfile

from engine.dds.uri import cyclone_uri
from ospltool.demo.acts import ACTS, Stage
from ospltool.live.dds import LiveFeed
from ospltool.views import cells
from ospltool.views.view import Subject
from tui import themes
from tui.app import ConsoleApp

DOMAIN = 198
IMAGES = pathlib.Path(__file__).parent.parent / "docs" / "images"
PICTURES = {
    "overview": ("overview", (120, 40)),
    "overview-small": ("overview", (80, 24)),
    "name-space": ("name-space", (120, 20)),
    "trace": ("trace", (120, 30)),
}
"""Each picture with its screen and its size."""
SHOWN_S = 3.0
"""A screen is shown for so long before its picture is taken: rates need two snapshots of each node."""
ACTS_BEFORE = 2
"""Acts that are played before a picture is taken: the nodes have met, and hold data."""


async def capture(name: str, stage: Stage, feed: LiveFeed) -> None:
    """One picture, once all three nodes are complete; the feed has heard the events."""
    screen, size = PICTURES[name]
    look = themes.choose("ops-dark", no_color=False, term="xterm-256color")
    app = ConsoleApp(feed, title="ospltool", signs=cells.choose("utf-8", ascii_only=False), theme=look)
    async with app.run_test(size=size) as pilot:
        feed.set_caption("A publisher wrote 1000 persistent instances and is gone. Three nodes hold them.")
        await asyncio.to_thread(stage.wait_for, "all are complete and equal", stage.equal)
        app.go(screen, Subject())
        await pilot.pause(SHOWN_S)
        (IMAGES / f"{name}.svg").write_text(app.export_screenshot(), encoding="utf-8")


def main() -> None:
    """Play, and take all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    feed = LiveFeed(DOMAIN, uri=cyclone_uri())
    with tempfile.TemporaryDirectory(prefix="ospltool-pictures-") as directory:
        feeds = {name: LiveFeed(DOMAIN, uri=cyclone_uri()) for name in PICTURES}
        stage = Stage(pathlib.Path(directory), DOMAIN, feed)
        try:
            for act in ACTS[:ACTS_BEFORE]:
                print(act.perform(stage))
            for name in PICTURES:
                asyncio.run(capture(name, stage, feeds[name]))
        finally:
            stage.close()
            for one in (feed, *feeds.values()):
                one.close()


if __name__ == "__main__":
    main()
