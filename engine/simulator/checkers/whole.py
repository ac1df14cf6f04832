"""I5: COMPLETE is never announced on a part of a set, nor on more than a set.

- Who aligned has all of a set that a complete node gave to it, and besides that only what it captured itself
  and what its own store held: nothing comes from a set that arrived in part.
- A node that injected has all that could be read of its stored set, but what it forgets in the same moment.
- Neither holds where in the same moment a set turns out to have evolved apart, and the policy is Delete.
- Who gives a set to somebody that aligns has a complete set itself.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Final

from engine.core.states import Phase
from engine.simulator.checkers.base import (
    Checker,
    Held,
    deletes,
    describe,
    held,
    is_ours,
    missing,
    samples_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.dataset.captured import CapturedSample
    from engine.dataset.sample import Sample
    from engine.runtime.startup import StoredContent
    from engine.simulator.checkers.base import Standing
    from engine.simulator.node import SimulatedNode
    from engine.simulator.system import SimulatedSystem

Captured = tuple[int, bytes, int, bytes]
MAX_SETS: Final = 4
"""Limit for remembered sets sent to one node; the one that completes it is among the last."""


class Whole(Checker):
    """Compares a set at its announcement with the set that it should be."""

    invariant = "I5"
    meaning = "COMPLETE is never announced on a partial set"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._given: dict[tuple[str, str], collections.deque[Held]] = {}
        self._captured: dict[SimulatedNode, set[Captured]] = {}
        self._stored: dict[SimulatedNode, dict[str, Held]] = {}

    def opened(self, node: SimulatedNode, found: StoredContent) -> None:
        """Remember the stored sets with which a run begins."""
        self._stored[node] = {name: held(data) for name, (data, _) in found.sets.items()}
        self._captured[node] = set()
        for key in [key for key in self._given if key[0] == node.id]:
            del self._given[key]

    def captured(self, node: SimulatedNode, records: Sequence[CapturedSample]) -> None:
        """Remember samples that the node captured."""
        self._captured[node].update((r.source_time_ns, r.writer, r.status, r.key) for r in records)

    def streaming(self, node: SimulatedNode, name_space: str, fellows: tuple[str, ...], size: int) -> None:
        """Remember the sets sent to each fellow."""
        assert node.runtime is not None
        data = node.runtime.spaces[name_space]
        given = held(data.working)
        for fellow in fellows:
            key = (fellow, name_space)
            self._given.setdefault(key, collections.deque(maxlen=MAX_SETS)).append(given)
            receiver = next((each for each in self.cluster.up() if each.id == fellow), None)
            state = receiver.runtime.spaces.get(name_space) if receiver and receiver.runtime else None
            is_asked = (
                state is not None and state.state.aligner == node.id
            )  # else it is not expected any more
            if state and is_asked and state.state.phase is Phase.ALIGN and not data.state.complete and size:
                self.fail(f"{node.name} gives {name_space} to {receiver} without being complete")

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """Check a set when its node becomes complete for the first time in a run."""
        if before is None or before.holder or not now.holder:
            return
        has_decided = now.lineage.node == node.id and now.lineage != now.following
        if deletes(node, name_space) and (has_decided or self._is_deleted(node, name_space)):
            return
        if now.is_aligned:
            self._check_aligned(node, name_space)
        else:
            self._check_injected(node, name_space)

    def _is_deleted(self, node: SimulatedNode, name_space: str) -> bool:
        """Tell whether a set has only samples that applications wrote lately."""
        assert node.runtime is not None
        captured = self._captured[node]
        return all(
            _key(sample) in captured for _, sample in samples_of(node.runtime.spaces[name_space].working)
        )

    def _check_aligned(self, node: SimulatedNode, name_space: str) -> None:
        assert node.runtime is not None
        working, state = (data := node.runtime.spaces[name_space]).working, data.state
        given = self._given.get((node.id, name_space), ())
        misses = [[one for one in missing(each, working) if state.has_group(one[0])] for each in given]
        whole = [each for each, lost in zip(given, misses, strict=True) if not lost]
        if not whole:
            closest = min(misses, key=len, default=[])
            text = f"misses {len(closest)} samples: {describe(closest)}" if given else "nobody gave it a set"
            self.fail(f"{node.name} is complete in {name_space} but {text}")
        captured = self._captured[node]
        whole.append(self._stored[node].get(name_space, {}))
        extra = [
            (group, sample)
            for group, sample in samples_of(working)
            if not any((group, sample.digest) in each for each in whole) and _key(sample) not in captured
        ]
        if extra:
            text = "has what neither its aligner, its store nor an application gave to it"
            self.fail(f"{node.name} is complete in {name_space} but {text}: {describe(extra)}")

    def _check_injected(self, node: SimulatedNode, name_space: str) -> None:
        assert node.runtime is not None
        stored = self._stored[node].get(name_space, {})
        working = node.runtime.spaces[name_space].working
        lost = [one for one in missing(stored, working) if is_ours(node, one[0])]
        lost = [one for one in lost if not self.cluster.ledger.is_purged(working, *one)]
        if lost:
            text = f"injected {name_space} without a part of its stored set"
            self.fail(f"{node.name} {text}: {describe(lost)}")


def _key(sample: Sample) -> Captured:
    return (sample.source_time_ns, sample.writer, sample.status, sample.key)
