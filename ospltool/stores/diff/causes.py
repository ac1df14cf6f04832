"""The likely cause of a difference between two stores, with its evidence.

The first rule that applies decides. `have` is the store that has what the other store, `lack`, lacks.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Final, NamedTuple

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER
from ospltool.output.text import plural
from ospltool.stores.diff.sides import Row
from ospltool.stores.model import GroupFacts, shown


class Cause(enum.StrEnum):
    """The cause of a difference."""

    DAMAGE = "damage"
    """Records of the group cannot be read in one store; it may be among them."""
    POLICY = "policy"
    """The name-space of the group is not kept by the other store at all."""
    NEVER_ALIGNED = "never aligned"
    """The other store has nothing that is so new: it was not running, not connected or not aligned since."""
    DISPOSED = "disposed"
    """One store knows a dispose that the other does not."""
    CLEANUP_DELAY = "cleanup delay"
    """The instance was disposed and has been purged from one store already."""
    HISTORY_DEPTH = "history depth"
    """One store still holds samples that the history depth of the group no longer keeps."""
    UNREGISTERED = "unregistered"
    """One store noted that a writer left, the other did not; the data is the same."""
    STALE = "stale"
    """One store lacks it although it has later data: lost, evicted by an older one, or purged."""
    CONTENT = "content"
    """The same write has different content."""
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    """The relation of a store to an instance.

    Attributes:
        label: label of the store.
        rows: its rows of the instance, in order.
        group: its facts of the group; None if the store lacks the group.
        keeps_name_space: it has the name-space of the group.
        newest_ns: newest source timestamp that it has in the group, 0 for none.
        damaged: records of the group that cannot be read.
    """

    label: str
    rows: tuple[Row, ...]
    group: GroupFacts | None
    keeps_name_space: bool
    newest_ns: int
    damaged: int

    def missing_from(self, other: Holder) -> tuple[Row, ...]:
        """Return the rows that the other store lacks."""
        known = {row.digest for row in other.rows}
        return tuple(row for row in self.rows if row.digest not in known)

    def data_only(self) -> Holder:
        """Return the same without rows that only unregister a writer."""
        if all(row.status != UNREGISTER for row in self.rows):
            return self
        return dataclasses.replace(self, rows=tuple(row for row in self.rows if row.status != UNREGISTER))


@dataclasses.dataclass(frozen=True, slots=True)
class ExplainedDifference:
    """A cause with its evidence."""

    cause: Cause
    evidence: str


def find_cause(left: Holder, right: Holder) -> ExplainedDifference:
    """Find the likely cause of a difference between two stores."""
    without = left.data_only(), right.data_only()
    if without != (left, right) and (
        without[0].missing_from(without[1]) or without[1].missing_from(without[0])
    ):
        left, right = without  # that writers left is noted differently, too, matters less
    extra, theirs = left.missing_from(right), right.missing_from(left)
    both = _Sides(left, right, extra, theirs), _Sides(right, left, theirs, extra)
    for rule in _RULES:
        for seen in both:
            evidence = rule(seen)
            if evidence:
                return ExplainedDifference(_CAUSES[rule], evidence)
    return ExplainedDifference(Cause.UNKNOWN, "nothing that the stores tell explains it")


class _Sides(NamedTuple):
    """Two stores, and the rows of each that the other lacks."""

    have: Holder
    lack: Holder
    extra: tuple[Row, ...]
    theirs: tuple[Row, ...]


def _identity(row: Row) -> tuple[int, bytes, int]:
    return row.source_time_ns, row.writer, row.sequence


def _content(sides: _Sides) -> str:
    _, _, extra, theirs = sides
    others = {_identity(row): row for row in theirs}
    for row in extra:
        other = others.get(_identity(row))
        if other is not None and row.status & DATA and other.status & DATA:
            return f"the write of {shown(row.source_time_ns)} is in both, with different content"
    return ""


def _damage(sides: _Sides) -> str:
    _, lack, extra, _ = sides
    if not lack.damaged or not extra:
        return ""
    return f"{plural(lack.damaged, 'record')} of the group cannot be read in {lack.label}"


def _policy(sides: _Sides) -> str:
    have, lack, _, _ = sides
    if lack.rows or lack.group is not None or lack.keeps_name_space or not have.rows:
        return ""
    return f"{lack.label} keeps nothing of the name-space"


def _unregistered(sides: _Sides) -> str:
    have, lack, extra, theirs = sides
    if not extra or theirs or any(row.status != UNREGISTER for row in extra):
        return ""
    return (
        f"{have.label} holds {len(extra)} unregister of {shown(extra[-1].source_time_ns)};"
        f" the data in {lack.label} is the same"
    )


def _disposed(sides: _Sides) -> str:
    have, lack, extra, _ = sides
    disposes = [row for row in extra if row.status & DISPOSE]
    if not disposes:
        return ""
    newest = disposes[-1].source_time_ns
    if not lack.rows or lack.rows[-1].source_time_ns >= newest:
        return ""
    return (
        f"{have.label} knows the dispose of {shown(newest)};"
        f" the newest in {lack.label} is of {shown(lack.rows[-1].source_time_ns)}"
    )


def _cleanup(sides: _Sides) -> str:
    have, lack, _, _ = sides
    group = lack.group or have.group
    if lack.rows or not have.rows or group is None or group.cleanup_delay_ns < 0:
        return ""
    last = have.rows[-1]
    if not last.status & DISPOSE:
        return ""
    due_ns = last.source_time_ns + group.cleanup_delay_ns
    if lack.newest_ns < due_ns:
        return ""
    return (
        f"disposed at {shown(last.source_time_ns)} and due after {group.cleanup_delay_ns / 1e9:g} s;"
        f" {lack.label} has data of {shown(lack.newest_ns)}"
    )


def _history(sides: _Sides) -> str:
    have, lack, extra, theirs = sides
    group = lack.group
    if not extra or group is None or not group.history_depth or theirs:
        return ""
    kept = [row for row in lack.rows if row.status & DATA]
    if (
        len(kept) < group.history_depth
        or extra[-1].source_time_ns > kept[-group.history_depth].source_time_ns
    ):
        return ""
    return (
        f"{have.label} holds {len(extra)} older than the {group.history_depth} that the depth keeps,"
        f" up to {shown(extra[-1].source_time_ns)}"
    )


def _never_aligned(sides: _Sides) -> str:
    have, lack, extra, _ = sides
    if not extra:
        return ""
    if not lack.newest_ns:
        return f"{lack.label} has nothing of the group"
    if extra[-1].source_time_ns <= lack.newest_ns:
        return ""
    since = extra[0].source_time_ns > lack.newest_ns
    span = (
        f"from {shown(extra[0].source_time_ns)} on" if since else f"up to {shown(extra[-1].source_time_ns)}"
    )
    return (
        f"{have.label} has it {span}; the newest in the group in {lack.label} is of {shown(lack.newest_ns)}"
    )


def _stale(sides: _Sides) -> str:
    have, lack, extra, _ = sides
    if not extra or extra[-1].source_time_ns > lack.newest_ns:
        return ""
    if lack.rows and lack.rows[-1].source_time_ns >= extra[-1].source_time_ns:
        return (
            f"{lack.label} has later data of the instance, {shown(lack.rows[-1].source_time_ns)}, but not"
            f" {len(extra)} older samples, up to {shown(extra[-1].source_time_ns)}, that {have.label} has"
        )
    what = f"up to {shown(lack.rows[-1].source_time_ns)}" if lack.rows else "nothing"
    return (
        f"{lack.label} has {what} of the instance, but other data of {shown(lack.newest_ns)};"
        f" {have.label} has {shown(extra[-1].source_time_ns)}"
    )


_CAUSES: Final[dict[Callable[[_Sides], str], Cause]] = {
    _content: Cause.CONTENT,
    _damage: Cause.DAMAGE,
    _policy: Cause.POLICY,
    _unregistered: Cause.UNREGISTERED,
    _disposed: Cause.DISPOSED,
    _cleanup: Cause.CLEANUP_DELAY,
    _history: Cause.HISTORY_DEPTH,
    _never_aligned: Cause.NEVER_ALIGNED,
    _stale: Cause.STALE,
}
_RULES: Final = tuple(_CAUSES)
