"""`ospltool store`: what is in durability stores, whether they are sound, and how they differ."""

from __future__ import annotations

import contextlib
import pathlib
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ospltool.cli.exits import CommandError, Exit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ospltool.stores.model import StoreReader

_HELP: Final = """Open durability stores of our nodes and of OpenSplice, and compare them.

A store is the directory of a node's store, of OpenSplice's kv.sqlite, kvmt.sqlite or XML store, or a snapshot
that `store export` made. Stores are only read, except by `import` and `replace`.
"""

Stores = Annotated[list[str], typer.Argument(metavar="STORE...", help="Stores to open.")]
OneStore = Annotated[str, typer.Argument(metavar="STORE", help="The store.")]
Sets = Annotated[
    list[int] | None, typer.Option("--set", metavar="NUMBER", help="Only this set; may be repeated.")
]
Group = Annotated[
    str, typer.Option("--group", metavar="PARTITION.TOPIC", help="Only these groups (* and ?).")
]
Key = Annotated[str, typer.Option("--key", metavar="HEX", help="Only keys that begin so.")]
NameSpace = Annotated[
    str,
    typer.Option("--name-space", metavar="NAME", help="Name-space of the set, where the source has none."),
]
WithoutDamaged = Annotated[
    bool, typer.Option("--without-damaged", help="Go on without the records that can not be read.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Show the answer as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    store = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)
    store.command("info", short_help="Show what is in stores.")(info)
    store.command("ls", short_help="List instances or samples.")(ls)
    store.command("show", short_help="Show samples: metadata, fields, bytes.")(show)
    store.command("verify", short_help="Check that stores are sound.")(verify)
    store.command("export", short_help="Write a snapshot (Parquet) or JSON lines.")(export)
    store.command("import", short_help="Make a store of ours from one of OpenSplice.")(import_)
    store.command("diff", short_help="Compare two or more stores.")(diff)
    store.command("watch", short_help="Show what changes in a store.")(watch)
    store.command("replace", short_help="Put another set in place on a node that is down.")(replace)
    app.add_typer(store, name="store", short_help="Open, verify and compare durability stores.")


def info(stores: Stores, sets: Sets = None, as_json: AsJson = False) -> None:
    """Show what is in stores: sets, completeness, quality, groups, counts, sizes, oldest and newest.

    Exit codes: 0 good, 1 something can not be read, 2 wrong usage or no readable store.
    """
    from ospltool.output import envelope
    from ospltool.stores.describe import count_sets
    from ospltool.stores.listing import info_text, info_value

    values, damaged = [], False
    for name in stores:
        with _opened(name) as reader:
            counted = list(count_sets(reader, sets or ()))
            damaged = damaged or bool(reader.facts.findings) or any(one.damage.count for one in counted)
            if as_json:
                values.append(info_value(reader.facts, counted))
            else:
                _put_lines(info_text(reader.facts, counted))
    if as_json:
        _put(envelope.document("store-info", {"stores": values}))
    if damaged:
        raise typer.Exit(Exit.FINDINGS)


def ls(
    store: OneStore,
    sets: Sets = None,
    group: Group = "",
    key: Key = "",
    samples: Annotated[bool, typer.Option("--samples", help="List samples instead of instances.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many instances.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the instances of a store, or their samples.

    Exit codes: 0 good, 1 something can not be read, 2 wrong usage or no readable store.
    """
    from engine.store.interface import DamageLog
    from ospltool.output import envelope
    from ospltool.stores.describe import Choice, instances
    from ospltool.stores.listing import instance_value, instances_text

    damage = DamageLog()
    with _opened(store) as reader:
        choice = Choice(tuple(sets or ()), group, _hex(key, "--key"))
        found, total = instances(reader, choice, limit, damage)
    if as_json:
        values = [instance_value(one) for one in found]
        _put(envelope.document("store-instances", {"instances": values, "left_out": total - len(found)}))
    else:
        _put_lines(instances_text(found, total, samples=samples))
    _end_with(damage)


def show(
    store: OneStore,
    digest: Annotated[
        str, typer.Argument(metavar="[DIGEST]", help="Beginning of a digest, hexadecimal.")
    ] = "",
    sets: Sets = None,
    group: Group = "",
    key: Key = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many samples.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show samples: metadata, fields where the type is known, and bytes.

    Exit codes: 0 good, 1 something can not be read, 2 wrong usage, no readable store or no such sample.
    """
    from engine.store.interface import DamageLog
    from ospltool.output import envelope
    from ospltool.stores.describe import Choice
    from ospltool.stores.describe import show as shown
    from ospltool.stores.listing import shown_text, shown_value

    damage = DamageLog()
    with _opened(store) as reader:
        choice = Choice(tuple(sets or ()), group, _hex(key, "--key"), _hex(digest, "DIGEST"))
        found = shown(reader, choice, limit, damage)
    if as_json:
        _put(envelope.document("store-samples", {"samples": [shown_value(one) for one in found]}))
    else:
        for one in found:
            _put_lines(shown_text(one))
    _end_with(damage)


def verify(stores: Stores, sets: Sets = None, as_json: AsJson = False) -> None:
    """Check stores: digests, structure, completeness. Everything is read; what is damaged is listed.

    Exit codes: 0 sound, 1 damaged or not complete, 2 wrong usage or no readable store.
    """
    from ospltool.output import envelope
    from ospltool.stores.describe import count_sets, verify_problems
    from ospltool.stores.listing import set_value, verified_text

    values, is_bad = [], False
    for name in stores:
        with _opened(name) as reader:
            findings = list(reader.facts.findings)
            checked = []
            for one in count_sets(reader, sets or ()):
                problems = verify_problems(reader, one)
                is_bad = is_bad or bool(problems) or bool(one.damage.count)
                checked.append({**set_value(one), "problems": problems})
                if not as_json:
                    _put_lines(verified_text(name, one, problems))
            is_bad = is_bad or bool(findings)
            if not as_json:
                _put_lines(_visible(f"{name}: {finding}") for finding in findings)
            values.append({"path": name, "findings": findings, "sets": checked})
    if as_json:
        _put(envelope.document("store-verify", {"sound": not is_bad, "stores": values}))
    if is_bad:
        raise typer.Exit(Exit.FINDINGS)


def export(
    store: OneStore,
    output: Annotated[
        pathlib.Path, typer.Option("-o", "--output", help="A new directory; with --jsonl a new file.")
    ],
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Write JSON lines instead of Parquet.")] = False,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Write a store as a snapshot in Parquet, or as JSON lines with decoded fields.

    Exit codes: 0 good, 1 something can not be read and is left out, 2 wrong usage or no readable store.
    """
    from engine.store.interface import DamageLog
    from ospltool.output import envelope, streams

    damage = DamageLog()
    with _opened(store) as reader:
        facts = reader.facts
        chosen = [facts.set_of(number) for number in sets] if sets else list(facts.sets)
        if jsonl:
            from ospltool.stores.copying import write_lines

            try:
                with output.open("x", encoding="utf-8") as file:
                    count = write_lines(reader, chosen, file, damage)
            except OSError as error:
                raise CommandError(f"{output}: {error.strerror}", Exit.USAGE) from error
        else:
            from ospltool.stores.snapshot import write_snapshot

            count = write_snapshot(reader, output, chosen, damage).samples
    if as_json:
        value = {"output": output, "samples": count, "damaged": damage.count}
        _put(envelope.document("store-export", value))
    else:
        streams.say(f"{output}: {count} samples")
    _end_with(damage)


def import_(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The store to read.")],
    target: Annotated[
        pathlib.Path, typer.Argument(help="Store directory of a node of ours; new or not in use.")
    ],
    sets: Sets = None,
    name_space: NameSpace = "",
    without_damaged: WithoutDamaged = False,
    as_json: AsJson = False,
) -> None:
    """Make the sets of a store those of a node of ours; what was stored is read back and compared.

    Exit codes: 0 good, 1 damaged records were left out, 2 wrong usage, not readable or refused.
    """
    _copy(source, target, sets, name_space, "ospltool store import", without_damaged, as_json)


def replace(
    target: Annotated[pathlib.Path, typer.Argument(help="Store directory of a node of ours that is down.")],
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The store to take the set from.")],
    sets: Sets = None,
    name_space: NameSpace = "",
    without_damaged: WithoutDamaged = False,
    as_json: AsJson = False,
) -> None:
    """Put another set in place on a node that is down: verified, marked, and the old one kept.

    Exit codes: 0 good, 1 damaged records were left out, 2 wrong usage, not readable or refused.
    """
    from ospltool.stores.copying import is_target_free

    if is_target_free(target):
        raise CommandError(f"{target}: there is no store to replace a set of; see `store import`", Exit.USAGE)
    _copy(source, target, sets, name_space, "ospltool store replace", without_damaged, as_json)


def _copy(
    source: str,
    target: pathlib.Path,
    sets: list[int] | None,
    name_space: str,
    mark: str,
    without_damaged: bool,
    as_json: bool,
) -> None:
    from ospltool.output import envelope
    from ospltool.stores.copying import CopyRefused, put_in_place
    from ospltool.stores.listing import copied_text

    with _opened(source) as reader:
        facts = reader.facts
        chosen = [facts.set_of(number) for number in sets] if sets else list(facts.current())
        named = [(name_space or one.name_space, one) for one in chosen]
        if any(not name for name, _ in named) or (name_space and len(named) > 1):
            raise CommandError(
                f"{source}: choose one set with --set and name its name-space with --name-space", Exit.USAGE
            )
        try:
            reports = put_in_place(reader, named, target, mark, tolerate_damage=without_damaged)
        except CopyRefused as error:
            raise CommandError(str(error), Exit.USAGE) from error
    if as_json:
        _put(envelope.document("store-copy", {"sets": reports}))
    else:
        for report in reports:
            _put_lines(copied_text(report))
    if any(report.damage for report in reports):
        raise typer.Exit(Exit.FINDINGS)


def diff(
    stores: Annotated[
        list[str], typer.Argument(metavar="STORE STORE...", help="Stores; PATH@1,2 chooses sets by number.")
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", help="text, json, jsonl, parquet or html.")
    ] = "text",
    file: Annotated[
        pathlib.Path | None, typer.Option("--file", help="Where parquet and html go; html else to stdout.")
    ] = None,
    stat: Annotated[bool, typer.Option("--stat", help="Show bars instead of the table.")] = False,
    summary: Annotated[bool, typer.Option("--summary", help="Show groups only, no instances.")] = False,
    fields: Annotated[bool, typer.Option("--fields", help="Decode what differs, field by field.")] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, help="List so many instances; 100, or all in jsonl and parquet."),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", help="duckdb, merge (little memory) or spark.")
    ] = "duckdb",
    master: Annotated[
        str, typer.Option("--master", help="Of Spark: local[*], spark://... or sc://...")
    ] = "local[*]",
    memory: Annotated[int, typer.Option("--memory", min=64, help="About how many MiB may be used.")] = 1024,
    as_json: AsJson = False,
) -> None:
    """Compare two or more stores: by group, by instance, by field; each difference with its likely cause.

    Exit codes: 0 the same, 1 they differ or something can not be read, 2 wrong usage or no readable store.
    """
    from ospltool.stores.diff.compare import DEFAULT_INSTANCES, ENGINES, Wishes, compare
    from ospltool.stores.diff.contract import DiffError, Limits
    from ospltool.stores.diff.report import Verdict

    kind = "json" if as_json else output
    if kind not in {"text", "json", "jsonl", "parquet", "html"}:
        raise CommandError(f"--output {kind!r}: choose text, json, jsonl, parquet or html", Exit.USAGE)
    if engine not in ENGINES:
        raise CommandError(f"--engine {engine!r}: choose {', '.join(ENGINES)}", Exit.USAGE)
    if kind == "parquet" and file is None:
        raise CommandError("--output parquet needs --file", Exit.USAGE)
    if limit is None:
        limit = None if kind in {"jsonl", "parquet"} else DEFAULT_INSTANCES
    wishes = Wishes(0 if summary or stat else limit, fields, engine, master, Limits(memory << 20))
    with _errors():
        try:
            report = compare(stores, wishes)
        except DiffError as error:
            raise CommandError(str(error), Exit.USAGE) from error
        _put_report(report, kind, file, instances=not summary and not stat, stat=stat)
    if report.verdict is not Verdict.EQUAL:
        raise typer.Exit(Exit.FINDINGS)


def _put_report(report: Any, kind: str, file: pathlib.Path | None, *, instances: bool, stat: bool) -> None:
    from ospltool.output import streams
    from ospltool.stores.diff import page, render

    try:
        if kind == "parquet" and file is not None:
            render.parquet(report, file)
        elif kind == "html" and file is not None:
            file.write_text(page.page(report), encoding="utf-8")
        elif kind == "html":
            _put(page.page(report))
        elif kind == "json":
            _put(render.document(report))
        elif kind == "jsonl":
            for line in render.lines(report):
                _put(line)
        else:
            _put_lines(render.text(report, instances=instances, stat=stat))
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", Exit.USAGE) from error
    if file is not None:
        streams.say(f"{file}: {report.differing} instances differ, {report.left_out} are not listed")


def watch(
    store: OneStore,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")] = 1.0,
    looks: Annotated[
        int | None, typer.Option("--looks", min=1, help="Look so often, then end; for ever by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what changes in a store, group by group, until it is interrupted. --json gives JSON lines.

    Exit codes: 0 ended after --looks, 2 wrong usage or no readable store, 130 interrupted.
    """
    from ospltool.output import envelope
    from ospltool.stores.times import shown
    from ospltool.stores.watching import watch as changes

    with _errors():
        for change in changes(pathlib.Path(store), interval, time.sleep, looks):
            if as_json:
                _put(envelope.line("store-change", change))
                continue
            more = change.samples - change.before
            _put(
                _visible(
                    f"{shown(change.at_ns)}  {change.what:<7}  {change.name_space or '?'} {change.kind}"
                    f" {change.group}  {change.samples} samples ({more:+})"
                )
                + "\n"
            )


@contextlib.contextmanager
def _opened(name: str) -> Iterator[StoreReader]:
    from ospltool.stores.opening import open_reader

    with _errors():
        reader = open_reader(pathlib.Path(name))
        try:
            yield reader
        finally:
            reader.close()


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """What can not be read, or is not installed, as a message and exit code 2."""
    from ospltool.stores.model import StoreUnreadable

    try:
        yield
    except StoreUnreadable as error:
        raise CommandError(str(error), Exit.USAGE) from error
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"duckdb", "numpy", "pyarrow", "pyspark"}:
            raise
        raise CommandError(f"this needs {error.name}: pip install 'ospltool[sql]'", Exit.USAGE) from error


def _end_with(damage: Any) -> None:
    from ospltool.output import streams

    for one in damage.first[:10]:
        streams.say(f"damaged: {one}")
    if damage.count > 10:
        streams.say(f"... and {damage.count - 10} more; `ospltool store verify` lists them")
    if damage.count:
        raise typer.Exit(Exit.FINDINGS)


def _hex(text: str, name: str) -> str:
    if not all(character in "0123456789abcdef" for character in text.lower()):
        raise CommandError(f"{name}: {text!r} is not hexadecimal", Exit.USAGE)
    return text.lower()


def _put(text: str) -> None:
    from ospltool.output import streams

    streams.put(text)


def _put_lines(lines: Iterable[str]) -> None:
    for line in lines:
        _put(f"{line}\n")


def _visible(text: str) -> str:
    from ospltool.output.text import visible

    return visible(text)
