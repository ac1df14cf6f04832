"""Stores, configurations and recordings beside the traces of a system."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ospltool.analytics.case import is_case_directory
from ospltool.stores.opening import is_store
from ospltool.trace.reading.sources import SourceError, named_path

MOST_FILES: Final = 100_000
SNIFFED_BYTES: Final = 1 << 14

_CONFIGURATION: Final = re.compile(rb"<(?:[A-Za-z]\w*:)?(?:OpenSplice|CycloneDDS)[\s>/]")
_COMMON_NAMES: Final = frozenset({"ospl", "durability", "config", "configuration", "cyclonedds"})
"""File names that every node has, so that only their directories tell the node."""

_RECORDING: Final = re.compile(rb'\A\{"format_version": ?\d+, ?"kind": ?"recording"')


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
    """

    what: AttachmentKind
    node: str
    path: Path
    name: str
    format: str = ""
    damage: tuple[tuple[int, int, tuple[str, ...]], ...] = ()


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
        for what, place in _below(path):
            owner = "" if what is AttachmentKind.RECORDING else node or _owner(place, path, known)
            found.setdefault(place, Attachment(what, owner, place, str(place)))
    return sorted(found.values(), key=lambda one: (one.what, one.node, one.name))


def what_is(path: Path) -> AttachmentKind | None:
    """Return the kind of a file or directory; None if it is not an attachment."""
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
        if part in known:
            return part
    if own.is_file() and own.stem not in _COMMON_NAMES:
        return own.stem
    below = own.relative_to(given.absolute()).parts if own.is_relative_to(given.absolute()) else ()
    return own.parent.name if len(below) > 1 else own.name
