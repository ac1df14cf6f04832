"""The console in a browser on this machine. Every tab is a separate console that only watches."""

from __future__ import annotations

import ipaddress
import shlex
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aiohttp import web
from textual_serve.server import Server

# Chosen: each process is a whole console.
MAX_CLIENTS: Final = 8
"""Most tabs at one time; each needs a process."""


class ServeError(ValueError):
    """Settings with which the console cannot be served; the text is for the user."""


class ConsoleServer(Server):
    """A server of one command for at most `max_clients` browsers on this machine.

    There is no password: every user of this machine may watch. Pages of other sites cannot: requests must
    name this host, and websockets must come from the served page. The port is one of the loopback interface;
    the title is that of the page.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        port: int,
        title: str,
        host: str = "127.0.0.1",
        max_clients: int = MAX_CLIENTS,
    ) -> None:
        require_loopback(host)
        super().__init__(
            shlex.join(command),
            host=host,
            port=port,
            title=title,
            templates_path=Path(__file__).parent / "page",
        )
        self._allowed = {f"{name}:{port}" for name in (host, "localhost", "127.0.0.1", "[::1]")}
        self._clients = 0
        self._max_clients = max_clients

    async def handle_index(self, request: web.Request) -> web.StreamResponse:
        """Return the page, for requests that name this host."""
        self._require_ours(request)
        page: web.StreamResponse = await super().handle_index(request)
        page.headers["Content-Security-Policy"] = self._policy()
        return page

    def _policy(self) -> str:
        """Return the policy that forbids the page and its scripts to load from other hosts."""
        hosts = sorted(name for name in self._allowed if not name.startswith("["))
        ours = " ".join(f"http://{name} ws://{name}" for name in hosts)
        return f"default-src {ours} 'unsafe-inline' 'unsafe-eval' data: blob:"

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Return one browser; refused when there are too many, or when another site asks."""
        self._require_ours(request)
        origin = request.headers.get("Origin", "")
        if origin and origin.partition("://")[2] not in self._allowed:
            raise web.HTTPForbidden(text="asked for by another site")
        if self._clients >= self._max_clients:
            raise web.HTTPServiceUnavailable(text=f"{self._max_clients} consoles are open already")
        self._clients += 1
        try:
            return await super().handle_websocket(request)
        finally:
            self._clients -= 1

    async def on_startup(self, app: web.Application) -> None:
        """Say where, and how to end."""
        del app
        self.console.print(f"the console is at {self.public_url}; Ctrl+C ends it", highlight=False)

    def _require_ours(self, request: web.Request) -> None:
        if request.host not in self._allowed:
            raise web.HTTPForbidden(text="this is not the host that was asked for")


def require_loopback(host: str) -> None:
    """Refuse every address that others can reach.

    Raises:
        ServeError: the host is not this machine alone.
    """
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise ServeError(f"{host}: {error}") from error
    if not all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found):
        raise ServeError(
            f"{host} can be reached from other machines; the console has no password, serve it on 127.0.0.1"
        )


def serve(command: Sequence[str], *, port: int, title: str) -> None:
    """Serve `command` on a port of the loopback interface until interrupted. The title is that of the page.

    Raises:
        ServeError: the port is taken or out of range.
    """
    if not 1 <= port <= 65535:
        raise ServeError(f"{port} is not a port: write a number from 1 to 65535")
    try:
        with socket.create_server(("127.0.0.1", port)):
            pass
    except OSError as error:
        raise ServeError(f"port {port}: {error.strerror or error}") from error
    ConsoleServer(command, port=port, title=title).serve()
