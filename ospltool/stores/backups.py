"""Back-ups of replaced sets in an ospltool store: list them, and bring one back."""

from __future__ import annotations

import dataclasses
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.runtime.shared import LINEAGE
from engine.store.backups import REPLACED_MARK, Replaced, replaced
from engine.store.interface import DamageLog, SetInfo, SetState, Soundness, StoreError
from engine.store.sqlite import SqliteStore
from ospltool.output.text import table, visible
from ospltool.stores.copying import CopyRefused
from ospltool.stores.model import SetFacts, SetKind, StoreFacts
from ospltool.stores.wording import shown

RESTORE = "ospltool store restore"


@dataclasses.dataclass(frozen=True, slots=True)
class Backup:
    """A back-up of a replaced set.

    Attributes:
        number: identifies the set in its store.
        samples: number of its samples; None if the store has no count.
        note: by whom, when and why it was replaced; None if unknown.
    """

    number: int
    name_space: str
    samples: int | None
    newest_ns: int | None
    note: Replaced | None


@dataclasses.dataclass(frozen=True, slots=True)
class Restored:
    """The result of `restore`; `aside` is the number of the set that is now a back-up."""

    name_space: str
    number: int
    samples: int
    aside: int | None
    samples_aside: int


def backups(facts: StoreFacts) -> list[Backup]:
    """Return the back-ups of a store, by number."""
    return [
        Backup(one.number, one.name_space, samples_of(one), one.quality_ns, replaced(one.mark))
        for one in facts.sets
        if one.kind is SetKind.BACKUP
    ]


def samples_of(one: SetFacts) -> int | None:
    """Return the number of samples of a set, according to its store."""
    known = [group.stored for group in one.groups if group.stored is not None]
    return sum(known) if len(known) == len(one.groups) else None


def backups_text(path: str, found: Sequence[Backup]) -> Iterator[str]:
    """Render back-ups for `store backups`."""
    if not found:
        yield f"{visible(path)}: no back-ups"
        return
    rows = [
        (
            one.number,
            one.name_space,
            "?" if one.samples is None else one.samples,
            shown(one.note.at_ns) if one.note else "?",
            one.note.by if one.note else "?",
            one.note.after if one.note else "?",
            one.note.why if one.note else "?",
        )
        for one in found
    ]
    header = ("SET", "NAME-SPACE", "SAMPLES", "REPLACED AT", "BY", "SAMPLES THEN", "WHY")
    yield f"{visible(path)}:"
    yield from (f"  {line}" for line in table(header, rows).splitlines())


def restore(target: Path, number: int | None) -> Restored:
    """Make a back-up the complete set of its name-space again; the set that it replaces stays as a back-up.

    Args:
        target: store directory of a node that is down.
        number: of the set; None for the only back-up.

    Raises:
        CopyRefused: the store is in use, there is no such back-up, or it is damaged; the store is unchanged.
    """
    try:
        store = SqliteStore(target, RESTORE, lambda: secrets.token_hex(16))
    except StoreError as error:
        raise CopyRefused(str(error)) from error
    try:
        return _restore(store, _chosen(store, target, number))
    except StoreError as error:
        raise CopyRefused(f"{target}: {error}") from error
    finally:
        store.close()


def _chosen(store: SqliteStore, target: Path, number: int | None) -> SetInfo:
    kept = [one for name in store.name_spaces() for one in store.sets(name) if one.state is SetState.KEPT]
    chosen = [one for one in kept if number in (None, one.version)]
    if len(chosen) == 1:
        return chosen[0]
    if not kept:
        raise CopyRefused(f"{target}: there are no back-ups")
    numbers = ", ".join(str(one.version) for one in sorted(kept, key=lambda one: one.version))
    raise CopyRefused(f"{target}: choose a back-up with --set: {numbers}")


def _restore(store: SqliteStore, chosen: SetInfo) -> Restored:
    damage = DamageLog()
    for _, pieces in store.load(chosen.name_space, damage, chosen.version):
        for _ in pieces:
            pass
    (read,) = (one for one in store.sets(chosen.name_space) if one.version == chosen.version)
    if read.soundness is not Soundness.INTACT:
        raise CopyRefused(
            f"set {chosen.version} is damaged ({damage.first[0]}); `store replace STORE STORE --set "
            f"{chosen.version} --without-damaged` takes back what can be read"
        )
    before, at_ns = store.complete_set(chosen.name_space), time.time_ns()
    samples = before.stored.count if before else 0
    why = f"back-up {chosen.version} was taken back"
    note = Replaced(RESTORE, at_ns, why, samples, chosen.stored.count, before.mark if before else "")
    told = {"by": RESTORE, "from": "a back-up", "set": chosen.version, "at_ns": at_ns}
    marks = {LINEAGE: None, REPLACED_MARK: json.dumps(told)}  # nothing ties it to the sets of its fellows
    store.restore_backup(chosen.version, RESTORE, note.to_mark(), marks)
    aside = before.version if before else None
    return Restored(chosen.name_space, chosen.version, chosen.stored.count, aside, samples)
