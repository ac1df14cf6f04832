"""The store's own thread: it opens the store, verifies it, and carries out what the runtime hands over."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.runtime import past
from engine.runtime.persistence import Persistence
from engine.runtime.startup import TOLD, read_store
from engine.store.interface import StoreError, StoreFull
from engine.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.dds.activity import Activities
    from engine.runtime.startup import Found
    from engine.store.interface import Store
    from engine.tracing.tracer import Tracer

RETRY_S: Final = 1.0
"""Pause before a disk that refused is tried again."""
_BLOCK_BYTES: Final = 512  # of st_blocks, whatever the file system's own blocks are
GATHER_S: Final = 0.02
"""How long a change may wait for others that are written in the same transaction, if nobody waits for it."""
MEASURE_S: Final = 1.0
"""How soon after a change it is measured again what the store takes up, and not more often than this."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """How a store is written.

    Attributes:
        session_s: time from one pause to the next, in which what comes is written (StoreSessionTime).
        sleep_s: the pause between two sessions, 0 for none (StoreSleepTime).
        optimize_interval: samples after which free space is given back, 0 for never (StoreOptimizeInterval).
    """

    session_s: float = 20.0
    sleep_s: float = 0.0
    optimize_interval: int = 0


class Disk:
    """Owns the store. `wake` must be called after something was handed to `persistence`.

    A store is not opened while its disk is full, for opening writes. Nor can its node do without: what is in
    the store must be known before it may take part in an election.

    Args:
        directory: the store directory, None for memory.
        node: the node's name, for whoever finds the store in use.
        on_result: called on the store's thread when results can be taken back, or opening has news.
        pace: how it is written.
        activities: where the thread says what it is busy with.

    Attributes:
        used_bytes: what all files of the store take up on the disk; 0 for memory, or while not known.
        refusal: why the disk is too full to open the store, which is tried again; empty when it is not.
        persistence: what the runtime hands its work to, once the store is open.
    """

    def __init__(
        self,
        directory: Path | None,
        node: str,
        on_result: Callable[[], None],
        activities: Activities,
        pace: Pace = Pace(),  # a value that never changes
    ) -> None:
        self._pace = pace
        self._session_began_s = time.monotonic()
        self._optimized = 0
        self._directory = directory
        self._node = node
        self._on_result = on_result
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._work = activities.work("persistentDataListener")
        self.fault: Exception | None = None
        self.refusal = ""
        self.used_bytes = 0
        self._measure_due_s: float | None = 0.0
        self._error: Exception | None = None
        self._found: Found | None = None
        self.persistence: Persistence
        self._thread = threading.Thread(target=self._run, name="persistentData", daemon=True)

    @property
    def kind(self) -> str:
        """What the store is: `memory` or `sqlite`."""
        return "sqlite" if self._directory else "memory"

    def start(self) -> None:
        """Start the thread, which opens and verifies the store."""
        self._thread.start()

    def found(self) -> Found | None:
        """What the store held; None until it is open and verified.

        Raises:
            StoreError: it cannot be used; the message says why and, where it is in use, by whom.
        """
        if self._error is not None:
            raise self._error
        return self._found

    def wake(self) -> None:
        """There is something to do."""
        self._wake.set()

    def close(self, timeout_s: float) -> None:
        """Write what is queued, for at most `timeout_s`, and close; what waits for room is given up."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            store = self._open()
            if store is None:
                return
            found = read_store(store)
        except Exception as error:  # whatever it is: the node waits for an answer
            self._error = error
            self._on_result()
            return
        self.persistence = Persistence(store, self._work.moved)
        for name, note in found.replaced.items():
            self.persistence.mark(name, {TOLD: note})
        self._found = found
        self._on_result()
        try:
            self._carry_out(store)
            store.close()
        except Exception as error:  # whatever it is: a node must not go on without its store
            self.fault = error
            self._on_result()

    def _open(self) -> Store | None:
        """Open the store as soon as its disk has room for that; None when it is closed before."""
        while not self._stopping.is_set():
            try:
                store = open_store(self._directory, self._node)
            except StoreFull as full:
                self.refusal = str(full)
                self._on_result()
                self._stopping.wait(RETRY_S)
            else:
                self.refusal = ""
                return store
        return None

    def _carry_out(self, store: Store) -> None:
        while True:
            refused = bool(self.persistence.problem)
            self._gather()
            while self._one_job():
                self._on_result()
                self._optimize(store)
                self._rest()
                self._measure_due_s = self._measure_due_s or time.monotonic() + MEASURE_S
                self._measure()
                self._gather()
            self._measure()
            if self.persistence.problem and not refused:
                self._on_result()
            if self._stopping.is_set() and (self.persistence.is_idle or self.persistence.problem):
                return
            if self.persistence.problem:
                self._stopping.wait(RETRY_S)
            else:
                due_s = self._measure_due_s
                self._wake.wait(None if due_s is None else max(0.0, due_s - time.monotonic()))
            self._wake.clear()

    def _gather(self) -> None:
        """Let changes that come one by one come together: a transaction costs far more than a change."""
        until_s = time.monotonic() + GATHER_S
        while self.persistence.may_gather and not self._stopping.is_set():
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            self._wake.wait(left_s)
            self._wake.clear()

    def _optimize(self, store: Store) -> None:
        """Let the store give back free space when so much was written that it is time for it."""
        written, interval = self.persistence.carried_out, self._pace.optimize_interval
        if interval and written - self._optimized >= interval:
            self._optimized = written
            with contextlib.suppress(StoreError):  # the next write says so if the store cannot be used
                store.optimize()

    def _rest(self) -> None:
        """Sleep when a session has lasted for long enough; not while the node ends."""
        pace = self._pace
        if pace.sleep_s and time.monotonic() - self._session_began_s >= pace.session_s:
            self._stopping.wait(pace.sleep_s)
            self._session_began_s = time.monotonic()

    def _measure(self) -> None:
        """See what the store takes up, when that is due."""
        if self._measure_due_s is not None and time.monotonic() >= self._measure_due_s:
            self.used_bytes, self._measure_due_s = used_bytes(self._directory), None

    def _one_job(self) -> bool:
        if self.persistence.is_idle:
            return False
        with self._work:
            return self.persistence.work()


