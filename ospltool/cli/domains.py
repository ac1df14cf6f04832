"""The DDS domain that a command talks to, given by a configuration or by its number."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ospltool.cli.exits import CommandError, Exit, not_installed

if TYPE_CHECKING:
    from engine.config import Configuration

Uri = Annotated[
    str | None,
    typer.Option("--uri", metavar="URI", envvar="OSPL_URI", help="Use the domain of this configuration."),
]
Domain = Annotated[int | None, typer.Option(min=0, max=230, help="Use this domain instead.")]
Partition = Annotated[
    str | None, typer.Option(help="Set the durability partition of the nodes, if it is not the default.")
]


@dataclasses.dataclass(frozen=True, slots=True)
class DomainAccess:
    """A domain with the Cyclone DDS settings that reach it; `configuration` is None if no file was given."""

    domain_id: int
    settings: str
    configuration: Configuration | None = None

    @property
    def partition(self) -> str:
        """The partition through which its nodes talk to each other."""
        from engine.dds.channel import PARTITION

        return self.configuration.entity_names.partition if self.configuration else PARTITION


def place_of(uri: str | None, domain: int | None) -> DomainAccess:
    """Return the domain to talk to: the given number, else that of the configuration, else 0.

    Raises:
        CommandError: the configuration cannot be read, or cyclonedds is not installed.
    """
    try:
        from engine.capture.uri import uri_of
        from engine.dds.uri import cyclone_uri
    except ImportError as error:
        raise not_installed("dds", error) from error
    if domain is not None or not uri:
        return DomainAccess(domain or 0, cyclone_uri())
    from ospltool.cli.targets import targets

    target = targets(uri, os.environ)[0]
    configuration = target.configuration
    return DomainAccess(configuration.domain.id, uri_of(configuration, target.environ), configuration)


@contextlib.contextmanager
def talking(place: DomainAccess) -> Iterator[None]:
    """Turn DDS errors into command errors while the context lasts.

    Raises:
        CommandError: the domain cannot be opened, or cyclonedds is not installed.
    """
    try:
        from engine.dds.errors import DdsError, UnsupportedCyclone
    except ImportError as error:
        raise not_installed("dds", error) from error
    try:
        yield
    except (DdsError, UnsupportedCyclone) as error:
        raise CommandError(f"domain {place.domain_id}: {error}", Exit.UNREACHABLE) from error
