"""A headless Chromium for tests, where one is installed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """A headless Chromium, spoken to by its debugging protocol."""

    def __init__(self, socket_: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket_
        self._number = 0

    async def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            message = await self._socket.receive_json(timeout=30)
            if message.get("id") == self._number:
                result: dict[str, Any] = message.get("result", {})
                return result

    async def picture(self, width: int = 240, height: int = 120) -> bytes | None:
        """The upper left corner of what is to be seen; None while another page is coming up."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        found = await self.do("Page.captureScreenshot", format="png", clip=clip)
        return base64.b64decode(found["data"]) if found else None

    async def value(self, expression: str) -> Any:
        """The value of an expression in the page, whatever the page itself may run."""
        found = await self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def press(self, text: str) -> None:
        """Press a key; nobody has clicked into the page before."""
        await self.do("Input.dispatchKeyEvent", type="keyDown", text=text, key=text)
        await self.do("Input.dispatchKeyEvent", type="keyUp", key=text)


@contextlib.asynccontextmanager
async def browser(directory: Path) -> AsyncIterator[Browser]:
    """Start a browser with a profile in `directory`, and end it."""
    assert CHROMIUM is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,700"]
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *options,
        "--remote-debugging-port=0",
        f"--user-data-dir={directory}",
        "about:blank",
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        while not (line := await asyncio.wait_for(process.stderr.readline(), 30)).startswith(
            b"DevTools listening"
        ):
            assert line, "the browser did not start"
        address = line.decode().split()[-1].split("/")[2]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{address}/json/list") as answer:
                page = next(one for one in await answer.json() if one["type"] == "page")
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket_:
                tab = Browser(socket_)
                await tab.do("Page.enable")
                yield tab
    finally:
        process.terminate()
        await process.wait()
