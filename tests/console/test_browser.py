from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from ospltool.live.recorder import Recorder
from tests.browser import CHROMIUM, Browser, browser
from tests.console.served import HEIGHT, WIDTH, Tab
from tests.fake import FakeFeed
from tui.serve import ServeError, require_loopback

ROOT = Path(__file__).parents[2]
BACKGROUND = (0x14, 0x17, 0x1A)


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    feed = FakeFeed(3, 2)
    recorder = Recorder(tmp_path / "night.jsonl", source="invented", made_by="test")
    for _ in range(40):
        recorder.write(feed.poll(), feed.now_ns())
    recorder.close()
    return tmp_path / "night.jsonl"


@pytest.fixture
def server(port: int, recording: Path) -> Iterator[str]:
    """The console of a recording, served on a free port."""
    command = [
        sys.executable,
        "-m",
        "ospltool.cli.app",
        "top",
        "--replay",
        str(recording),
        "--serve",
        f"--port={port}",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=recording.parent, env=environment, stdout=subprocess.PIPE)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(urllib.error.URLError):
                urllib.request.urlopen(url, timeout=5).close()
                break
            assert time.monotonic() < deadline, "not served within 30 s"
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.communicate(timeout=20)


def pixels(png: bytes) -> list[tuple[int, int, int]]:
    """The pixels of a PNG with 8 bits for each colour and no interlacing, as browsers write it."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert depth == 8
    step = {2: 3, 6: 4}[kind]
    data, offset = b"", 8
    while offset < len(png):
        length, name = struct.unpack(">I4s", png[offset : offset + 8])
        if name == b"IDAT":
            data += png[offset + 8 : offset + 8 + length]
        offset += length + 12
    raw, row, found = zlib.decompress(data), bytearray(width * step), []
    for y in range(height):
        start = y * (width * step + 1)
        row = _unfiltered(raw[start], raw[start + 1 : start + 1 + width * step], row, step)
        found += [(row[x], row[x + 1], row[x + 2]) for x in range(0, width * step, step)]
    return found


def _unfiltered(kind: int, line: bytes, above: bytearray, step: int) -> bytearray:
    row = bytearray(line)
    for i in range(len(row)):
        left, up = row[i - step] if i >= step else 0, above[i]
        corner = above[i - step] if i >= step else 0
        if kind == 4:
            estimate = left + up - corner
            nearest = min((left, up, corner), key=lambda value: abs(estimate - value))
        else:
            nearest = (0, left, up, (left + up) // 2)[kind]
        row[i] = (row[i] + nearest) & 0xFF
    return row


async def look(url: str, directory: Path) -> bytes | None:
    """The page once the console is drawn; fails when it is not, or when q does not leave it."""
    async with browser(directory) as tab:
        await tab.do("Page.navigate", url=url)
        await when(tab, lambda colours: BACKGROUND in colours and len(colours) > 20)
        picture = await tab.picture(1000, 700)
        await tab.press("q")
        await when(tab, lambda colours: BACKGROUND not in colours)
        return picture


async def when(tab: Browser, holds: Callable[[set[tuple[int, int, int]]], bool]) -> None:
    """Wait until the colours of the corner are as wanted."""
    colours: set[tuple[int, int, int]] = set()
    for _ in range(150):
        picture = await tab.picture()
        colours = set(pixels(picture)) if picture is not None else set()
        if holds(colours):
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"the page never looked as wanted: {sorted(colours)[:20]}")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: no browser to show the console in")
def test_a_browser_shows_the_console_and_its_keys_work(server: str, tmp_path: Path) -> None:
    picture = asyncio.run(look(server, tmp_path / "profile"))
    kept = os.environ.get("OSPLTOOL_BROWSER_PICTURE")
    if kept and picture:
        Path(kept).write_bytes(picture)


def status_of(url: str, **headers: str) -> int:
    request = urllib.request.Request(
        url, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_the_page_has_a_title_takes_keys_and_loads_nothing_from_elsewhere(server: str) -> None:
    with urllib.request.urlopen(server, timeout=10) as answer:
        policy = answer.headers["Content-Security-Policy"]
        page = answer.read().decode()
    (title,) = re.findall("<title>(.*?)</title>", page)
    assert "night.jsonl" in title
    assert "keys.focus()" in page
    host = server.removeprefix("http://")
    loaded = re.findall(r"""\b(?:src|href|url)(?<!websocket-url)\s*[=(]\s*["']?([^"')\s>]+)""", page)
    assert len(loaded) >= 4
    assert [one for one in loaded if not one.startswith((f"{server}/", "data:"))] == []
    assert {one.partition("://")[2] for one in policy.split() if "://" in one} == {
        host,
        host.replace("127.0.0.1", "localhost"),
    }
    for one in loaded:
        if one.startswith("http"):
            assert status_of(one) == 200


async def use_tab(url: str, scenario: Callable[[Tab], Awaitable[None]]) -> None:
    """Open the websocket that the page names, as its script does."""
    async with aiohttp.ClientSession() as session:
        async with session.get(url) as answer:
            (address,) = re.findall('data-session-websocket-url="([^"]+)"', await answer.text())
        async with session.ws_connect(f"{address}?width={WIDTH}&height={HEIGHT}", max_msg_size=0) as socket_:
            await scenario(Tab(socket_))


def test_keys_and_clicks_on_tabs_of_the_page_show_the_screens(server: str) -> None:
    async def scenario(tab: Tab) -> None:
        await tab.wait_for("· overview", "6 groups", "8 store")
        assert {"1000", "1006"} <= tab.modes, "the page reports clicks"
        await tab.press("6")
        await tab.wait_for("· groups")
        await tab.click("8 store")
        await tab.wait_for("· store")
        await tab.press("1")
        await tab.wait_for("· overview")
        await tab.press("q")

    asyncio.run(use_tab(server, scenario))


def test_pages_of_other_sites_get_nothing(server: str) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    assert status_of(server) == 200
    assert status_of(server, Host="evil.example") == 403
    assert status_of(f"{server}/ws", Origin="http://evil.example", **upgrade) == 403


def test_it_listens_on_the_loopback_interface_only(server: str, port: int) -> None:
    listening = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    local = [line.split()[1] for line in listening if line.split()[3] == "0A"]
    assert [one for one in local if one.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "8.8.8.8"])
def test_other_interfaces_are_refused(host: str) -> None:
    with pytest.raises(ServeError, match="other machines"):
        require_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_is_allowed(host: str) -> None:
    require_loopback(host)
