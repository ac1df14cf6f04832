"""What writers were promised against what nodes keep and late readers see.

Nothing of the product is used here: stores are read with sqlite3, by their tables; samples are decoded from
CDR by the layout of `chaos.Entry` (two 32-bit numbers and a text, little-endian); what must be there follows
from the records of the writers (see `chaos.programs`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import sqlite3
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_DATA: Final = 4
_DISPOSE: Final = 1
_NEVER: Final = (0, "")
_GROUPS: Final = """
SELECT g.topic, g.id FROM sample_group AS g JOIN set_version AS v USING (version)
WHERE v.state = 'complete'"""
_SAMPLES: Final = "SELECT source_time_ns, writer, status, payload FROM sample WHERE sample_group = ?"
"""Group by group: what a back-up of a damaged set holds is not looked at."""


class Write(NamedTuple):
    """One write or dispose, as a writer noted it before it was made; a dispose has no value on the wire."""

    topic: str
    station: int
    time_ns: int
    writer: str
    disposes: bool
    value: int
    size: int


class Held(NamedTuple):
    """One write or dispose, as a store holds it; `text` is empty for a dispose."""

    topic: str
    station: int
    time_ns: int
    writer: str
    disposes: bool
    value: int
    text: str


@dataclasses.dataclass
class Confirmed:
    """A write that was confirmed by these nodes.

    The last of them acknowledged it between `since_ns`, when its batch began, and `wall_ns`, when a busy
    writer noticed (wall clocks).
    """

    write: Write
    nodes: tuple[str, ...]
    since_ns: int
    wall_ns: int


@dataclasses.dataclass
class Records:
    """What all writers attempted, in order, and what of it was confirmed."""

    attempted: dict[tuple[str, str, int], Write]
    confirmed: list[Confirmed]


def read_records(paths: Iterable[Path]) -> Records:
    """The records of all writers. The last line of a writer that was killed may be half a line."""
    records = Records({}, [])
    for path in paths:
        waiting: dict[tuple[str, str], list[Write]] = {}
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if not line.endswith("\n"):
                break
            kind, topic, writer, *rest = line.split()
            if kind == "a":
                operation, time_ns, station, value, size = rest
                write = Write(
                    topic, int(station), int(time_ns), writer, operation == "d", int(value), int(size)
                )
                records.attempted[topic, writer, write.time_ns] = write
                waiting.setdefault((topic, writer), []).append(write)
            else:
                first_ns, last_ns, since_ns, wall_ns, nodes = rest
                for write in waiting.pop((topic, writer), ()):
                    if int(first_ns) <= write.time_ns <= int(last_ns):
                        by = tuple(nodes.split(","))
                        records.confirmed.append(Confirmed(write, by, int(since_ns), int(wall_ns)))
    return records


# Stores.


def decode(status: int, payload: bytes) -> tuple[int, int, str]:
    """Station, value and text of a payload; value 0 and no text where there is only a key.

    Raises:
        ValueError: it is no CDR of an entry.
    """
    try:
        if payload[1] not in (0x01, 0x07):  # little-endian, plain, of either version
            raise ValueError(f"encapsulation {payload[:4].hex()}")
        if not status & _DATA:
            return struct.unpack_from("<i", payload, 4)[0], 0, ""
        station, value, length = struct.unpack_from("<iiI", payload, 4)
        text = payload[16 : 16 + length]
        if len(text) != length or text[-1:] != b"\0" or len(payload) - 16 - length > 3:
            raise ValueError("a text of another length")
        return station, value, text[:-1].decode()
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error


@contextlib.contextmanager
def _opened(directory: Path, *, living: bool) -> Iterator[sqlite3.Connection]:
    """A store of a living node is read where it is; that of a dead one as a copy, with its log."""
    path = directory / "store.sqlite"
    if living:
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=10)
        ) as db:
            yield db
        return
    with tempfile.TemporaryDirectory(prefix="chaos-store-") as copy:
        for name in (path.name, f"{path.name}-wal"):
            if (directory / name).exists():
                shutil.copyfile(directory / name, Path(copy) / name)
        with contextlib.closing(sqlite3.connect(Path(copy) / path.name)) as db:
            yield db


def read_store(directory: Path, *, living: bool = True) -> list[Held]:
    """Everything in the complete sets of a store; nothing for a store that is not there.

    Raises:
        sqlite3.Error: it cannot be read.
        ValueError: a payload is no entry.
    """
    if not (directory / "store.sqlite").exists():
        return []
    with _opened(directory, living=living) as db:
        groups = db.execute(_GROUPS).fetchall()
        rows = [(topic, *row) for topic, group in groups for row in db.execute(_SAMPLES, (group,))]
    held = []
    for topic, time_ns, writer, status, payload in rows:
        if status & (_DATA | _DISPOSE):  # what only unregisters changes no data
            station, value, text = decode(status, payload)
            disposes = bool(status & _DISPOSE)
            held.append(Held(topic, station, time_ns, bytes(writer).hex(), disposes, value, text))
    return held


def places(held: Iterable[Held]) -> set[tuple[str, str, int]]:
    """Which writes these are."""
    return {(one.topic, one.writer, one.time_ns) for one in held}


# Laws.


def expected_text(write: Write) -> str:
    """The text that `chaos.entry_type.text_of` gave this write."""
    begin = f"{write.topic} {write.station} {write.value} "
    return begin + "x" * (write.size - len(begin))


def untrue(held: Iterable[Held], records: Records) -> list[str]:
    """Samples of a store that nobody wrote, that are not what was written, or that are there twice."""
    found, seen = [], set()
    for one in held:
        place = (one.topic, one.writer, one.time_ns)
        write = records.attempted.get(place)
        if "Ending" in one.topic and one.disposes and write is None:
            continue  # nodes dispose what a writer that has ended with autodispose wrote, in one go
        if write is None:
            found.append(f"invented: {one}")
        elif (write.station, write.disposes) != (one.station, one.disposes) or (
            not one.disposes and (write.value, expected_text(write)) != (one.value, one.text)
        ):
            found.append(f"altered: {one} was {write}")
        if place in seen:
            found.append(f"twice: {one}")
        seen.add(place)
    return found


def order(write: Write | Held) -> tuple[int, str]:
    """The order of the samples of an instance: source time, then writer."""
    return write.time_ns, write.writer


def lost(held: Iterable[Held], promised: Iterable[Write]) -> list[Write]:
    """Promised writes that are not in a set, nor replaced by a newer one of the same instance that is.

    With KEEP_ALL (see `chaos.programs`) nothing is replaced. A dispose can be replaced by a newer write or
    dispose, a write by a newer write only. A promised dispose that is not there is lost, too: whether its
    instance is then back is another question (`resurrected`).
    """
    there: set[tuple[str, str, int]] = set()
    newest: dict[tuple[str, int, bool], tuple[int, str]] = {}
    for one in held:
        there.add((one.topic, one.writer, one.time_ns))
        for replaces_dispose in (True,) if one.disposes else (True, False):
            place = (one.topic, one.station, replaces_dispose)
            newest[place] = max(newest.get(place, _NEVER), order(one))
    return [
        write
        for write in promised
        if (write.topic, write.writer, write.time_ns) not in there
        and (
            write.topic.endswith("All")
            or newest.get((write.topic, write.station, write.disposes), _NEVER) < order(write)
        )
    ]


def newest_of(held: Iterable[Held]) -> dict[tuple[str, int], Held]:
    """The newest write or dispose of each instance, by topic and station."""
    newest: dict[tuple[str, int], Held] = {}
    for one in held:
        instance = (one.topic, one.station)
        if instance not in newest or order(newest[instance]) < order(one):
            newest[instance] = one
    return newest


def resurrected(held: Iterable[Held], promised: Iterable[Write]) -> list[Write]:
    """Promised disposes whose instance is alive in a set by nothing newer than the dispose."""
    newest = newest_of(held)
    last: dict[tuple[str, int], Write] = {}
    for write in promised:
        instance = (write.topic, write.station)
        if instance not in last or order(last[instance]) < order(write):
            last[instance] = write
    return [
        write
        for instance, write in last.items()
        if write.disposes
        and instance in newest
        and not newest[instance].disposes
        and order(newest[instance]) < order(write)
    ]


def unequal(sets: Mapping[str, list[Held]]) -> str:
    """How the sets of nodes differ, sample by sample; empty when they do not."""
    everything = set().union(*sets.values()) if sets else set()
    missing = {name: everything.difference(held) for name, held in sets.items()}
    if not any(missing.values()):
        return ""
    parts = [f"{name} lacks {len(what)} of {len(everything)}" for name, what in missing.items() if what]
    example = next(min(what) for what in missing.values() if what)
    return f"{', '.join(parts)}, for example {example}"
