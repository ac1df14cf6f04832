"""The DDS domains that commands talk to, and the feeds that they watch, with what is expected there."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from engine.capture.configured_uri import interface_fault
from engine.config import ConfigError
from engine.config.fleet import load_fleet
from engine.dds import wheel
from engine.dds.interfaces import known_addresses, unusable_interface
from engine.dds.proofs import DomainSecret, SecretError
from engine.supervisor.rundir import RunDirectory, RunDirectoryError, location
from ospltool.cli.exits import CommandError, Exit, late_interrupt, not_installed
from ospltool.cli.options import LiveTarget, SourceOptions
from ospltool.cli.targets import configurations_of, is_fleet, targets
from ospltool.diagnostics.model import Severity
from ospltool.health.codes import joined
from ospltool.health.health import Health
from ospltool.health.mutes import Mutes, place
from ospltool.health.supervisors import SupervisorWatch
from ospltool.health.system import System
from ospltool.health.verdict import FAILED, STARTING, UNKNOWN, SystemVerdict
from ospltool.live.expectation import NOTHING, Expectation, ExpectedSpace
from ospltool.live.recording import RecordingFault, header_of, is_recording, moment_of
from ospltool.live.replay import ReplayFeed
from ospltool.live.supervision import LocalView
from ospltool.output import streams
from ospltool.output.text import plural

if TYPE_CHECKING:
    from engine.config import Configuration
    from engine.config.fleet import Fleet
    from ospltool.health.system import Source
    from ospltool.live.feed import Feed, TimeTravel
    from ospltool.live.model import SystemModel
    from ospltool.live.recording import RecordingHeader

Domain = Annotated[int | None, typer.Option(min=0, max=230, help="Use this domain instead.")]


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

    def secret(self) -> DomainSecret | None:
        """Return the secret of the domain: of the configuration, else of the environment; None for none.

        Raises:
            CommandError: its file cannot be used.
        """
        path = self.configuration.domain.secret if self.configuration else ""
        try:
            return DomainSecret(path) if path else DomainSecret.of_environment(os.environ)
        except SecretError as fault:
            raise CommandError(f"the secret of domain {self.domain_id}: {fault}") from fault


def place_of(uri: str | None, domain: int | None) -> DomainAccess:
    """Return the domain to talk to: the given number, or that of the configuration.

    Raises:
        CommandError: the configuration cannot be read, or cyclonedds is not installed.
    """
    try:
        from engine.capture.configured_uri import uri_of
        from engine.dds.uri import cyclone_uri
    except ImportError as error:
        raise not_installed("dds", error) from error
    if domain is not None:
        return DomainAccess(domain, cyclone_uri())

    target = targets(uri, os.environ)[0]
    configuration = target.configuration
    # The default configuration is nobody's: its network is used, but no node of it is expected.
    known = configuration if uri else None
    return DomainAccess(configuration.domain.id, uri_of(configuration, target.environ), known)


def require_interface(place: DomainAccess) -> None:
    """Require the network interfaces that the settings of a domain name.

    Raises:
        CommandError: this machine lacks one, or it is down or has no address; the message has file, line and
            column of the setting.
    """
    fault = interface_fault(place.configuration, place.settings)
    if fault:
        raise CommandError(f"domain {place.domain_id} cannot be opened: {fault}", Exit.UNREACHABLE)


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
    require_interface(place)
    try:
        yield
    except (DdsError, UnsupportedCyclone) as error:
        raise CommandError(f"domain {place.domain_id}: {error}", Exit.UNREACHABLE) from error


DRAWN: Final = "none"
"""The deployment of a simulation whose system is drawn from the seed."""


def recording(
    path: pathlib.Path, speed: float, uri: str | None, domain: int | None
) -> tuple[ReplayFeed, Expectation]:
    """Open a recording; return it, and what should be there.

    Args:
        path: the recording.
        speed: seconds of the recording per second.
        uri: a fleet file says what should be there; without one the recording does.
        domain: the domain that the fleet file is asked about; None means that of the recording.

    Raises:
        CommandError: it cannot be read, or the fleet file is wrong.
    """
    try:
        expected = _expected_in(path, header_of(path), uri, domain)
        return ReplayFeed(path, speed=speed, follow=True), expected
    except RecordingFault as error:
        raise CommandError(str(error)) from error


def _expected_in(
    path: pathlib.Path, header: RecordingHeader | None, uri: str | None, domain: int | None
) -> Expectation:
    if not uri or not is_fleet(uri):
        return header.expected if header else NOTHING
    found = watched(uri, domain)
    fit = [one for one in found if domain is not None or header is None or one.title == header.source]
    if fit:
        return fit[0].expected
    numbers = ", ".join(str(one.place.domain_id) for one in found)
    source = header.source if header else "no domain"
    raise CommandError(f"{path} is of {source}, and {uri} has {numbers}; choose with --domain")


def simulated(
    deployment: str, seed: int, faults: str, minutes: float | None, speed: float
) -> tuple[Feed, Expectation]:
    """Start a run of the simulator; return it, and what should be there by a fleet file.

    With the deployment `none` the seed decides the system, too.

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
    from ospltool.live.simulated import SimulatedFeed

    drawn = deployment == DRAWN
    try:
        parse_faults(faults)
    except ValueError as error:
        raise CommandError(str(error)) from error
    configurations = {} if drawn else configurations_of(deployment)
    try:
        options = Campaign(faults, minutes, configurations, deployment).options(seed)
    except ValueError as error:
        raise CommandError(f"{deployment}: {error}") from error
    kinds = ", ".join(options.faults) or "none"
    about = (
        f"Simulated, seed {seed}: {plural(len(options.nodes), 'node')}; "
        f"faults for {options.fault_s:g} s: {kinds}; "
        "then everything heals."
    )
    name = "" if drawn else f" of {pathlib.Path(deployment).name}"
    feed = SimulatedFeed(options, title=f"simulation{name}, seed {seed}", about=about, speed=speed)
    return feed, _expected_of(deployment, configurations)


