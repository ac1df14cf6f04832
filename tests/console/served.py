"""A tab of the served console without a browser: its websocket, and what the console draws on it."""

from __future__ import annotations

import re
from typing import Final

import aiohttp

WIDTH, HEIGHT = 120, 40
PATIENCE_S: Final = 30.0
_PIECES: Final = re.compile(
    r"\x1b\[([?>=<]?)([0-9;]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.|\r|\n|.", re.DOTALL
)


class Tab:
    """Types and clicks as the page does, and keeps the cells that the console has drawn."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._cells = [[" "] * WIDTH for _ in range(HEIGHT)]
        self._row = self._column = 0
        self.modes: set[str] = set()
        """Private modes of the terminal that the console has set: 1000 reports clicks, 1006 how."""

    @property
    def lines(self) -> list[str]:
        return ["".join(row) for row in self._cells]

    async def wait_for(self, *wanted: str) -> None:
        """Until all of it is to be seen."""
        while not all(one in "\n".join(self.lines) for one in wanted):
            message = await self._socket.receive(PATIENCE_S)
            assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), (wanted, self.lines)
            if message.type is aiohttp.WSMsgType.BINARY:
                self._draw(message.data.decode())

    async def press(self, text: str) -> None:
        await self._socket.send_json(["stdin", text])

    async def click(self, text: str) -> None:
        """Click on the first place where this is to be seen, as terminals report it (SGR 1006)."""
        row, column = next((row, line.index(text)) for row, line in enumerate(self.lines) if text in line)
        for kind in "Mm":
            await self.press(f"\x1b[<0;{column + 1};{row + 1}{kind}")

    def _draw(self, text: str) -> None:
        for piece in _PIECES.finditer(text):
            character = piece[0]
            if piece[3] == "H" and not piece[1]:
                row, _, column = piece[2].partition(";")
                self._row, self._column = int(row or 1) - 1, int(column or 1) - 1
            elif piece[1] == "?" and piece[3] == "h":
                self.modes.update(piece[2].split(";"))
            elif character == "\r":
                self._column = 0
            elif character == "\n":
                self._row, self._column = self._row + 1, 0
            elif character >= " ":
                if self._row < HEIGHT and self._column < WIDTH:
                    self._cells[self._row][self._column] = character
                self._column += 1
