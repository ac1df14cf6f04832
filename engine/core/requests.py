"""Queue of the aligner: requests wait a little, so that one stream answers several.

Deployment guide 5.3.4 Parallel alignment, 5.5.7 sampleRequestHandler, 5.5.17 d_sampleRequest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

from engine.core.events import AligneeRequest

MAX_WAITING: Final = 4096
"""Requests that may wait; the aligner refuses further ones."""


@dataclasses.dataclass(slots=True)
class _Batch:
    """The requests for one name-space that one stream will answer."""

    due_s: float
    targets: dict[str, AligneeRequest] = dataclasses.field(default_factory=dict)


class RequestQueue:
    """Requests of fellows, by name-space, each batch with the end of its RequestCombinePeriod."""

    def __init__(self) -> None:
        self._batches: dict[str, _Batch] = {}
        self._waiting = 0

    def add(self, name_space: str, target: AligneeRequest, now: float, combine_s: float) -> bool:
        """Queue a request; False if the queue is full. A newer request of a node replaces its older one.

        The first request of a name-space waits `combine_s` seconds for others.
        """
        batch = self._batches.get(name_space)
        if batch is None:
            batch = self._batches[name_space] = _Batch(now + combine_s)
        if target.node not in batch.targets:
            if self._waiting >= MAX_WAITING:
                return False
            self._waiting += 1
        batch.targets[target.node] = target
        return True

    def waits(self, name_space: str) -> bool:
        """Whether a request for a name-space waits already."""
        return name_space in self._batches

    def drop(self, node: str) -> None:
        """Forget the requests of a lost fellow."""
        for name_space in sorted(self._batches):
            batch = self._batches[name_space]
            if batch.targets.pop(node, None):
                self._waiting -= 1
            if not batch.targets:
                del self._batches[name_space]

    def due(
        self, now: float, is_ready: Callable[[str], bool]
    ) -> list[tuple[str, tuple[AligneeRequest, ...]]]:
        """Take the batches whose period is over and whose name-space is complete."""
        due = [name for name in sorted(self._batches) if is_ready(name) and now >= self._batches[name].due_s]
        answers: list[tuple[str, tuple[AligneeRequest, ...]]] = []
        for name in due:
            batch = self._batches.pop(name)
            self._waiting -= len(batch.targets)
            answers.append((name, tuple(batch.targets[node] for node in sorted(batch.targets))))
        return answers

    def next_due(self, is_ready: Callable[[str], bool]) -> float | None:
        """Return when the next batch that can be answered is due."""
        return min((batch.due_s for name, batch in self._batches.items() if is_ready(name)), default=None)
