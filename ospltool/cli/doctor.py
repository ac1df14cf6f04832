"""`ospltool doctor`: diagnose which readers and writers cannot become consistent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ospltool.cli.domains import place_of, require_interface
from ospltool.cli.exits import CommandError, Exit, not_installed
from ospltool.cli.options import AsJson, LiveTarget, duration, uri_argument
from ospltool.output import envelope, streams
from ospltool.output.text import plural

if TYPE_CHECKING:
    from ospltool.doctor.picture import DomainPicture


def doctor(
    uri: Annotated[
        str | None,
        uri_argument("Diagnose the domain of this configuration."),
    ] = None,
    *,
    target: LiveTarget,
    topic: Annotated[
        str, typer.Option(metavar="PATTERN", help="Check only topics that match PATTERN (* and ?).")
    ] = "*",
    length: float = duration("5s", "Listen for DURATION.", "--for"),
    clock_bound: float = duration("100ms", "Tolerate clock differences up to DURATION."),
    shows_all: Annotated[
        bool,
        typer.Option(
            "--all", help="Include topics of OpenSplice (DCPS..., CM..., d_...) and ROS 2 themselves."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Diagnose which readers and writers of a running system cannot become consistent, and why.

    It listens, and examines the QoS of all writers and readers of applications (reliability, durability,
    destination order, offers that do not satisfy requests), the name-spaces and merge policies of the nodes,
    and their clocks. It changes nothing.

    Exit codes: 0 no findings (other than information), 1 findings or no topic that matches, 2 wrong usage or
    configuration, 3 no participant heard or domain not reachable.
    """
    picture = _listen(uri, target, length, shows_all=shows_all)
    if not picture.participants:
        streams.notify(f"ospltool: no participant heard within {length:g} s")
        raise typer.Exit(Exit.UNREACHABLE)
    from ospltool.doctor.diagnosis import diagnose
    from ospltool.doctor.report import as_data, as_text

    wanted = picture.only(topic)
    diagnosis = diagnose(wanted, round(clock_bound * 1e9))
    if as_json:
        streams.put(envelope.document("doctor", as_data(diagnosis)))
    else:
        streams.put(as_text(diagnosis))
    if picture.refusal:
        streams.notify(
            f"ospltool: the messages of nodes are refused, so nothing is known of them: {picture.refusal}"
        )
    if is_missing := topic != "*" and not wanted.endpoints:
        heard = len({each.topic for each in picture.endpoints})
        streams.notify(f"ospltool: no topic matches {topic!r}: {plural(heard, 'topic')} heard")
    raise typer.Exit(
        Exit.GOOD if diagnosis.is_good and not picture.refusal and not is_missing else Exit.FINDINGS
    )


def _listen(uri: str | None, target: LiveTarget, seconds: float, *, shows_all: bool) -> DomainPicture:
    try:
        from engine.dds.errors import DdsError
        from ospltool.doctor.listening import listen
    except ImportError as error:
        raise not_installed("dds", error) from error
    place = place_of(uri, target.domain)
    require_interface(place)
    try:
        return listen(
            place.domain_id,
            place.settings,
            seconds,
            target.partition or place.partition,
            place.secret(),
            shows_all=shows_all,
        )
    except DdsError as error:
        raise CommandError(f"domain {place.domain_id} cannot be opened: {error}", Exit.UNREACHABLE) from error
