"""The child of a kill test: replaces large samples faster than the disk takes them, and says what is on disk.

After each transaction it prints how many changes are on disk, and how many bytes of payload it found let go.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Final

from engine.dataset.sample import Sample
from engine.node.disk import open_store
from engine.runtime.jobs import LET_GO_BYTES
from engine.runtime.store_queue import StoreQueue
from engine.store.interface import GroupChange
from tests.unit.store.making import description, sample

SPACE: Final = "space"
INSTANCES: Final = 40
MOST_WAITING: Final = 1_000
SIZE: Final = 2 * LET_GO_BYTES


def large(number: int) -> Sample:
    """The sample of that number."""
    return sample(number, payload_bytes=SIZE)


def changes_of(number: int) -> list[GroupChange]:
    """Sample `number` comes; of each instance the newest stays."""
    gone = [large(number - INSTANCES)] if number >= INSTANCES else []
    return [GroupChange(description(), large(number), gone)]


def content_after(count: int) -> set[Sample]:
    """What the set holds after that many changes."""
    return {large(number) for number in range(max(0, count - INSTANCES), count)}


def main() -> None:
    """Write for ever; one thread hands over and another one writes, as in a node."""
    store = open_store(Path(sys.argv[1]), "child")
    store.commit_complete(store.begin_set(SPACE))
    queue = StoreQueue(store)
    room, work = threading.Semaphore(MOST_WAITING), threading.Event()

    def hand_over() -> None:
        number = 0
        while True:
            room.acquire()
            queue.append(SPACE, changes_of(number))
            work.set()
            number += 1

    threading.Thread(target=hand_over, daemon=True).start()
    done = spared = 0
    while True:
        spared += max(0, queue.queued_changes * SIZE - queue.queued_bytes)
        if not queue.work():
            work.wait()
            work.clear()
            continue
        for _ in range(queue.carried_out - done):
            room.release()
        done = queue.carried_out
        os.write(1, f"{done} {spared}\n".encode())


if __name__ == "__main__":
    main()
