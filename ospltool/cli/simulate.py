"""`ospltool simulate`: run whole systems with faults in virtual time, and check their rules."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from engine.simulator.campaign import Campaign, parse_faults, summary
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.options import AsJson, Minutes
from ospltool.cli.targets import configurations_of
from ospltool.output import envelope, streams
from ospltool.output.text import visible

if TYPE_CHECKING:
    from engine.simulator.campaign import SeedOutcome


@dataclasses.dataclass(frozen=True, slots=True)
class CampaignOptions:
    """The runs, and what they are drawn from."""

    seed: Annotated[int, typer.Option(min=0, help="Run this seed (with --runs: the first seed).")] = 1
    runs: Annotated[int, typer.Option(min=1, max=1_000_000, metavar="N", help="Run N seeds.")] = 1
    minutes: Minutes = None
    nodes: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=100,
            metavar="N",
            help="Draw a system of N nodes (default: 2 to 5, drawn from the seed).",
        ),
    ] = None
    faults: Annotated[
        str,
        typer.Option(
            help="Inject these faults: any (drawn from the seed), classic (drawn, without faults of "
            "applications), all, none, or a list such as crash,partition."
        ),
    ] = "any"


def simulate(
    deployment: Annotated[
        str | None,
        typer.Argument(
            metavar="DEPLOYMENT",
            help="Simulate this fleet file or configuration (default: a system drawn from the seed).",
        ),
    ] = None,
    *,
    plan: CampaignOptions,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=256, metavar="N", help="Use N processes (default: one per core).")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not print the log of a single run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a whole system: nodes, applications, network, disks and faults, in virtual time.

    The nodes run the code of real nodes, with a simulated clock, network and disk. After the faults, the
    simulator heals everything; then the system must become quiet, and all sets equal. The simulator checks
    its rules all the time: no acknowledged sample is lost, no disposed instance comes back, an epoch has one
    master, no part of a set is called complete, and others. The same seed gives the same run. For a run that
    breaks a rule, the output has the command that replays it.

    Exit codes: 0 all runs are clean, 1 a run broke a rule, 2 wrong usage or configuration.
    """
    try:
        parse_faults(plan.faults)
    except ValueError as error:
        raise CommandError(str(error)) from error
    configurations = configurations_of(deployment) if deployment else {}
    if deployment and plan.nodes:
        raise CommandError("--nodes cannot be used with a deployment, which names its nodes")
    campaign = Campaign(plan.faults, plan.minutes, configurations, deployment or "", plan.nodes)
    try:
        if plan.runs == 1:
            outcome = campaign.run(plan.seed, None if quiet or as_json else _put_line)
            outcomes = [outcome]
            _tell(outcome, as_json=as_json)
        else:
            seeds = range(plan.seed, plan.seed + plan.runs)
            outcomes = _many(campaign, seeds, jobs or os.cpu_count() or 1, as_json=as_json)
    except ValueError as error:
        raise CommandError(f"{deployment}: {error}") from error
    if as_json:
        streams.put(envelope.document("simulation", {"runs": [outcome.to_plain() for outcome in outcomes]}))
    if any(outcome.violation for outcome in outcomes):
        raise typer.Exit(Exit.FINDINGS)


def _many(campaign: Campaign, seeds: range, jobs: int, *, as_json: bool) -> list[SeedOutcome]:
    outcomes: list[SeedOutcome] = []
    started = time.monotonic()
    put = streams.notify if as_json else _put_line
    with contextlib.ExitStack() as at_end:  # also after Ctrl-C: what has been run counts
        at_end.callback(lambda: put(summary(outcomes, jobs, time.monotonic() - started)))
        streams.wait_for(f"0 of {len(seeds)} seeds")
        for outcome in campaign.run_all(seeds, jobs):
            outcomes.append(outcome)
            if outcome.violation:
                _tell(outcome, as_json=as_json)
            streams.wait_for(f"{len(outcomes)} of {len(seeds)} seeds")
    return outcomes


def _tell(outcome: SeedOutcome, *, as_json: bool) -> None:
    put = streams.notify if as_json else _put_line
    if outcome.violation:
        put(f"seed {outcome.seed}: {outcome.violation}")
        put(f"  replay: {outcome.replay}")
    else:
        put(f"seed {outcome.seed}: clean; {outcome.about}")


def _put_line(line: str) -> None:
    streams.put(visible(line) + "\n")
