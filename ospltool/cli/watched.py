"""The domains that a command watches: one, or all of a fleet file with what is expected there."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ospltool.cli import feeds
from ospltool.cli.domains import DomainAccess, place_of
from ospltool.cli.exits import CommandError, Exit

if TYPE_CHECKING:
    from engine.config import Fleet
    from ospltool.health.expectation import Expectation
    from ospltool.health.health import Health
    from ospltool.health.system import System
    from ospltool.live.model import SystemModel

FleetUri = Annotated[
    str | None,
    typer.Argument(envvar="OSPL_URI", help="Watch the domains of this fleet file (.toml) or configuration."),
]
WatchedDomain = Annotated[int | None, typer.Option(min=0, max=230, help="Watch this domain instead.")]

LISTEN_S: Final = 3.0
"""Least time to listen to a live domain: every node is heard within it."""
MOST_S: Final = 8.0
"""Longest time to wait for conditions that may end by themselves."""
POLL_S: Final = 0.25


@dataclasses.dataclass(frozen=True, slots=True)
class Watched:
    """A domain, and what is expected there."""

    place: DomainAccess
    expected: Expectation

    @property
    def title(self) -> str:
        """The name of the domain for people."""
        return f"domain {self.place.domain_id}"

    def health(self, model: SystemModel) -> Health:
        """Judge the health of a model of this domain, with the mutes and supervisors of this user."""
        from ospltool.health.health import Health
        from ospltool.health.mutes import Mutes, place
        from ospltool.health.supervised import words

        mutes = Mutes(place(os.environ), self.title)
        return Health(
            model, self.expected, mutes=mutes, words=lambda: words(os.environ, self.place.domain_id)
        )


def opened(one: Watched, partition: str | None) -> System:
    """Open a live domain with its health.

    Raises:
        CommandError: it cannot be opened.
    """
    from ospltool.health.system import System

    return System((feeds.live_at(one.place, partition), one.health))


def listen(systems: Sequence[System]) -> None:
    """Listen until every node had time to be heard and all conditions are settled."""
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < MOST_S:
        for one in systems:
            one.update()
        if elapsed >= LISTEN_S and all(one.is_settled() for one in systems):
            return
        time.sleep(POLL_S)


def listen_for(system: System, seconds: float) -> None:
    """Listen for a number of seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        system.update()
        time.sleep(min(POLL_S, max(0.0, end - time.monotonic())))


def watched(uri: str | None, domain: int | None) -> list[Watched]:
    """Return the domains that a command line means; with a fleet file and no number, all of the fleet.

    Raises:
        CommandError: a file cannot be read or is wrong, with every problem and its place.
    """
    from ospltool.cli.targets import is_fleet
    from ospltool.health.expectation import NOTHING

    if not uri or not is_fleet(uri):
        return [Watched(place_of(uri, domain), NOTHING)]
    from engine.config import ConfigError, load_fleet

    try:
        found = _of_fleet(load_fleet(uri, only_watched=True))
    except ConfigError as error:
        raise CommandError(str(error), Exit.USAGE) from error
    chosen = [one for one in found if domain in (None, one.place.domain_id)]
    if not chosen:
        raise CommandError(f"{uri} has no node in domain {domain}", Exit.USAGE)
    return chosen


def _of_fleet(fleet: Fleet) -> list[Watched]:
    from engine.capture.uri import uri_of
    from engine.config import load
    from engine.dds.uri import cyclone_uri
    from ospltool.health.expectation import Expectation, ExpectedSpace

    names: dict[int, list[str]] = {}
    places: dict[int, DomainAccess] = {}
    for node in fleet.nodes:
        name, domain_id, place = node.name, node.domain or 0, None
        if node.file:
            seen = node.environ(os.environ)
            configuration = load(node.file, seen, role=node.role)
            name = configuration.domain.name
            domain_id = configuration.domain.id if node.domain is None else node.domain
            place = DomainAccess(domain_id, uri_of(configuration, seen), configuration)
        names.setdefault(domain_id, []).append(name)
        if place is not None:
            places.setdefault(domain_id, place)
    return [
        Watched(
            places.get(domain_id) or DomainAccess(domain_id, cyclone_uri()),
            Expectation(
                tuple(names[domain_id]),
                tuple(
                    ExpectedSpace(one.name, one.copies, one.on_disk)
                    for one in fleet.name_spaces
                    if one.domain in (None, domain_id)
                ),
            ),
        )
        for domain_id in sorted(names)
    ]
