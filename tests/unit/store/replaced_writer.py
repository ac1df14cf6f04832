"""The child of a kill test: writes large samples faster than the disk takes them, and says what is on disk.

After each transaction it prints how many changes are on disk, and how many bytes of payload it found let go.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
from pathlib import Path
from typing import Final

from engine.dataset.sample import Sample
from engine.node.disk import open_store
from engine.runtime.store_queue import StoreQueue
from engine.store.interface import LET_GO_BYTES, GroupChange
from tests.unit.store.making import description, sample

SPACE: Final = "space"


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """Samples of `size` bytes, of each of `instances` in turn, of which the newest stays."""

    size: int
    instances: int
    most_waiting: int

    def large(self, number: int) -> Sample:
        """The sample of that number."""
        return sample(number, payload_bytes=self.size)

    def changes_of(self, number: int) -> list[GroupChange]:
        """Sample `number` comes; of each instance the newest stays."""
        gone = [self.large(number - self.instances)] if number >= self.instances else []
        return [GroupChange(description(), self.large(number), gone)]

    def content_after(self, count: int) -> set[Sample]:
        """What the set holds after that many changes."""
        return {self.large(number) for number in range(max(0, count - self.instances), count)}


LOADS: Final = {
    "replaced": Load(2 * LET_GO_BYTES, instances=40, most_waiting=1_000),
    "new": Load(1 << 20, instances=1_000_000, most_waiting=8),
}


def main() -> None:
    """Write for ever; one thread hands over and another one writes, as in a node."""
    load = LOADS[sys.argv[2]]
    store = open_store(Path(sys.argv[1]), "child")
    store.commit_complete(store.begin_set(SPACE))
    queue = StoreQueue(store)
    room, work = threading.Semaphore(load.most_waiting), threading.Event()

    def hand_over() -> None:
        number = 0
        while True:
            room.acquire()
            queue.append(SPACE, load.changes_of(number))
            work.set()
            number += 1

    threading.Thread(target=hand_over, daemon=True).start()
    done = spared = 0
    while True:
        spared += max(0, queue.queued_changes * load.size - queue.queued_bytes)
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
