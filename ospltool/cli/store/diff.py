"""`ospltool store diff`: compare stores."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Any, Literal

import typer

from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.options import AsJson, EngineName, Force, SparkMaster
from ospltool.cli.store.shared import put_lines, reading, with_cases
from ospltool.output import progress, streams
from ospltool.output.streams import new_bytes
from ospltool.output.text import plural
from ospltool.stores.diff import render
from ospltool.stores.diff.report import Verdict
from ospltool.stores.diff.sides import ComparedPart, DiffError


@dataclasses.dataclass(frozen=True, slots=True)
class ReportOptions:
    """The form of the report."""

    form: Annotated[
        Literal["text", "json", "jsonl", "parquet", "html"],
        typer.Option("--format", help="Set the output format."),
    ] = "text"
    output: Annotated[
        pathlib.Path | None,
        typer.Option(
            "-o", "--output", help="Write parquet or html to this file (html default: standard output)."
        ),
    ] = None
    stat: Annotated[bool, typer.Option("--stat", help="Show bars instead of a table.")] = False
    summary: Annotated[bool, typer.Option("--summary", help="Show only groups, no instances.")] = False
    fields: Annotated[bool, typer.Option("--fields", help="Show the fields that differ.")] = False


@dataclasses.dataclass(frozen=True, slots=True)
class ComparedOptions:
    """What is compared, and how many of the differences are listed."""

    data_only: Annotated[
        bool,
        typer.Option("--data-only", help="Compare only times, keys and content of writes and disposes."),
    ] = False
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="unregistered", help="Ignore unregistrations.")
    ] = None
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=0,
            metavar="N",
            help="List at most N differing instances (default: 100; jsonl and parquet: all).",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, slots=True)
class DiffEngineOptions:
    """The engine that compares, and what it may use."""

    engine: EngineName = "duckdb"
    spark_master: SparkMaster = "local[*]"
    spark_settings: Annotated[
        list[str] | None,
        typer.Option("--spark-setting", metavar="NAME=VALUE", help="Set a setting of Spark; repeatable."),
    ] = None
    memory: Annotated[int, typer.Option("--memory", min=64, metavar="N", help="Use at most about N MiB.")] = (
        1024
    )

    def settings(self) -> dict[str, str]:
        """Return the settings of Spark.

        Raises:
            CommandError: one is not NAME=VALUE.
        """
        pairs = [text.partition("=") for text in self.spark_settings or ()]
        for name, sign, value in pairs:
            if not sign or not name:
                raise CommandError(f"--spark-setting {name + sign + value!r}: write NAME=VALUE")
        return {name: value for name, _, value in pairs}


@reading()
def diff(
    stores: Annotated[
        list[str],
        typer.Argument(
            metavar="STORE|CASE...", help="Compare these stores, or those of a case; PATH@1,2 chooses sets."
        ),
    ],
    *,
    form: ReportOptions,
    compared: ComparedOptions,
    engine: DiffEngineOptions,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Compare stores by group, instance and field, and give the likely cause of each difference.

    Exit codes: 0 no difference, 1 differences or unreadable records, 2 wrong usage or unreadable store.
    """
    from ospltool.stores.diff.compare import DEFAULT_INSTANCES, CompareOptions, compare

    kind = "json" if as_json else form.form
    unknown = sorted(set(compared.ignore or ()) - {ComparedPart.WITHOUT_UNREGISTERED.value})
    if unknown:
        raise CommandError(f"--ignore {unknown[0]!r}: choose unregistered")
    left = ComparedPart.WITHOUT_UNREGISTERED if compared.ignore else ComparedPart.ALL
    if compared.data_only:
        left = ComparedPart.DATA
    if kind == "parquet" and form.output is None:
        raise CommandError("--format parquet needs --output FILE")
    limit = compared.limit
    if limit is None and kind not in {"jsonl", "parquet"}:
        limit = DEFAULT_INSTANCES
    lists_instances = not form.summary and not form.stat
    options = CompareOptions(
        limit if lists_instances else 0,
        form.fields,
        engine.engine,
        engine.spark_master,
        engine.settings(),
        left,
        engine.memory << 20,
    )
    try:
        with progress.shown(f"comparing {len(stores)} stores"):
            report = compare(with_cases(stores), options)
    except DiffError as error:
        raise CommandError(str(error)) from error
    _put_report(report, kind, form, instances=lists_instances, force=force)
    if report.verdict is not Verdict.EQUAL:
        raise typer.Exit(Exit.FINDINGS)


def _put_report(report: Any, kind: str, form: ReportOptions, *, instances: bool, force: bool) -> None:
    file = form.output
    try:
        if kind == "parquet" and file is not None:
            with new_bytes(file, force=force) as stream:
                render.parquet(report, stream)
        elif kind == "html" and file is not None:
            with new_bytes(file, force=force) as stream:
                stream.write(render.page(report).encode())
        elif kind == "html":
            streams.put(render.page(report))
        elif kind == "json":
            streams.put(render.document(report))
        elif kind == "jsonl":
            for line in render.lines(report):
                streams.put(line)
        else:
            put_lines(render.text(report, instances=instances, stat=form.stat))
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from error
    if file is not None:
        streams.notify(
            f"{file}: {plural(report.differing, 'instance differs', 'instances differ')}, "
            f"{report.left_out:,} not listed"
        )