def _expected_of(deployment: str, configurations: Mapping[str, Configuration]) -> Expectation:
    """Return what a fleet file of one domain says about the simulated nodes, by their names there."""
    if not configurations or not is_fleet(deployment):
        return NOTHING
    found = watched(deployment, None)
    return dataclasses.replace(found[0].expected, nodes=tuple(configurations)) if len(found) == 1 else NOTHING


def live_at(place: DomainAccess, partition: str | None) -> Feed:
    """Watch a domain.

    Raises:
        CommandError: it cannot be opened.
    """
    wheel.import_used_parts_only()  # of the first picture, the whole package would be a quarter
    try:
        from engine.dds.errors import DdsError
        from ospltool.live.dds import LiveFeed
    except ImportError as error:
        raise not_installed("dds", error) from error
    require_interface(place)
    try:
        return LiveFeed(place.domain_id, partition or place.partition, place.settings, place.secret())
    except DdsError as error:
        raise CommandError(f"domain {place.domain_id} cannot be opened: {error}", Exit.UNREACHABLE) from error


# Snapshots come every second or two. Longer makes each `ospltool health` take longer.
LISTEN_S: Final = 3.0
"""Least time to listen to a live domain: every node is heard within it."""
# Above the times after which signs are no longer normal (`health.signs`), but for the longest few.
MOST_S: Final = 8.0
"""Longest time to wait for conditions that may end by themselves, and for nodes that may come."""
# An incident lingers for 2 s (`health.incidents.LINGER_NS`), and then a look must come.
OVER_S: Final = 2.5
"""Time beyond that until an incident ends that is not there any more."""
# As the console polls.
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
        local = self.local_view()
        mutes = Mutes(place(os.environ), self.title)
        return Health(model, self.expected, mutes=mutes, reports=lambda: local().reports, here=local().here)

    def local_view(self) -> Callable[[], LocalView]:
        """Return what tells what this machine knows of the domain beside what is heard."""
        try:
            RunDirectory(location(os.environ))
        except RunDirectoryError as error:
            _say_once(f"{error}; what supervisors know of this machine's nodes is not used")
        supervisors = SupervisorWatch(os.environ, self.place.domain_id)
        here = known_addresses(self.place.settings)
        return lambda: LocalView(supervisors.reports(), here)


@functools.cache
def _say_once(text: str) -> None:
    streams.notify(f"ospltool: {text}")


def opened(one: Watched, partition: str | None) -> System:
    """Open a live domain with its health.

    Raises:
        CommandError: it cannot be opened.
    """
    return System((live_at(one.place, partition), one.health))


def listen(systems: Sequence[System]) -> None:
    """Listen until every node had time to be heard and all conditions are settled; a terminal tells for what.

    What the systems tell then is of one moment, unless an incident comes and goes again and again.
    """
    began = time.monotonic()
    with late_interrupt() as check_interrupt:
        while not _are_heard(systems, time.monotonic() - began):
            check_interrupt()
            time.sleep(POLL_S)
    streams.wait_for("")


