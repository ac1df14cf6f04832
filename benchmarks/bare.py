"""What the machine does at this moment without this project: baselines, measured in the run of their rows."""

from __future__ import annotations

import multiprocessing
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH: Final = 1_000
"""Rows of one transaction."""
_BATCH_BYTES: Final = 8 << 20
"""Bytes after which a transaction ends all the same."""
_CHUNK: Final = 1 << 16


def table(path: Path) -> sqlite3.Connection:
    """A plain table, with the durability of a node's store."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA page_size = 16384")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE sample (number INTEGER PRIMARY KEY, key BLOB, writer BLOB, payload BLOB)"
    )
    return connection


def insert(connection: sqlite3.Connection, count: int, payload: bytes) -> None:
    """Insert rows with this payload, in transactions."""
    at_once = max(1, min(BATCH, _BATCH_BYTES // max(1, len(payload))))
    for begin in range(0, count, at_once):
        numbers = range(begin, min(count, begin + at_once))
        connection.execute("BEGIN")
        rows = ((number, number.to_bytes(4), b"w" * 16, payload) for number in numbers)
        connection.executemany("INSERT INTO sample VALUES (?, ?, ?, ?)", rows)
        connection.execute("COMMIT")


def insert_rate(count: int, size: int) -> float:
    """Rows a second, of `size` bytes each, that SQLite alone stores."""
    with tempfile.TemporaryDirectory(prefix="ospltool-bench-") as directory:
        connection = table(Path(directory, "bare.sqlite"))
        took_s = _seconds(lambda: insert(connection, count, bytes(size)))
        connection.close()
    return count / took_s


def transaction_ms(rate: float, seconds: float) -> float:
    """Processor time of one row of 100 B in a transaction of its own, at this many a second."""
    with tempfile.TemporaryDirectory(prefix="ospltool-bench-") as directory:
        connection = table(Path(directory, "bare.sqlite"))
        count, payload = round(rate * seconds), bytes(100)
        began, used_s = time.monotonic(), time.thread_time()
        for number in range(count):
            connection.execute("INSERT INTO sample VALUES (?, ?, ?, ?)", (number, b"k", b"w", payload))
            time.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))
        used_s = time.thread_time() - used_s
        connection.close()
    return used_s / count * 1e3


def loopback_rate(total: int) -> float:
    """Bytes a second that a process sends to another one through a socket on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = multiprocessing.Process(target=_send, args=(server.getsockname(), total))
        sender.start()
        connection, _ = server.accept()
        with connection:
            took_s = _seconds(lambda: _drain(connection))
        sender.join()
    return total / took_s


def _send(address: tuple[str, int], total: int) -> None:
    chunk = bytes(_CHUNK)
    with socket.create_connection(address) as connection:
        for _ in range(total // _CHUNK):
            connection.sendall(chunk)
        connection.sendall(bytes(total % _CHUNK))


def _drain(connection: socket.socket) -> None:
    buffer = bytearray(_CHUNK)
    while connection.recv_into(buffer):
        pass


def interpreters_s(count: int) -> float:
    """Seconds until a number of interpreters that do nothing, started at once, have ended."""

    def run() -> None:
        for process in [subprocess.Popen([sys.executable, "-c", ""]) for _ in range(count)]:
            process.wait()

    return _seconds(run)


def _seconds(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
