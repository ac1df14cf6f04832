"""OpenSplice's XML store: a directory of files, one for each group, with its topic beside it.

    <name-space>_complete              the name-space is complete
    <partition>/<topic>.xml            the samples; `.bak` is the back-up
    <partition>/<topic>_meta.xml       the topic; `.bak` likewise

The store does not say to which name-space a group belongs, unless there is only one name-space.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from engine.dataset.sample import Sample
from engine.store.interface import DamageLog
from ospltool.stores import opensplice_values as values
from ospltool.stores.model import (
    COMPLETE_SUFFIX,
    GroupFacts,
    SetFacts,
    SetKind,
    StoreFacts,
    StoreFormat,
    StoreUnreadable,
)
from ospltool.stores.opensplice_values import StoredTopic
from ospltool.stores.types import Undecodable, Value

_META_SUFFIX: Final = "_meta.xml"
_MAX_META_BYTES: Final = 8 << 20
_MAX_FILES: Final = 1_000_000
MOST_IN_MEMORY: Final = 16 << 20
"""Bytes of a file of samples up to which all of it is read at once."""
_NEWEST_VERSION: Final = b"6"
_FIRST_LINE: Final = re.compile(rb'<TOPIC><message version="(\d+)">')
_RECORD: Final = re.compile(rb"<key>(?:(?!\n<key>).)*?</key>\s*(<object>.*?</object>)", re.DOTALL)
_START: Final = b"<key>"
_END: Final = b"</TOPIC>"
BACKUP, CURRENT = 1, 2


def unescape(name: str) -> str:
    """Return the partition or topic from the name of its file: `%046` is a dot, `%020` a blank."""
    if name == "%020":
        return " "
    return re.sub(r"%(\d{3})", lambda found: " " if found[1] == "020" else chr(int(found[1])), name)


class XmlStore:
    """A directory; see `ospltool.stores.model.StoreReader`."""

    def __init__(self, path: Path) -> None:
        """Open the store.

        Raises:
            StoreUnreadable: it is not such a directory.
        """
        self._path = path
        self._findings: list[str] = []
        self._files: dict[int, list[tuple[GroupFacts, StoredTopic | None, Path]]] = {}
        try:
            self.facts = self._describe()
        except OSError as error:
            raise StoreUnreadable(f"{error.filename}: {error.strerror}") from error

    def _describe(self) -> StoreFacts:
        complete = sorted(
            unescape(flag.name.removesuffix(COMPLETE_SUFFIX))
            for flag in self._path.iterdir()
            if flag.name.endswith(COMPLETE_SUFFIX)
        )
        name_space = complete[0] if len(complete) == 1 else ""
        if len(complete) > 1:
            self._findings.append(
                f"the store does not say which groups belong to which of {', '.join(complete)}"
            )
        sets, size = [], 0
        for number, kind, suffix in ((BACKUP, SetKind.BACKUP, ".bak"), (CURRENT, SetKind.CURRENT, "")):
            members, newest_ns = [], None
            for data in self._data_files(suffix):
                facts, topic = self._group(data, suffix)
                members.append((facts, topic, data))
                stat = data.stat()
                size += stat.st_size
                newest_ns = max(newest_ns or 0, stat.st_mtime_ns // 1_000_000_000 * 1_000_000_000)
            if not members and number == BACKUP:
                continue
            self._files[number] = members
            is_complete = bool(complete)
            chosen = kind if is_complete or number == BACKUP else SetKind.FILLING
            groups = tuple(facts for facts, _, _ in members)
            sets.append(SetFacts(number, name_space, chosen, is_complete, newest_ns, groups))
        detail = (("quality", "the newest time of a data file, in whole seconds"),)
        return StoreFacts(str(self._path), StoreFormat.XML, tuple(sets), tuple(self._findings), detail, size)

    def _data_files(self, suffix: str) -> list[Path]:
        """Return the data files with a description beside them; an empty partition lies at the top."""
        wanted = ".bak" if suffix else ".xml"
        found = [path for pattern in (f"*{wanted}", f"*/*{wanted}") for path in self._path.glob(pattern)]
        if len(found) > _MAX_FILES:
            raise StoreUnreadable(f"{self._path}: more than {_MAX_FILES} files")
        return sorted(path for path in found if not path.name.endswith((_META_SUFFIX, f"{_META_SUFFIX}.bak")))

    def _group(self, data: Path, suffix: str) -> tuple[GroupFacts, StoredTopic | None]:
        partition = "" if data.parent == self._path else unescape(data.parent.name)
        stem = data.name.removesuffix(".bak").removesuffix(".xml")
        meta = data.with_name(f"{stem}{_META_SUFFIX}{suffix}")
        if suffix and not meta.exists():
            meta = data.with_name(f"{stem}{_META_SUFFIX}")
        try:
            topic = _read_topic(meta)
        except (Undecodable, OSError) as error:
            problem = f"{meta}: {error}"
            self._findings.append(f"the topic of {data} cannot be read: {problem}")
            return StoredTopic(unescape(stem), "", "", "").facts(partition, problem), None
        return topic.facts(partition, values.problem_of(topic)), topic

    def read(self, number: int, damage: DamageLog) -> Iterator[tuple[GroupFacts, Iterator[Sample]]]:
        """Yield the samples of a set."""
        self.facts.set_of(number)
        for facts, topic, data in self._files[number]:
            if facts.problem or topic is None:
                yield facts, values.unread(facts, damage)
            else:
                yield facts, _samples(data, facts, topic, damage)

    def decode(self, group: GroupFacts, sample: Sample) -> dict[str, Value] | None:
        """Decode the fields of a sample."""
        return values.decode_fields(group, sample)

    def close(self) -> None:
        """Do nothing: no file is open."""


def _read_topic(path: Path) -> StoredTopic:
    if path.stat().st_size > _MAX_META_BYTES:
        raise Undecodable("the description is too large")
    root = values.parse_object(path.read_bytes())
    type_ = root.find("type")
    metadata = ""
    if type_ is not None:
        inner = list(type_)
        metadata = values.text_of(type_) if not inner else values.as_text(inner[0])
    names = [
        values.text_of(found)
        for found in map(root.find, ("name", "typeName", "keyList"))
        if found is not None
    ]
    if len(names) != 3 or not metadata:
        raise Undecodable("it has no name, typeName, keyList or type")
    return values.topic_from_xml(names[0], names[1], names[2], root.find("qos/object"), metadata)


def _samples(path: Path, facts: GroupFacts, topic: StoredTopic, damage: DamageLog) -> Iterator[Sample]:
    """Yield the records of a file; a repeated record is yielded once and counted."""
    place = f"group {facts.name}, file {path.name}"
    try:
        with contextlib.ExitStack() as stack:
            yield from _records(_content(path, stack), place, topic, damage)
    except (OSError, ValueError) as error:  # ValueError: it became empty, and nothing can be mapped
        damage.add(place, f"cannot be read: {error}")


def _content(path: Path, stack: contextlib.ExitStack) -> bytes | mmap.mmap:
    """Return what a file has now.

    Its service may write the file again meanwhile; to read a mapped file beyond its end kills the process.
    So of a large one a copy without a name is mapped, which goes with `stack`.
    """
    file = stack.enter_context(path.open("rb"))
    if os.fstat(file.fileno()).st_size <= MOST_IN_MEMORY:
        return file.read()
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        return stack.enter_context(mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ))


def _records(data: bytes | mmap.mmap, place: str, topic: StoredTopic, damage: DamageLog) -> Iterator[Sample]:
    first = _FIRST_LINE.match(data)
    if first is None or first[1] != _NEWEST_VERSION:
        version = first[1].decode() if first else "none"
        damage.add(place, f"message version {version}; only {_NEWEST_VERSION.decode()} is understood")
        return
    seen: set[bytes] = set()
    at = data.find(_START, first.end())
    number = 0
    while at >= 0:
        number += 1
        record = _RECORD.match(data, at)
        following = data.find(b"\n" + _START, at + 1)
        if record is None or (0 <= following < record.end()):
            damage.add(f"{place}, record {number} at byte {at}", "cut off or overwritten")
            at = following + 1 if following >= 0 else -1
            continue
        try:
            sample = values.decode_xml(record[1], topic)
        except Undecodable as error:
            damage.add(f"{place}, record {number} at byte {at}", str(error))
        else:
            if sample.digest in seen:
                damage.add(f"{place}, record {number} at byte {at}", "stored a second time")
            else:
                seen.add(sample.digest)
                yield sample
        at = data.find(_START, record.end())
    if data.rfind(_END) < len(data) - len(_END) - 8:
        damage.add(place, "the end of the file is missing")
