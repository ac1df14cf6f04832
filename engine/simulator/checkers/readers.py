"""I10: late joiners are served from complete sets, and none is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.states import Phase
from engine.simulator.checkers.base import Checker

if TYPE_CHECKING:
    from engine.core.messages import ReaderKey
    from engine.simulator.node import SimulatedNode


class DeliveryChecker(Checker):
    """Checks the deliveries to late joiners."""

    invariant = "I10"
    meaning = "late joiners are served, and from complete sets only"

    def serving(self, node: SimulatedNode, reader: ReaderKey, *, whole: bool) -> None:
        """Check a delivery at its start. A whole set must be complete."""
        assert node.runtime is not None
        state = node.runtime.spaces[reader.name_space].state
        # A merge that began in the same turn has not changed the set yet, and its result follows.
        if whole and not (state.holder and state.phase in (Phase.COMPLETE, Phase.MERGE)):
            self.fail(f"{node.name} serves {reader.topic} of {reader.name_space} in phase {state.phase}")
        if whole and not state.has_obtained(reader.elements):
            self.fail(f"{node.name} serves {reader.topic} of {reader.name_space}, which it has not obtained")

    def settled(self) -> None:
        """Check that every reader's process got the set of each name-space that it reads."""
        for reader in self.cluster.all_readers:
            wanted: set[ReaderKey] = set()
            for node in self.cluster.up():
                assert node.runtime is not None
                serving = node.runtime.serving
                wanted.update(serving.reader_keys(reader.participant_id, reader.topic, reader.partitions))
            served = {key for key, _, _ in reader.served}
            if reader.participant.is_alive and not wanted <= served:
                names = ", ".join(sorted(key.name_space for key in wanted - served))
                self.fail(f"{reader.name} never got {reader.topic} of {names}")
