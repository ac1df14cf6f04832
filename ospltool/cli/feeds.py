"""Open the feed that `top` and `record` watch: a live domain, a recording or a simulation."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Final

from ospltool.cli.exits import CommandError, Exit, not_installed

if TYPE_CHECKING:
    from ospltool.cli.domains import DomainAccess
    from ospltool.live.feed import Feed

DRAWN: Final = "none"
"""The deployment of a simulation whose system is drawn from the seed."""


def recording(path: pathlib.Path, speed: float) -> Feed:
    """Open a recording.

    Raises:
        CommandError: it cannot be read.
    """
    from ospltool.live.recording import RecordingFault
    from ospltool.live.replay import ReplayFeed

    try:
        return ReplayFeed(path, speed=speed)
    except RecordingFault as error:
        raise CommandError(str(error), Exit.USAGE) from error


def simulated(deployment: str, seed: int, faults: str, minutes: float | None, speed: float) -> Feed:
    """Start a run of the simulator; with the deployment `none` the seed decides the system, too.

    Args:
        deployment: a fleet file or configuration, or `none`.
        seed: the run.
        faults: as `ospltool simulate --faults` takes them.
        minutes: simulated time with faults; None draws it from the seed.
        speed: simulated seconds per second.

    Raises:
        CommandError: the faults are not known, or the deployment cannot be simulated.
    """
    from engine.simulator.campaign import Campaign, parse_faults
    from ospltool.cli.simulate import configurations_of
    from ospltool.live.simulated import SimulatedFeed

    drawn = deployment == DRAWN
    try:
        parse_faults(faults)
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error
    configurations = {} if drawn else configurations_of(deployment)
    try:
        options = Campaign(faults, minutes, configurations, deployment).options(seed)
    except ValueError as error:
        raise CommandError(f"{deployment}: {error}", Exit.USAGE) from error
    kinds = ", ".join(options.faults) or "none"
    about = (
        f"Simulated, seed {seed}: {len(options.nodes)} nodes; faults for {options.fault_s:g} s: {kinds}; "
        "then everything heals."
    )
    name = "" if drawn else f" of {pathlib.Path(deployment).name}"
    return SimulatedFeed(options, title=f"simulation{name}, seed {seed}", about=about, speed=speed)


def live(uri: str | None, domain: int | None, partition: str | None) -> Feed:
    """Watch the domain of a configuration or with a number (default: domain 0).

    Args:
        uri: the configuration.
        domain: the number, which overrides that of the configuration.
        partition: the durability partition, if it is not that of the configuration.

    Raises:
        CommandError: the configuration cannot be read, or the domain cannot be opened.
    """
    from ospltool.cli.domains import place_of

    return live_at(place_of(uri, domain), partition)


def live_at(place: DomainAccess, partition: str | None) -> Feed:
    """Watch a domain.

    Raises:
        CommandError: it cannot be opened.
    """
    try:
        from engine.dds.errors import DdsError
        from ospltool.live.dds import LiveFeed
    except ImportError as error:
        raise not_installed("dds", error) from error
    try:
        return LiveFeed(place.domain_id, partition or place.partition, place.settings)
    except DdsError as error:
        raise CommandError(f"domain {place.domain_id} cannot be opened: {error}", Exit.UNREACHABLE) from error
