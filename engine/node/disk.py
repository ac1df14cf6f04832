"""The store's own thread: it opens the store, verifies it, and carries out what the runtime hands over."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.core.messages import NO_EPOCH, Epoch
from engine.core.settings import StoredSet
from engine.dataset.dataset import DataSet
from engine.runtime.persistence import Persistence
from engine.runtime.runtime import LINEAGE
from engine.store.interface import DamageLog, StoreError
from engine.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.dataset.groups import GroupDescription
    from engine.store.interface import OpenReport, Store

RETRY_S: Final = 1.0
"""Pause before a disk that refused is tried again."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What the store held at start.

    Attributes:
        report: identity, fellows, findings.
        sets: verified complete sets with their groups, by name-space.
        stored: the same for the core: quality and lineage; a damaged set has no quality.
        damage: what is not as it was written, by name-space, in words.
    """

    report: OpenReport
    sets: dict[str, tuple[DataSet, list[GroupDescription]]]
    stored: dict[str, StoredSet]
    damage: dict[str, str]


class Disk:
    """Owns the store. `wake` must be called after something was handed to `persistence`.

    Args:
        directory: the store directory, None for memory.
        node: the node's name, for whoever finds the store in use.
        on_result: called on the store's thread when results can be taken back.
    """

    def __init__(self, directory: Path | None, node: str, on_result: Callable[[], None]) -> None:
        self._directory = directory
        self._node = node
        self._on_result = on_result
        self._wake = threading.Event()
        self._opened = threading.Event()
        self._stopping = False
        self._flush_until_empty = False
        self._error: StoreError | OSError | None = None
        self._found: Found | None = None
        self.persistence: Persistence
        self._thread = threading.Thread(target=self._run, name="persistentData", daemon=True)

    @property
    def kind(self) -> str:
        """What the store is: `memory` or `sqlite`."""
        return "sqlite" if self._directory else "memory"

    def open(self) -> Found:
        """Start the thread; returns once the store is open and verified.

        Raises:
            StoreError: it cannot be used; the message says why and, where it is in use, by whom.
        """
        self._thread.start()
        self._opened.wait()
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found

    def wake(self) -> None:
        """There is something to do."""
        self._wake.set()

    def close(self, timeout_s: float) -> int:
        """Write what is queued, for at most `timeout_s`, and close; returns what stayed unwritten."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout_s)
        return self.persistence.queued_changes

    def _run(self) -> None:
        try:
            store = open_store(self._directory, self._node)
            self._found = _read(store)
        except (StoreError, OSError) as error:
            self._error = error
            self._opened.set()
            return
        self.persistence = Persistence(store)
        self._opened.set()
        try:
            self._work()
        finally:
            store.close()

    def _work(self) -> None:
        while True:
            refused = bool(self.persistence.problem)
            while self.persistence.work():
                self._on_result()
            if self.persistence.problem and not refused:
                self._on_result()
            if self._stopping and (self.persistence.is_idle or self.persistence.problem):
                return
            self._wake.wait(RETRY_S if self.persistence.problem else None)
            self._wake.clear()


def _read(store: Store) -> Found:
    """Read and verify every complete set: only a verified one has a quality (guide 5.4.4, steps 1 and 2)."""
    sets: dict[str, tuple[DataSet, list[GroupDescription]]] = {}
    stored: dict[str, StoredSet] = {}
    damage: dict[str, str] = {}
    for name in store.name_spaces():
        if store.complete_set(name) is None:
            continue
        log = DamageLog()
        data, descriptions = DataSet(), []
        for description, samples in store.load(name, log):
            descriptions.append(description)
            group_set = data.open_group(description.group, description.qos.history_depth)
            for sample in samples:
                group_set.apply(sample)
        info = store.complete_set(name)
        quality = info.quality_ns if info else None
        sets[name] = (data, descriptions)
        stored[name] = StoredSet(quality or 0, _lineage(store.marks(name).get(LINEAGE, "")))
        if log.count:
            damage[name] = f"{log.count} damaged, first: {log.first[0]}"
    return Found(store.report, sets, stored, damage)


def _lineage(mark: str) -> Epoch:
    counter, _, node = mark.partition("/")
    return Epoch(int(counter), node) if counter.isdigit() and node else NO_EPOCH
