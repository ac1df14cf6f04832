"""`ospltool metrics`: export the state of a running system for Prometheus."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ospltool.cli import domains, exits
from ospltool.cli.exits import CommandError, not_installed
from ospltool.cli.options import LiveTarget, uri_argument
from ospltool.output import streams

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from ospltool.health.system import System

HOST: Final = "127.0.0.1"


def metrics(
    uri: Annotated[
        str | None,
        uri_argument("Watch the domains of this fleet file (.toml) or configuration."),
    ] = None,
    *,
    target: LiveTarget,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Serve the metrics on this port of 127.0.0.1 until Ctrl+C."),
    ] = None,
) -> None:
    """Export nodes, copies, remaining redundancy, samples and incidents in the text format of Prometheus.

    A fleet file says which nodes, name-spaces and copies to expect. Without --port, the command listens for a
    few seconds, prints the metrics (as the textfile collector of a node exporter wants them) and exits. With
    --port, it also offers OpenMetrics. The figures are those of `ospltool health`; use `health --json` for
    other tools.

    Exit codes: 0 success, 2 wrong usage or not installed, 3 domain not reachable, 70 the watch itself failed.
    """
    try:
        from prometheus_client import generate_latest
    except ImportError as error:
        raise not_installed("metrics", error) from error
    systems: list[System] = []
    try:
        with exits.late_interrupt():
            for one in domains.watched(uri, target.domain):
                systems.append(domains.opened(one, target.partition))  # noqa: PERF401  # those opened are closed
        latest = _Latest(systems)
        if port is None:
            domains.listen(systems)
            latest.refresh()
            streams.put(generate_latest(latest).decode())
            for each in systems:
                domains.require_listening(each)
        else:
            _serve(systems, latest, port)
    finally:
        for each in systems:
            each.feed.close()


class _Latest:
    """The latest metrics. `collect` may run on another thread."""

    def __init__(self, systems: list[System]) -> None:
        self._systems = systems
        self._families: list[Metric] = []

    def refresh(self) -> None:
        """Take the metrics of the systems as they are now."""
        from ospltool.health.prometheus import families

        self._families = families(
            (str(one.feed.title).removeprefix("domain "), one.health, one.feed.now_ns())
            for one in self._systems
        )

    def collect(self) -> Iterable[Metric]:
        """Return the metrics that `look` took."""
        return self._families


def _serve(systems: list[System], latest: _Latest, port: int) -> None:
    """Serve the metrics until interrupted.

    Raises:
        CommandError: the port is taken.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry(auto_describe=False)
    registry.register(latest)
    with exits.interrupt_flag(signal.SIGINT, signal.SIGTERM) as over:
        domains.listen(systems)
        latest.refresh()
        try:
            server, thread = start_http_server(port, addr=HOST, registry=registry)
        except OSError as error:
            raise CommandError(f"port {port} of {HOST}: {error.strerror}") from error
        streams.notify(f"ospltool: metrics on http://{HOST}:{port}/metrics")
        while not over.wait(domains.POLL_S):
            for one in systems:
                one.update()
            latest.refresh()
        server.shutdown()
        server.server_close()
        thread.join()
