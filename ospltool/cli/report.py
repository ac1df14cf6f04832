"""`ospltool report`: write an incident report as one HTML file."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from typing import Annotated

import typer

from engine.tracing.version import product_version
from ospltool.cli.exits import CommandError
from ospltool.cli.options import AsJson, Force
from ospltool.cli.trace import EngineOptions, Inputs, Skew, WindowOptions, end
from ospltool.output import envelope, progress, streams
from ospltool.output.streams import new_text


def report(
    names: Inputs = None,
    *,
    output: Annotated[
        pathlib.Path, typer.Option("-o", "--output", help="Write the report to this file.")
    ] = pathlib.Path("report.html"),
    skew: Skew = None,
    window: WindowOptions,
    case: EngineOptions,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write an incident report about a case or files: one HTML file that needs no script and no network.

    The report has the verdict, the stories with times, a picture of the decisive alignment, a time line of
    nodes and masters, the sizes of sets as curves, the findings from stores and configurations, and what is
    unknown.

    Exit codes: 0 nothing found, 1 anomalies or a damaged file, 2 wrong usage or unreadable input.
    """
    with case.evidence(names) as evidence:
        from ospltool.forensics import text
        from ospltool.forensics.investigation import configured, investigate

        found = investigate(evidence, window.resolved(evidence), evidence.skews(skew or ()))
        with progress.shown("checking the configurations", unit=""):
            configurations, problems = configured(evidence.attachments)
        if problems:
            unknown = (*found.verdict.unknown, *problems)
            found = dataclasses.replace(found, verdict=dataclasses.replace(found.verdict, unknown=unknown))
    if as_json:
        streams.put(envelope.document("report", text.as_value(found)))
    else:
        from ospltool.forensics.page import About, page

        about = About(
            tuple(names or ()), evidence.nodes, evidence.attachments, configurations,
            f"ospltool {product_version()}, {' '.join(['ospltool', *sys.argv[1:]])}",
        )  # fmt: skip
        with progress.shown("drawing the report", unit=""):
            text_of_page = page(found, about)
        try:
            with new_text(output, force=force) as stream:
                stream.write(text_of_page)
        except OSError as error:
            raise CommandError(f"{output}: {error.strerror}") from error
        streams.notify(f"{output}: {found.verdict.headline}")
    end(has_findings=found.is_bad)
