"""`ospltool pipeline`: carry out a plan that loads the traces of a fleet and judges its domains."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ospltool.cli.exits import CommandError
from ospltool.cli.options import CONTEXT, AsJson, command_group
from ospltool.cli.trace import end, errors, needs_analytics
from ospltool.output import envelope, streams
from ospltool.output.locations import LocationError, located
from ospltool.output.text import plural, visible

if TYPE_CHECKING:
    from ospltool.forensics.pipeline import Alert

ALERT_WITHIN_S: Final = 60
"""Seconds for the command that gets the alerts; what is slower is to hand them on."""


def run(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="Carry out this plan in TOML.")],
    *,
    alert: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="Give new alerts to this command, as JSON lines on its input."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Load what is new, judge the domains that it belongs to, and print what is newly wrong as JSON lines.

    A plan names sources, target, engine and window. It may run any number of times: what did not change is
    neither read nor judged again, and nothing is reported twice.

    Exit codes: 0 nothing new is wrong, 1 something is, or a damaged file was read in part, 2 wrong usage, a
    plan that cannot be carried out, or an alert that could not be delivered.
    """
    with needs_analytics():
        from ospltool.forensics import pipeline  # it needs the packages of the extra `sql`
    try:
        chosen = pipeline.read_plan(located(plan))
    except (pipeline.PlanFault, LocationError) as fault:
        raise CommandError(visible(str(fault))) from None
    command = [alert] if alert is not None else list(chosen.alert)

    def deliver(alerts: Sequence[Alert]) -> None:
        lines = "".join(envelope.line("pipeline-alert", one.as_value()) for one in alerts)
        if command:
            _give(command, lines, is_line=alert is not None)
        if not as_json:
            streams.put(lines)

    with errors(), needs_analytics():
        done = pipeline.run(chosen, sys.stderr, deliver)
    records = None if done.loaded is None else done.loaded.total.records
    if as_json:
        value = {
            "case": chosen.target,
            "records": records,
            "judged": list(done.judged),
            "unchanged": done.unchanged,
            "alerts": [one.as_value() for one in done.alerts],
        }
        streams.put(envelope.document("pipeline-run", value))
    for problem in done.problems:
        streams.notify(visible(problem))
    loaded = "" if records is None else f"{plural(records, 'record')}; "
    streams.notify(
        f"{visible(chosen.target)}: {loaded}{plural(len(done.judged), 'domain')} judged, "
        f"{done.unchanged} unchanged; {plural(len(done.alerts), 'new alert')}"
    )
    damages = () if done.loaded is None else done.loaded.total.damages
    end(has_findings=bool(done.alerts), damages=damages)


def _give(command: list[str], lines: str, *, is_line: bool) -> None:
    """Give alerts to a command of the user, which a shell reads if it is a line.

    Raises:
        CommandError: it did not end with 0 in time.
    """
    name = visible(command[0])
    try:
        done = subprocess.run(
            command[0] if is_line else command,
            shell=is_line,
            input=lines.encode(),
            timeout=ALERT_WITHIN_S,
            stdout=sys.stderr,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"alerts were not delivered: {name} took over {ALERT_WITHIN_S} s") from None
    except OSError as cause:
        raise CommandError(f"alerts were not delivered: {name}: {cause.strerror}") from None
    if done.returncode:
        raise CommandError(f"alerts were not delivered: {name} ended with {done.returncode}")


group = command_group(
    "Load the traces of a fleet and judge its domains, as often as wanted.",
    (("run", run, "Carry out a plan."),),
    context_settings=CONTEXT,
)