def _are_heard(systems: Sequence[System], elapsed: float) -> bool:
    """Update the systems, tell for what they are listened to, and return whether that is over."""
    for one in systems:
        one.update()
    streams.wait_for("; ".join(map(_waits_for, systems)))
    if elapsed >= LISTEN_S and all(one.is_settled() for one in systems):
        return True
    is_of_one_moment = all(one.health.is_of_one_moment for one in systems)
    return elapsed >= (MOST_S if is_of_one_moment else MOST_S + OVER_S)


def _waits_for(one: System) -> str:
    """Tell what a system is listened to for."""
    if one.awaited:
        return f"{one.feed.title}: waiting for {joined(one.awaited)}"
    nodes = len(one.model.nodes)
    heard = f"{plural(nodes, 'node') if nodes else 'no node'} heard"
    why = "listening for others" if one.is_settled() else "waiting whether what is seen lasts"
    return f"{one.feed.title}: {heard}, {why}"


BRIEF_S: Final = 2.0
"""Longest time to listen for a look at nodes: those of this machine are heard in a fraction of it."""
LOOK_S: Final = 0.05
"""Time between two looks whether all are heard."""


def listen_briefly(system: System, endpoints_s: float = 0.0) -> None:
    """Listen until all are heard that the heard nodes communicate with, two seconds at most.

    Args:
        system: what is heard.
        endpoints_s: time in which no reader or writer must have come, either: nobody says how many there are.
    """
    end = time.monotonic() + BRIEF_S
    known, since_s = system.model.applications, time.monotonic()
    with late_interrupt() as check_interrupt:
        while time.monotonic() < end:
            check_interrupt()
            system.update()
            nodes = system.model.nodes
            if system.model.applications is not known:
                known, since_s = system.model.applications, time.monotonic()
            has_all = time.monotonic() - since_s >= endpoints_s
            if has_all and nodes and all(node.fellows.met <= nodes.keys() for node in nodes.values()):
                system.examine()  # an update examines only now and then: the last node may not count yet
                if system.is_settled():
                    return
            time.sleep(LOOK_S)
    system.examine()


