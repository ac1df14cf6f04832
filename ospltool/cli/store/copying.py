"""`ospltool store`: the commands that copy sets (`export`, `import`, `replace`, `restore`)."""

from __future__ import annotations

import pathlib
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from engine.store.interface import DamageLog
from engine.store.store_directory import DATABASE
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.options import AsJson, Force
from ospltool.cli.store.shared import (
    NameSpace,
    OneStore,
    Sets,
    WithoutDamaged,
    end_with,
    opened,
    put_lines,
)
from ospltool.output import envelope, progress, streams
from ospltool.output.streams import new_bytes, new_text
from ospltool.output.text import plural, visible
from ospltool.stores.copying import CopyRefused, copied_text, is_target_free, put_in_place, write_lines
from ospltool.stores.copying import restore as take_back
from ospltool.stores.opening import stranger

if TYPE_CHECKING:
    from ospltool.stores.model import SetFacts, StoreReader

IMPORT: Final = "ospltool store import"
REPLACE: Final = "ospltool store replace"


def export(
    store: OneStore,
    output: Annotated[
        pathlib.Path,
        typer.Option("-o", "--output", help="Write this new directory (for jsonl and mcap: this new file)."),
    ],
    form: Annotated[
        Literal["parquet", "jsonl", "mcap"], typer.Option("--format", help="Set the output format.")
    ] = "parquet",
    force: Force = False,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Write a store as a snapshot in Parquet, or as JSON lines or MCAP with decoded fields.

    Exit codes: 0 success, 1 unreadable records were left out, 2 wrong usage or unreadable store.
    """
    damage = DamageLog()
    with opened(store) as reader, progress.shown(f"exporting {store}"):
        facts = reader.facts
        chosen = [facts.set_of(number) for number in sets] if sets else list(facts.sets)
        if form != "parquet":
            count = _write_file(reader, chosen, output, damage, is_mcap=form == "mcap", force=force)
        else:
            from ospltool.stores.snapshot import write_snapshot

            count = write_snapshot(reader, output, chosen, damage).samples
    if as_json:
        value = {"output": output, "samples": count, "damaged": damage.count}
        streams.put(envelope.document("store-export", value))
    else:
        streams.notify(f"{output}: {plural(count, 'sample')}")
    end_with(damage)


def _write_file(
    reader: StoreReader,
    chosen: Sequence[SetFacts],
    output: pathlib.Path,
    damage: DamageLog,
    *,
    is_mcap: bool,
    force: bool,
) -> int:
    """Write sets into a new file; return the number of samples."""
    try:
        if is_mcap:
            from ospltool.stores.mcap_file import write_mcap

            with new_bytes(output, force=force) as stream:
                return write_mcap(reader, chosen, stream, damage)

        with new_text(output, force=force) as file:
            return write_lines(reader, chosen, file, damage)
    except OSError as error:
        raise CommandError(f"{output}: {error.strerror}") from error


def import_(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Read this store.")],
    target: Annotated[
        pathlib.Path,
        typer.Argument(
            metavar="TARGET", help="Write to this store directory of an ospltool node, new or not in use."
        ),
    ],
    sets: Sets = None,
    name_space: NameSpace = "",
    without_damaged: WithoutDamaged = False,
    as_json: AsJson = False,
) -> None:
    """Copy the sets of a store into the store of an ospltool node, read them back and compare.

    Exit codes: 0 success, 1 damaged records were left out, 2 wrong usage, unreadable store or refused.
    """
    _copy(source, target, sets, name_space, IMPORT, without_damaged, as_json)


def replace(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Take the set from this store.")],
    target: Annotated[
        pathlib.Path,
        typer.Argument(
            metavar="TARGET", help="Replace the set of this store directory of a stopped ospltool node."
        ),
    ],
    sets: Sets = None,
    name_space: NameSpace = "",
    without_damaged: WithoutDamaged = False,
    as_json: AsJson = False,
) -> None:
    """Replace the set of a stopped node by a verified copy; the old set becomes a back-up.

    The places have the order of `cp` and of `store import`: first the source, then the node's store.

    Exit codes: 0 success, 1 damaged records were left out, 2 wrong usage, unreadable store or refused.
    """
    _copy(source, target, sets, name_space, REPLACE, without_damaged, as_json)


def restore(
    target: Annotated[
        pathlib.Path,
        typer.Argument(metavar="TARGET", help="Change this store directory of a stopped ospltool node."),
    ],
    number: Annotated[
        int | None,
        typer.Option("--set", metavar="NUMBER", help="Bring this back-up back (default: the newest)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Bring a replaced set of a stopped node back; the present set becomes a back-up.

    Exit codes: 0 success, 2 wrong usage, no such back-up, damaged or refused.
    """
    if is_target_free(target):
        raise CommandError(f"{target}: not an ospltool store")
    try:
        done = take_back(target, number)
    except CopyRefused as error:
        raise CommandError(str(error)) from error
    if as_json:
        streams.put(envelope.document("store-restore", done))
        return
    samples = plural(done.samples, "sample")
    text = f"name-space {done.name_space}: set {done.number} with {samples} is the current one"
    if done.aside is not None:
        text += f"; set {done.aside} with {plural(done.samples_aside, 'sample')} is kept"
    put_lines([visible(text)])


def _refuse_target(source: str, target: pathlib.Path, mark: str, *, is_part: bool) -> None:
    """Refuse a target in which a node's store would be beside another one, or that is the source itself.

    A part of a store may replace the whole: an earlier set, or what is not damaged.

    Raises:
        CommandError: it is such a target.
    """
    if kind := stranger(target):
        places = f"{shlex.quote(str(target))} {shlex.quote(source)}"
        turned = "" if stranger(pathlib.Path(source)) else f", as in `{mark} {places}`"
        text = f"{target}: {kind}, which is not written to; the source comes first{turned}"
        raise CommandError(text)
    where = pathlib.Path(source).resolve()
    if not is_part and target.resolve() in (where, where.parent if where.name == DATABASE else where):
        raise CommandError(f"{target}: source and target are the same store")


def _copy(
    source: str,
    target: pathlib.Path,
    sets: list[int] | None,
    name_space: str,
    mark: str,
    without_damaged: bool,
    as_json: bool,
) -> None:
    _refuse_target(source, target, mark, is_part=bool(sets) or without_damaged)
    with opened(source) as reader:
        if mark == REPLACE and is_target_free(target):
            raise CommandError(f"{target}: no store; make one with `ospltool store import`")
        facts = reader.facts
        chosen = [facts.set_of(number) for number in sets] if sets else list(facts.current())
        named = [(name_space or one.name_space, one) for one in chosen]
        if any(not name for name, _ in named) or (name_space and len(named) > 1):
            raise CommandError(
                f"{source}: choose one set with --set and name its name-space with --name-space"
            )
        try:
            with progress.shown(f"copying {source}"):
                reports = put_in_place(
                    reader,
                    named,
                    target,
                    mark,
                    may_replace=mark == REPLACE,
                    tolerate_damage=without_damaged,
                )
        except CopyRefused as error:
            raise CommandError(str(error)) from error
    if as_json:
        streams.put(envelope.document("store-copy", {"sets": reports}))
    else:
        for report in reports:
            put_lines(copied_text(report))
    if any(report.damage for report in reports):
        raise typer.Exit(Exit.FINDINGS)
