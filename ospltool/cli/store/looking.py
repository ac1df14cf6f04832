"""`ospltool store`: the commands that read (`info`, `backups`, `ls`, `show`, `verify`, `watch`)."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from engine.store.interface import DamageLog
from ospltool.cli.exits import Exit
from ospltool.cli.options import AsJson, duration
from ospltool.cli.store.shared import (
    Group,
    Key,
    OneStore,
    Sets,
    Stores,
    UnreadStores,
    end_with,
    hexadecimal,
    opened,
    put_lines,
    reading,
    with_cases,
)
from ospltool.output import envelope, progress, streams
from ospltool.output.text import plural, visible
from ospltool.stores.describe import SampleSelection, count_sets, instances, verify_problems
from ospltool.stores.describe import show as shown
from ospltool.stores.listing import (
    info_text,
    info_value,
    instance_value,
    instances_text,
    set_value,
    shown_text,
    shown_value,
    verified_text,
)
from ospltool.stores.model import STORE_FILES

if TYPE_CHECKING:
    from ospltool.stores.describe import Counted
    from ospltool.stores.model import StoreFacts


def info(stores: Stores, sets: Sets = None, as_json: AsJson = False) -> None:
    """Show the content of stores: sets, completeness, quality, groups, counts, sizes, oldest and newest.

    Exit codes: 0 success, 1 unreadable records, 2 wrong usage or unreadable store.
    """
    values, damaged, unread = [], False, UnreadStores()
    for name in with_cases(stores, ("store", "recording")):
        with unread.noting(name):
            facts, counted = _counted(name, sets or ())
            damaged = damaged or bool(facts.findings) or any(one.damage.count for one in counted)
            if as_json:
                values.append(info_value(facts, counted))
            else:
                put_lines(info_text(facts, counted))
    if as_json and (values or not unread.reasons):
        streams.put(envelope.document("store-info", {"stores": values}))
    unread.end()
    if damaged:
        raise typer.Exit(Exit.FINDINGS)


def _counted(name: str, numbers: Sequence[int]) -> tuple[StoreFacts, list[Counted]]:
    if pathlib.Path(name).name not in STORE_FILES:
        from ospltool.forensics.recorded_store import recorded

        found = recorded(name)
        if found is not None:
            facts, counted = found
            return facts, [one for one in counted if not numbers or one.facts.number in numbers]
    with opened(name) as reader, progress.shown(f"reading {name}"):
        return reader.facts, list(count_sets(reader, numbers))


def backups(stores: Stores, as_json: AsJson = False) -> None:
    """List the replaced sets that a store keeps: by whom, when and why they were replaced, and their sizes.

    Exit codes: 0 success, 2 wrong usage or unreadable store.
    """
    from ospltool.stores.copying import backups as backups_of
    from ospltool.stores.copying import backups_text

    values = []
    for name in with_cases(stores):
        with opened(name) as reader:
            found = backups_of(reader.facts)
        values.append({"path": name, "backups": found})
        if not as_json:
            put_lines(backups_text(name, found))
    if as_json:
        streams.put(envelope.document("store-backups", {"stores": values}))


def ls(
    store: OneStore,
    sets: Sets = None,
    group: Group = "",
    key: Key = "",
    samples: Annotated[bool, typer.Option("--samples", help="List samples instead of instances.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="List at most N instances.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """List the instances of a store, or their samples.

    Exit codes: 0 success, 1 unreadable records, 2 wrong usage or unreadable store.
    """
    damage = DamageLog()
    with opened(store) as reader:
        choice = SampleSelection(tuple(sets or ()), group, hexadecimal(key, "--key"))
        with progress.shown(f"reading {store}"):
            found, total = instances(reader, choice, limit, damage)
    if as_json:
        values = [instance_value(one) for one in found]
        streams.put(
            envelope.document("store-instances", {"instances": values, "left_out": total - len(found)})
        )
    else:
        put_lines(instances_text(found, total, samples=samples))
    end_with(damage)


def show(
    store: OneStore,
    digest: Annotated[
        str,
        typer.Argument(metavar="DIGEST", help="Show only samples whose digest has this hexadecimal prefix."),
    ] = "",
    sets: Sets = None,
    group: Group = "",
    key: Key = "",
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Show at most N samples.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show samples with metadata, fields (if the type is known) and bytes.

    Exit codes: 0 success, 1 unreadable records, 2 wrong usage, unreadable store or no such sample.
    """
    damage = DamageLog()
    with opened(store) as reader:
        choice = SampleSelection(
            tuple(sets or ()), group, hexadecimal(key, "--key"), hexadecimal(digest, "DIGEST")
        )
        with progress.shown(f"reading {store}"):
            found = shown(reader, choice, limit, damage)
    if as_json:
        streams.put(envelope.document("store-samples", {"samples": [shown_value(one) for one in found]}))
    else:
        for one in found:
            put_lines(shown_text(one))
    end_with(damage)


def verify(stores: Stores, sets: Sets = None, as_json: AsJson = False) -> None:
    """Read whole stores, check digests, structure and completeness, and list damage.

    Exit codes: 0 sound, 1 damaged or incomplete, 2 wrong usage or unreadable store.
    """
    values, is_bad, unread = [], False, UnreadStores()
    for name in with_cases(stores):
        with unread.noting(name), opened(name) as reader:
            findings = list(reader.facts.findings)
            checked = []
            for one in progress.awaited(count_sets(reader, sets or ()), f"verifying {name}"):
                problems = verify_problems(reader, one)
                is_bad = is_bad or bool(problems) or bool(one.damage.count)
                checked.append({**set_value(one), "problems": problems})
                if not as_json:
                    put_lines(verified_text(name, one, problems))
            is_bad = is_bad or bool(findings)
            if not as_json:
                put_lines(visible(f"{name}: {finding}") for finding in findings)
            values.append({"path": name, "findings": findings, "sets": checked})
    if as_json and (values or not unread.reasons):
        values += [{"path": name, "findings": [why], "sets": []} for name, why in unread.reasons.items()]
        is_bad = is_bad or bool(unread.reasons)
        streams.put(envelope.document("store-verify", {"sound": not is_bad, "stores": values}))
    unread.end()
    if is_bad:
        raise typer.Exit(Exit.FINDINGS)


def watch(
    store: OneStore,
    interval: float = duration("1s", "Poll once in DURATION, of at least 100ms."),
    looks: Annotated[
        int | None,
        typer.Option(
            "--looks", min=1, metavar="N", help="Poll N times, then exit (default: until interrupted)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show changes in the groups of a store until interrupted; --json prints JSON lines.

    Exit codes: 0 ended after --looks, 2 wrong usage or unreadable store, 130 interrupted.
    """
    from ospltool.stores.model import shown
    from ospltool.stores.watching import watch as changes

    with reading():
        for change in changes(pathlib.Path(store), max(interval, 0.1), time.sleep, looks):
            if as_json:
                streams.put(envelope.line("store-change", change))
                continue
            more = change.samples - change.before
            streams.put(
                visible(
                    f"{shown(change.at_ns)}  {change.what:<7}  set {change.set_number}:"
                    f" {change.name_space or '?'} {change.kind}"
                    f" {change.group}  {plural(change.samples, 'sample')} ({more:+})"
                )
                + "\n"
            )
