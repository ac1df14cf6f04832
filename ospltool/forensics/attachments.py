"""Stores, configurations and recordings beside the traces of a system, and those that a case keeps.

A case keeps a store of any format as a snapshot of all of its sets, and copies of the others; table `stored`
describes them. Unchanged ones are left alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.core.untrusted import JsonFault, json_reader, words_of
from ospltool.analytics.case import (
    CaseError,
    is_case_directory,
    open_case,
    refuse_links,
    replacing,
    writing,
)
from ospltool.analytics.contract import NO_DOMAIN, Table, schema
from ospltool.output import envelope
from ospltool.output.locations import is_remote
from ospltool.output.progress import advance
from ospltool.output.text import plural
from ospltool.stores.model import StoreNotSupported, StoreReader, StoreUnreadable
from ospltool.stores.opening import is_store, open_reader
from ospltool.trace.reading.record import valid_text
from ospltool.trace.reading.sources import MOST_FILES, SourceError, domain_of, named_path

# Heads of all formats and the root element of a configuration are in the first page or two.
SNIFFED_BYTES: Final = 1 << 14

_CONFIGURATION: Final = re.compile(rb"<(?:[A-Za-z]\w*:)?(?:OpenSplice|CycloneDDS)[\s>/]")
_COMMON_NAMES: Final = frozenset({"ospl", "durability", "config", "configuration", "cyclonedds"})
"""File names that every node has, so that only their directories tell the node."""

_RECORDING: Final = re.compile(rb"\ASQLite format 3\0.{52}OSPR", re.DOTALL)
"""As `ospltool.live.recording.is_recording` says, whose import costs more than most traces."""


class AttachmentKind(enum.StrEnum):
    """Kind of an attachment."""

    STORE = "store"
    CONFIGURATION = "configuration"
    RECORDING = "recording"


@dataclasses.dataclass(frozen=True, slots=True)
class Attachment:
    """A store, configuration or recording beside the traces.

    Attributes:
        what: its kind.
        node: node that it belongs to; empty for a recording, which has all nodes.
        path: its place.
        name: path as the user gave it.
        format: original format of a store that a case keeps as a snapshot; empty otherwise.
        damage: (set number, damaged records, first of them) from when the snapshot was made.
        identity: as `identity_of` returned it then.
        unread: why the case does not have the store: it could not be read.
        is_foreign: it could not since it is of a kind that is not read.
        domain: domain of the node.
    """

    what: AttachmentKind
    node: str
    path: Path
    name: str
    format: str = ""
    damage: tuple[tuple[int, int, tuple[str, ...]], ...] = ()
    identity: str = ""
    unread: str = ""
    is_foreign: bool = False
    domain: str = NO_DOMAIN


def find_attachments(names: Iterable[str], nodes: Iterable[str]) -> list[Attachment]:
    """Find stores, configurations and recordings among files and below directories.

    Args:
        names: files, directories, and `NODE=PATH`, which names the node.
        nodes: nodes whose traces are known. A path belongs to the node whose name is part of it.

    Raises:
        SourceError: a directory has too many files, or NODE=PATH lacks one side.
    """
    known = set(nodes)
    found: dict[Path, Attachment] = {}
    for name in names:
        node, path = named_path(name)
        if is_remote(path):
            continue  # their readers need files of this machine
        for what, place in _below(path):
            owner = "" if what is AttachmentKind.RECORDING else node or _owner(place, path, known)
            name_of_place = valid_text(str(place))
            found.setdefault(
                place, Attachment(what, valid_text(owner), place, name_of_place, domain=domain_of(place))
            )
    # By kind, domain and node, as they are listed; directories come in any order.
    return sorted(found.values(), key=lambda one: (one.what, one.domain, one.node, one.name))


def what_is(path: Path) -> AttachmentKind | None:
    """Return the kind of a file or directory; None if it is not an attachment."""
    if is_remote(path):
        return None
    try:
        if is_store(path):
            return AttachmentKind.STORE
        if path.is_dir():
            return None
        with path.open("rb") as stream:
            head = stream.read(SNIFFED_BYTES)
    except OSError:
        return None  # the reader of traces reports it
    if _RECORDING.match(head):
        return AttachmentKind.RECORDING
    return AttachmentKind.CONFIGURATION if path.suffix == ".xml" and _CONFIGURATION.search(head) else None


def _below(path: Path) -> Iterator[tuple[AttachmentKind, Path]]:
    if not path.is_dir():
        what = what_is(path)
        if what is not None:
            yield what, path.parent if what is AttachmentKind.STORE else path
        return
    waiting, count = [path], 0
    while waiting:
        directory = waiting.pop()
        if is_case_directory(directory):
            continue  # attachments of a case were found when it was loaded
        if is_store(directory):
            yield AttachmentKind.STORE, directory
            continue
        for one in sorted(directory.iterdir()):
            count += 1
            advance(1)
            if count > MOST_FILES:
                raise SourceError(f"{path}: more than {MOST_FILES} files; name the directories to look at")
            if one.name.startswith("."):
                continue
            if one.is_dir() and not one.is_symlink():
                waiting.append(one)
            elif one.is_file() and (what := what_is(one)) is not None:
                yield what, one


def _owner(place: Path, given: Path, known: set[str]) -> str:
    """Return the node that is part of a path; else its stem or the name of its directory."""
    own = place.absolute()
    for part in (own.stem, *(parent.name for parent in (own, *own.parents))):
        if valid_text(part) in known:
            return part
    if own.is_file() and own.stem not in _COMMON_NAMES:
        return own.stem
    below = own.relative_to(given.absolute()).parts if own.is_relative_to(given.absolute()) else ()
    return own.parent.name if len(below) > 1 else own.name


DIRECTORY: Final = "attached"
LIST_FILE: Final = "attached.json"


@dataclasses.dataclass(frozen=True, slots=True)
class KeptAttachments:
    """The result of keeping attachments.

    Attributes:
        added: number of new or changed ones.
        unchanged: number of those that were kept before.
        problems: stores and records that could not be read, each with the reason.
        is_whole: nothing that could be read is damaged.
    """

    added: int
    unchanged: int
    problems: tuple[str, ...]
    is_whole: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """What the list of attachments says of one of them."""

    what: AttachmentKind
    node: str
    place: str
    name: str
    format: str = ""
    damage: tuple[tuple[int, int, tuple[str, ...]], ...] = ()
    identity: str = ""
    unread: str = ""
    is_foreign: bool = False
    domain: str = NO_DOMAIN
    rows: tuple[dict[str, Any], ...] = ()
    state: tuple[dict[str, str | int], ...] = ()

    def __post_init__(self) -> None:
        """Refuse a place elsewhere: a case may come from anybody, and what it names is read and shown."""
        if self.place in ("", ".", "..") or not {"/", "\0"}.isdisjoint(self.place):
            raise ValueError(f"{self.place!r} is no name of a file in {DIRECTORY}")


def attach(case: Path, attachments: Sequence[Attachment]) -> KeptAttachments:
    """Put attachments into a case.

    Raises:
        CaseError: the case cannot be written.
    """
    if attachments and (is_remote(case) or not case.is_dir()):
        left = f"{len(attachments)} stores, configurations and recordings"
        return KeptAttachments(0, 0, (f"{left} need a case that is a directory of this machine",), True)
    directory = case / DIRECTORY
    added, unchanged = 0, 0
    problems: list[str] = []
    with writing(case, open_case(case).detail) as writer:
        listed = _listed(case)
        for one in attachments:
            key = f"{one.what}:{one.name}"
            state = _state_of(one.path)
            before = listed.get(key)
            if before is not None and before.state == state:
                unchanged += 1
                problems += _problems_of(before)
                continue
            directory.mkdir(mode=0o700, exist_ok=True)
            named = hashlib.blake2b(f"{key} {state}".encode(), digest_size=6).hexdigest()
            place = directory / f"{one.what}-{named}"  # another one: the list names the former one still
            listed[key] = dataclasses.replace(_kept(one, place), state=state)
            problems += _problems_of(listed[key])
            added += 1
        if added:
            with replacing(directory / LIST_FILE) as written:
                written.write_text(envelope.line("attached", listed), encoding="utf-8")
            _drop_others(directory, {LIST_FILE, *(each.place for each in listed.values())})
        rows = _table([row for _, entry in sorted(listed.items()) for row in entry.rows])
        tables = {**writer.contents.tables, Table.STORED.value: [writer.write(Table.STORED, rows)]}
        if tables != writer.contents.tables:
            writer.commit(dataclasses.replace(writer.contents, tables=tables))
    given = [listed[f"{one.what}:{one.name}"] for one in attachments]
    is_whole = all(one.is_foreign for one in given if one.unread or one.damage)
    return KeptAttachments(added, unchanged, tuple(problems), is_whole)


def _drop_others(directory: Path, listed: set[str]) -> None:
    """Remove what the list does not name: former states, and what a killed command began."""
    for path in directory.iterdir():
        if path.name not in listed:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def kept_in(case: Path) -> tuple[Attachment, ...]:
    """Return the attachments in a case."""
    if is_remote(case) or not case.is_dir():
        return ()
    refuse_links(case)
    directory = case / DIRECTORY
    return tuple(
        Attachment(
            each.what,
            each.node,
            directory / each.place,
            each.name,
            each.format,
            each.damage,
            each.identity,
            each.unread,
            each.is_foreign,
            each.domain,
        )
        for _, each in sorted(_listed(case).items())
    )


_read_list = json_reader(msgspec.defstruct("_ListFile", [("data", dict[str, _Entry])]))


def _listed(case: Path) -> dict[str, _Entry]:
    path = case / DIRECTORY / LIST_FILE
    try:
        listed: dict[str, _Entry] = _read_list(path.read_bytes()).data
    except FileNotFoundError:  # a case without attachments
        return {}
    except (OSError, JsonFault) as cause:
        raise CaseError(f"{path}: {words_of(cause)}") from None
    return listed


def _state_of(path: Path) -> tuple[dict[str, str | int], ...]:
    """Return names, sizes and times of the files, which reveal a change."""
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    states = [(valid_text(str(one.relative_to(path))), one.stat()) for one in files]
    return tuple({"name": name, "size": one.st_size, "changed_ns": one.st_mtime_ns} for name, one in states)


def _kept(one: Attachment, place: Path) -> _Entry:
    entry = _Entry(one.what, one.node, place.name, one.name, domain=one.domain)
    if one.what is not AttachmentKind.STORE:
        target = place.with_name(f"{place.name}{one.path.suffix}")
        shutil.copyfile(one.path, target)
        target.chmod(0o600)
        return dataclasses.replace(entry, place=target.name)
    shutil.rmtree(place, ignore_errors=True)
    try:
        with contextlib.closing(open_reader(one.path)) as reader:
            return _with_snapshot(entry, reader, place)
    except StoreUnreadable as cause:  # analyses of the case are to know that there is such a store
        shutil.rmtree(place, ignore_errors=True)
        is_foreign = isinstance(cause, StoreNotSupported)
        return dataclasses.replace(entry, unread=valid_text(str(cause)), is_foreign=is_foreign)


def _problems_of(entry: _Entry) -> Iterator[str]:
    """Yield what could not be read of a kept attachment."""
    if entry.unread:
        yield f"not kept: {entry.unread}"
    for number, count, first in entry.damage:
        yield f"damaged: {entry.name}: {plural(count, 'record')} of set {number}: {'; '.join(first)}"


def _with_snapshot(entry: _Entry, reader: StoreReader, place: Path) -> _Entry:
    from engine.store.interface import DamageLog
    from ospltool.stores.describe import count_sets
    from ospltool.stores.opening import identity_of
    from ospltool.stores.snapshot import write_snapshot  # these take long, and few cases have stores

    facts = reader.facts
    sets = list(facts.sets)
    write_snapshot(reader, place, sets, DamageLog())
    damage, rows = [], []
    for counted in count_sets(reader):
        if counted.shown_damage:
            damage.append(counted.shown_damage)
        for group, count in counted.groups:
            rows.append(
                {
                    "domain": entry.domain,
                    "node": entry.node,
                    "store": entry.name,
                    "format": facts.format.value,
                    "set_number": counted.facts.number,
                    "name_space": counted.facts.name_space,
                    "kind": counted.facts.kind.value,
                    "complete": counted.facts.complete,
                    "group_name": str(group.name),
                    "type_name": group.name.type_name,
                    "samples": count.samples,
                    "instances": count.instances,
                    "disposed": count.disposed,
                    "damaged": count.damaged,
                    "oldest_ns": count.oldest_ns,
                    "newest_ns": count.newest_ns,
                }
            )
    return dataclasses.replace(
        entry,
        format=facts.format.value,
        damage=tuple(damage),
        identity=identity_of(facts),
        rows=tuple(rows),
    )


def _table(rows: list[dict[str, Any]]) -> Any:
    import pyarrow as pa  # only where tables are written

    try:
        return pa.Table.from_pylist(rows, schema=schema(Table.STORED))
    except Exception as cause:  # of any class: a case may come from anybody
        raise CaseError(f"{DIRECTORY}/{LIST_FILE}: {words_of(cause)}") from None
