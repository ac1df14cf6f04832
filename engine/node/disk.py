"""The store's thread: it opens and verifies the store, and writes the changes of the runtime."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from engine.dds.activity import BEAT_S, ThreadActivities
from engine.runtime import past
from engine.runtime.startup import TOLD, StoredContent, read_store
from engine.runtime.store_queue import StoreQueue
from engine.store.interface import Store, StoreError, StoreFull
from engine.store.memory import Medium, MemoryStore
from engine.store.sqlite import SqliteStore
from engine.tracing.tracer import Tracer

RETRY_S: Final = 1.0
"""Pause before the next attempt after the disk refused."""
_BLOCK_BYTES: Final = 512  # of st_blocks, whatever the file system's own blocks are
# A transaction takes milliseconds and its fsync with it: without it each lone sample would pay that. What
# is lost by a crash is this much more.
GATHER_S: Final = 0.02
"""Time that a change may wait for others to share its transaction, if nobody waits for it."""
# Chosen: the benchmark `trickle` counts bytes and processor time of lone samples, which fall as this grows;
# a crash loses this much more.
STEADY_S: Final = 0.2
"""Time from one such transaction to the next while changes keep coming: each writes whole pages."""
# Chosen: a transaction of less takes a few tens of milliseconds, so it does not hold up capture.
HEAVY_BYTES: Final = 4 << 20
"""Bytes of payloads that are waiting from which on a transaction takes long."""
HEAVY_S: Final = 1.0
"""Longest such rest: what is captured must not wait longer for the disk than that."""
# The store then takes a tenth of the time, at `HEAVY_S` at most. Larger keeps more in memory, smaller takes
# the processor from capture.
REST: Final = 9
"""Then the store rests for this multiple of the last transaction, `HEAVY_S` at most: what is replaced
meanwhile is not written, and the processor is free for capture."""
MEASURE_S: Final = 1.0
"""Time from a change to the next measurement of the store's size, which is the least time between two."""


def random_node_id() -> str:
    """Return 128 random bits as 32 hexadecimal characters."""
    return secrets.token_hex(16)


def open_store(path: Path | None, node: str, new_node_id: Callable[[], str] = random_node_id) -> Store:
    """Open the store in a directory, or one in memory that ends with the process.

    Args:
        path: the store directory, made if it does not exist; None for memory.
        node: the node's name, shown to another process that finds the store in use.
        new_node_id: makes a node id at the first start.

    Raises:
        StoreError: see `engine.store.sqlite.SqliteStore`.
    """
    if path is None:
        return MemoryStore(Medium(new_node_id()))
    return SqliteStore(path, node, new_node_id)


class WriteSchedule(msgspec.Struct, frozen=True):
    """Times and intervals for writing a store.

    Attributes:
        session_s: time from one pause to the next (StoreSessionTime).
        sleep_s: pause between two sessions, 0 for none (StoreSleepTime).
        optimize_interval: samples after which the store frees space, 0 for never (StoreOptimizeInterval).
    """

    # The default of OpenSplice's StoreSessionTime.
    session_s: float = 20.0
    sleep_s: float = 0.0
    optimize_interval: int = 0


