"""The changes in a store as they happen."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.store.interface import StoreError
from engine.store.read_only import StoreView
from ospltool.stores.describe import count_sets
from ospltool.stores.model import StoreUnreadable
from ospltool.stores.opening import open_reader
from ospltool.stores.ours import is_ours

_Place = tuple[int, str, str, str]
_Count = tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class StoreChange:
    """A change of a group of a set since the last poll."""

    at_ns: int
    """Time of the poll, nanoseconds since 1970 UTC."""
    what: str
    """`there` in the first poll, then `new`, `changed` or `gone`."""
    set_number: int
    """Number of the set."""
    name_space: str
    """Empty if the store does not name it."""
    kind: str
    """Use of the set."""
    group: str
    """`PARTITION.TOPIC`."""
    samples: int
    """Number of samples now."""
    before: int
    """Number of samples before; 0 for a new group."""
    newest_ns: int
    """Newest source timestamp now."""


def watch(
    path: Path, interval_s: float, pause: Callable[[float], None], looks: int | None
) -> Iterator[StoreChange]:
    """Poll a store, and yield its changes.

    For an ospltool store this reads only the watermarks, which is cheap and does not disturb the node; an
    OpenSplice store is read whole if its files have changed.

    Args:
        path: the store.
        interval_s: pause between two polls.
        pause: waits for a number of seconds.
        looks: number of polls; None sets no limit.

    Raises:
        StoreUnreadable: the store cannot be read.
    """
    before: dict[_Place, _Count] | None = None
    stamp: tuple[tuple[str, int, int], ...] = ()
    done = 0
    while True:
        now_stamp = () if is_ours(path) else _stamp(path)
        if before is None or is_ours(path) or now_stamp != stamp:
            now = _counts_now(path)
            yield from _changes(before, now)
            before, stamp = now, now_stamp
        done += 1
        if looks is not None and done >= looks:
            return
        pause(interval_s)


def _counts_now(path: Path) -> dict[_Place, _Count]:
    if is_ours(path):
        try:
            with StoreView(path) as view:
                sets = view.sets()
        except StoreError as error:
            raise StoreUnreadable(str(error)) from error
        return {
            (one.version, one.name_space, one.state.value, str(group.description.group)): (
                group.stored.count,
                group.stored.newest_ns,
            )
            for one in sets
            for group in one.groups
        }
    reader = open_reader(path)
    try:
        return {
            (one.facts.number, one.facts.name_space, one.facts.kind.value, str(group.name)): (
                count.samples,
                count.newest_ns,
            )
            for one in count_sets(reader)
            for group, count in one.groups
        }
    finally:
        reader.close()


def _stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    files = sorted(path.rglob("*")) if path.is_dir() else sorted(path.parent.glob(f"{path.name}*"))
    stats = [(file, file.stat()) for file in files]
    return tuple((str(file), stat.st_mtime_ns, stat.st_size) for file, stat in stats)


def _changes(before: dict[_Place, _Count] | None, now: dict[_Place, _Count]) -> Iterator[StoreChange]:
    at_ns = time.time_ns()
    for place, (samples, newest_ns) in sorted(now.items()):
        known = (before or {}).get(place)
        if known == (samples, newest_ns):
            continue
        what = "there" if before is None else "changed" if known else "new"
        yield StoreChange(at_ns, what, *place, samples, known[0] if known else 0, newest_ns)
    for place, (samples, newest_ns) in sorted((before or {}).items()):
        if place not in now:
            yield StoreChange(at_ns, "gone", *place, 0, samples, newest_ns)