def used_bytes(directory: Path | None) -> int:
    """What the files of a store take up on the disk, as `du` counts; 0 when that cannot be read.

    What the node remembers of its past lies beside them and does not count.
    """
    if directory is None:
        return 0
    try:
        with os.scandir(directory) as entries:
            own = [entry for entry in entries if not entry.name.startswith(past.FILE)]
            return sum(entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES for entry in own)
    except OSError:
        return 0


def trace_found(tracer: Tracer, directory: str, found: Found) -> None:
    """Trace what was found in a store.

    Args:
        tracer: where events go.
        directory: of the store, as configured; empty for memory.
        found: what was found.
    """
    if not directory:
        tracer.event("store.disabled")
        return
    tracer.event("store.opened", directory=directory)
    for name in found.parts:
        tracer.event("store.incomplete", namespace=name)
        if name not in found.sets:
            tracer.event("store.no-backup", namespace=name)
    for name, (data, descriptions) in found.sets.items():
        _trace_origin(tracer, found, name)
        tracer.event(
            "store.namespace",
            namespace=name,
            samples=data.summary().count,
            groups=len(descriptions),
            completeness="complete",
            quality_ns=max(0, found.stored[name].quality_ns),
        )
    if found.report.is_damaged:
        tracer.event("store.corrupt", namespace="*", cause="; ".join(found.report.findings))
    for name, cause in found.damage.items():
        tracer.event("store.corrupt", namespace=name, cause=cause)


def _trace_origin(tracer: Tracer, found: Found, name: str) -> None:
    """Whether a complete set is one that this node did not leave as its last."""
    summary = found.sets[name][0].summary()
    tracer.event(
        "lifecycle.local-copy", namespace=name, completeness="DAMAGED" if name in found.damage else "COMPLETE"
    )
    if name in found.parts:
        quality_ns = max(0, found.stored[name].quality_ns)
        tracer.event("store.restored", namespace=name, samples=summary.count, quality_ns=quality_ns)
    if name in found.replaced:
        tracer.event("store.replaced", namespace=name, samples=summary.count, mark=found.replaced[name])