class Disk:
    """Owns the store and its thread. Call `wake` after handing something to `store_queue`.

    It does not open a store while the disk is full, because opening writes. The node waits for it: it must
    know the content of the store before it may take part in an election.

    Args:
        directory: the store directory, None for memory.
        node: the node's name, shown to another process that finds the store in use.
        on_result: called on the store's thread when there are results that somebody waits for, or opening has
            made progress.
        activities: registers the thread's work for the deadlock watch.
        pace: times and intervals for writing.

    Attributes:
        used_bytes: disk space of all files of the store; 0 for memory, or if not known.
        refusal: the problem of a full disk that delays opening; empty for none.
        store_queue: takes the runtime's changes, once the store is open.
    """

    def __init__(
        self,
        directory: Path | None,
        node: str,
        on_result: Callable[[], None],
        activities: ThreadActivities,
        pace: WriteSchedule = WriteSchedule(),  # noqa: B008  # a value that never changes
    ) -> None:
        self._pace = pace
        self._session_began_s = time.monotonic()
        self._optimized = 0
        self._directory = directory
        self._node = node
        self._on_result = on_result
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._is_gathering = False
        self._written_s = self._took_s = 0.0
        self._noticed: tuple[int, int] | None = None
        self._work = activities.work("persistentDataListener")
        self.fault: Exception | None = None
        self.refusal = ""
        self.used_bytes = 0
        self._measure_due_s: float | None = 0.0
        self._error: Exception | None = None
        self._found: StoredContent | None = None
        self.store_queue: StoreQueue
        self._thread = threading.Thread(target=self._run, name="persistentData", daemon=True)

    @property
    def kind(self) -> str:
        """Kind of the store: `memory` or `sqlite`."""
        return "sqlite" if self._directory else "memory"

    def start(self) -> None:
        """Start the thread, which opens and verifies the store."""
        self._thread.start()

    def found(self) -> StoredContent | None:
        """Return the content of the store; None until it is open and verified.

        Raises:
            StoreError: it cannot be used; the message has the reason and, if it is in use, the user.
        """
        if self._error is not None:
            raise self._error
        return self._found

    def wake(self) -> None:
        """Wake the thread, if there is something new that it does not gather by itself."""
        queue = self.store_queue
        news = queue.handed_over, queue.urgent
        if news != self._noticed:
            self._noticed = news
            if not (self._is_gathering and queue.may_gather):
                self._wake.set()

    def close(self, timeout_s: float) -> None:
        """Write the queued changes, for at most `timeout_s`, and close; changes without room are given up."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            store = self._open()
            if store is None:
                return
            found = read_store(store, time.time_ns())
        except Exception as error:  # of any class: the node waits for an answer
            self._error = error
            self._on_result()
            return
        self.store_queue = StoreQueue(store, self._work.moved)
        for name, note in found.replaced.items():
            self.store_queue.mark(name, {TOLD: note})
        self._found = found
        self._on_result()
        try:
            self._carry_out(store)
            store.close()
        except Exception as error:  # of any class: a node must not continue without its store
            self.fault = error
            self._on_result()

    def _open(self) -> Store | None:
        """Open the store as soon as its disk has room for that; return None if `close` comes first."""
        while not self._stopping.is_set():
            try:
                store = open_store(self._directory, self._node)
            except StoreFull as full:  # a full disk may have room again; all else ends the node
                self.refusal = str(full)
                self._on_result()
                self._pause(RETRY_S)
            else:
                self.refusal = ""
                return store
        return None

    def _carry_out(self, store: Store) -> None:
        while True:
            refused = bool(self.store_queue.problem)
            self._gather()
            while self._one_job():
                if self.store_queue.is_awaited:
                    self._on_result()
                self._optimize(store)
                self._rest()
                self._measure_due_s = self._measure_due_s or time.monotonic() + MEASURE_S
                self._measure()
                self._gather()
            self._measure()
            if self.store_queue.problem and not refused:
                self._on_result()
            if self._stopping.is_set() and (self.store_queue.is_idle or self.store_queue.problem):
                self._work.rest()
                return
            if self.store_queue.problem:
                self._pause(RETRY_S)
            else:
                due_s = self._measure_due_s
                self._wake.wait(BEAT_S if due_s is None else max(0.0, due_s - time.monotonic()))
                self._work.beat()
            self.store_queue.check()
            self._wake.clear()

    def _gather(self) -> None:
        """Wait for more changes: a transaction costs far more than a change."""
        soonest_s = time.monotonic() + GATHER_S
        self._is_gathering = True  # before the first look, so that `wake` misses no urgent change
        while self.store_queue.may_gather and not self._stopping.is_set():
            left_s = max(soonest_s, self._written_s + self._pause_s) - time.monotonic()
            if left_s <= 0:
                break
            self._wake.wait(left_s)
            self._work.beat()
            self._wake.clear()
        self._is_gathering = False

    @property
    def _pause_s(self) -> float:
        """Least time from one transaction to the next."""
        is_heavy = self.store_queue.queued_bytes >= HEAVY_BYTES
        return max(STEADY_S, min(HEAVY_S, REST * self._took_s)) if is_heavy else STEADY_S

    def _optimize(self, store: Store) -> None:
        """Let the store free space once `optimize_interval` samples were written."""
        written, interval = self.store_queue.carried_out, self._pace.optimize_interval
        if interval and written - self._optimized >= interval:
            self._optimized = written
            self._work.rest()  # of a large store it takes its time, in one call
            with contextlib.suppress(StoreError):  # the next write reports a store that cannot be used
                store.optimize()
            self._work.beat()

    def _rest(self) -> None:
        """Sleep between two sessions, unless the node ends."""
        pace = self._pace
        if pace.sleep_s and time.monotonic() - self._session_began_s >= pace.session_s:
            self._pause(pace.sleep_s)
            self._session_began_s = time.monotonic()

    def _pause(self, seconds: float) -> None:
        """Wait, unless the node ends."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0 and not self._stopping.wait(min(left_s, BEAT_S)):
            self._work.beat()

    def _measure(self) -> None:
        """Measure the size of the store, when that is due."""
        if self._measure_due_s is not None and time.monotonic() >= self._measure_due_s:
            self.used_bytes, self._measure_due_s = used_bytes(self._directory), None

    def _one_job(self) -> bool:
        if self.store_queue.is_idle:
            return False
        began_s = time.monotonic()
        with self._work:
            has_worked = self.store_queue.work()
        self._written_s = time.monotonic()
        self._took_s = self._written_s - began_s
        return has_worked


def used_bytes(directory: Path | None) -> int:
    """Return the disk space of a store's files, as `du` counts; 0 if it cannot be read.

    The files of the node's past, which lie beside them, do not count.
    """
    if directory is None:
        return 0
    try:
        with os.scandir(directory) as entries:
            own = [entry for entry in entries if not entry.name.startswith(past.FILE)]
            return sum(entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES for entry in own)
    except OSError:  # a figure for people; what writes reports the trouble
        return 0


def trace_found(tracer: Tracer, directory: str, found: StoredContent) -> None:
    """Trace the content of a store.

    Args:
        tracer: takes the events.
        directory: the store directory as configured; empty for memory.
        found: the content.
    """
    if not directory:
        tracer.event("store.disabled")
        return
    tracer.event("store.opened", directory=directory)
    if found.is_restored:
        tracer.event("store.outdated", directory=directory, incarnation=found.report.incarnation)
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
    for cause in found.odd:
        tracer.event("store.out-of-range", cause=cause)


def _trace_origin(tracer: Tracer, found: StoredContent, name: str) -> None:
    """Trace the state of a complete set, and whether it was restored from a backup or replaced."""
    summary = found.sets[name][0].summary()
    tracer.event(
        "lifecycle.local-copy", namespace=name, completeness="DAMAGED" if name in found.damage else "COMPLETE"
    )
    if name in found.parts:
        quality_ns = max(0, found.stored[name].quality_ns)
        tracer.event("store.restored", namespace=name, samples=summary.count, quality_ns=quality_ns)
    if name in found.replaced:
        tracer.event("store.replaced", namespace=name, samples=summary.count, mark=found.replaced[name])