def listen_for(system: System, seconds: float) -> None:
    """Listen for a number of seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        system.update()
        time.sleep(min(POLL_S, max(0.0, end - time.monotonic())))


def verdict_code(verdict: SystemVerdict) -> int:
    """Return the exit code for a verdict.

    0, 1 or 2 by severity, 1 while nodes start; 3 for UNKNOWN, 70 for FAILED.
    """
    if verdict.word == FAILED:
        return Exit.FAULT
    if verdict.word == UNKNOWN:
        return Exit.UNREACHABLE
    if verdict.word == STARTING:
        return 1
    return {Severity.ERROR: 2, Severity.WARNING: 1}.get(verdict.worst, 0) if verdict.worst is not None else 0


def require_listening(system: System) -> None:
    """Require that the watch works to the end.

    Raises:
        CommandError: it has failed, so that what was printed may be out of date.
    """
    verdict = system.health.verdict
    if verdict.word == FAILED:
        raise CommandError(f"{system.feed.title}: {verdict.why}. {verdict.next}", Exit.FAULT)


def watched(uri: str | None, domain: int | None) -> list[Watched]:
    """Return the domains that a command line means; with a fleet file and no number, all of the fleet.

    A configuration expects the node that it describes.

    Raises:
        CommandError: a file cannot be read or is wrong, with every problem and its place.
    """
    if uri:
        _refuse_recording(uri)
    if not uri or not is_fleet(uri):
        place = place_of(uri, domain)
        own = (place.configuration.domain.name,) if place.configuration else ()
        return [Watched(place, Expectation(own, is_whole=False) if own else NOTHING)]

    try:
        found = _of_fleet(load_fleet(uri, only_watched=True))
    except ConfigError as error:
        raise CommandError(error.problems) from error
    chosen = [one for one in found if domain in (None, one.place.domain_id)]
    if not chosen:
        raise CommandError(f"{uri} has no node in domain {domain}")
    return chosen


def sources(
    uri: str | None, target: LiveTarget, source: SourceOptions, speed: float = 1.0, *, is_one: bool = False
) -> list[Source]:
    """Open what is shown: a simulation, a recording, or live domains.

    Args:
        uri: a configuration or fleet file, which for a recording says what to expect.
        target: which domain to watch in place of that of the file.
        source: what is shown in place of a live system.
        speed: seconds of a recording or simulation per second.
        is_one: refuse several domains.

    Raises:
        CommandError: it cannot be opened, or there are several domains and `is_one`.
    """
    if source.replay is not None and source.simulate is not None:
        raise CommandError("choose --replay or --simulate, not both")
    if source.simulate is not None:
        feed, expected = simulated(source.simulate, source.seed, source.faults, source.minutes, speed)
    elif source.replay is not None:
        feed, expected = recording(source.replay, speed, uri, target.domain)
    else:
        chosen = watched(uri, target.domain)
        if is_one:
            require_one(chosen)
        return [(live_at(one.place, target.partition), one.health) for one in chosen]
    return [(feed, functools.partial(Health, expected=expected))]


def require_one(found: Sequence[Watched]) -> None:
    """Require a single domain.

    Raises:
        CommandError: there are several.
    """
    if len(found) > 1:
        numbers = ", ".join(str(one.place.domain_id) for one in found)
        raise CommandError(f"the fleet has the domains {numbers}; choose one with --domain")


def recording_at(uri: str | None) -> pathlib.Path | None:
    """Return the path of the recording that is given in the place of a configuration; None if it is none."""
    path = pathlib.Path(uri.removeprefix("file://")) if uri else None
    with contextlib.suppress(OSError):
        if path is not None and path.is_file() and is_recording(path):
            return path
    return None


def _refuse_recording(uri: str) -> None:
    """Refuse a recording in the place of a configuration, with the commands that open it."""
    path = recording_at(uri)
    if path is not None:
        name = shlex.quote(str(path))
        advice = f"`ospltool health {name}` tells its incidents, `ospltool top --replay {name}` shows it"
        raise CommandError(f"{path} is a recording, not a configuration or fleet file; {advice}")


def _of_fleet(fleet: Fleet) -> list[Watched]:
    from engine.capture.configured_uri import uri_of
    from engine.dds.uri import cyclone_uri

    names: dict[int, list[str]] = {}
    places: dict[int, list[DomainAccess]] = {}
    for node in fleet.nodes:
        name, domain_id, place = node.name, node.domain or 0, None
        if node.file:
            configuration = node.configuration(os.environ)
            name = configuration.domain.name
            domain_id = configuration.domain.id if node.domain is None else node.domain
            place = DomainAccess(domain_id, uri_of(configuration, node.environ(os.environ)), configuration)
        names.setdefault(domain_id, []).append(name)
        if place is not None:
            places.setdefault(domain_id, []).append(place)
    return [
        Watched(
            _usable(places.get(domain_id)) or DomainAccess(domain_id, cyclone_uri()),
            Expectation(
                tuple(names[domain_id]),
                tuple(
                    ExpectedSpace(one.name, one.copies, one.on_disk)
                    for one in fleet.name_spaces
                    if one.domain in (None, domain_id)
                ),
                file=fleet.path,
            ),
        )
        for domain_id in sorted(names)
    ]


def _usable(places: Sequence[DomainAccess] | None) -> DomainAccess | None:
    """Return the first of the nodes' ways into a domain whose network interfaces this machine has.

    Without any it is the first of all, and `require_interface` says what is wrong with it.
    """
    here = (one for one in places or () if not any(unusable_interface(one.settings)))
    return next(here, places[0] if places else None)


# Longer than any time after which a missing sign is abnormal: what is found then is no transient.
LAST_NS: Final = 12_000_000_000
STEP_NS: Final = 500_000_000


def wind(system: System, travel: TimeTravel, at: str | None) -> None:
    """Seek to a moment, and play the seconds before it: health takes time to judge.

    Args:
        system: what plays.
        travel: its feed.
        at: the moment, such as +90 or 12:30:05; None for the end.

    Raises:
        CommandError: the text is no moment.
    """
    begin_ns = travel.timeline.begin_ns
    try:
        moment_ns = FAR_NS if at is None else moment_of(at, begin_ns, begin_ns)
    except ValueError as error:
        raise CommandError(str(error)) from error
    travel.pause(paused=True)
    if system.feed.mode == "recorded":
        travel.seek(moment_ns)
        _until_quiet(system)
        return
    near_ns = min(moment_ns, travel.timeline.end_ns)
    for step_ns in (*range(near_ns - LAST_NS, near_ns, STEP_NS), moment_ns):
        if step_ns > begin_ns or step_ns == moment_ns:
            travel.seek(step_ns)
            _until_quiet(system)


FAR_NS: Final = 1 << 62


def _until_quiet(system: System) -> None:
    """Poll until the time no longer changes: a long seek takes several polls."""
    feed, before_ns = system.feed, -1
    while feed.now_ns() != before_ns:
        before_ns = feed.now_ns()
        system.update()
