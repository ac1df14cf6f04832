"""Opening what `top` and `record` watch: a living domain or a recording."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING

from ospltool.cli.exits import CommandError, Exit

if TYPE_CHECKING:
    from ospltool.live.feed import Feed


def not_installed(extra: str, error: ImportError) -> CommandError:
    """What to say when an optional part is missing."""
    return CommandError(f"{error}; install it with: pip install 'ospltool[{extra}]'", Exit.USAGE)


def recording(path: pathlib.Path, speed: float) -> Feed:
    """A recording, to be played.

    Raises:
        CommandError: it can not be read.
    """
    from ospltool.live.recording import RecordingFault
    from ospltool.live.replay import ReplayFeed

    try:
        return ReplayFeed(path, speed=speed)
    except RecordingFault as error:
        raise CommandError(str(error), Exit.USAGE) from error


def live(uri: str | None, domain: int | None, partition: str | None) -> Feed:
    """The domain of a configuration or with a number; domain 0 without either.

    Raises:
        CommandError: the configuration can not be read, or the domain not be opened.
    """
    try:
        from engine.dds.errors import DdsError
        from ospltool.live.dds import LiveFeed
    except ImportError as error:
        raise not_installed("dds", error) from error
    from engine.dds.channel import PARTITION
    from engine.dds.uri import cyclone_uri
    from engine.node.process import uri_of

    domain_id, wanted_partition, settings = 0, PARTITION, cyclone_uri()
    if domain is not None:
        domain_id = domain
    elif uri:
        from ospltool.cli.targets import targets

        target = targets(uri, os.environ)[0]
        domain_id = target.configuration.domain.id
        wanted_partition = target.configuration.entity_names.partition
        settings = uri_of(target.configuration, target.environ)
    try:
        return LiveFeed(domain_id, partition or wanted_partition, settings)
    except DdsError as error:
        raise CommandError(f"domain {domain_id} can not be opened: {error}", Exit.UNREACHABLE) from error
