"""Compare the settled content of this node's sets with that of its fellows, while others write.

For each name-space a heartbeat states the sender's set as of a moment ago (`SETTLING_NS`), by the clock of
the master. A receiver computes its own set as of the same moment and tells the core whether the two are
equal. A node that is behind with its samples neither states nor compares anything, because comparisons must
not add work on a busy machine. See `engine.dataset.settling`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from engine.core.fellows import Fellow
from engine.core.messages import Message, Outgoing, RollUp, Settled, Status
from engine.dataset.settling import border_before
from engine.runtime.name_space_data import NameSpaceData
from engine.runtime.pending_writers import PendingWriters
from engine.runtime.shared_state import SharedState

SETTLING_NS: Final = 1_000_000_000
"""Age at which a sample should have reached every node."""


class Agreement:
    """The comparison of settled sets with each heartbeat."""

    def __init__(self, shared: SharedState, pending: PendingWriters) -> None:
        self._shared = shared
        self._pending = pending
        self._heard: dict[str, Status] = {}

    def announced(self, outgoing: Outgoing) -> Outgoing:
        """Return the message to send: complete a heartbeat (`Status`), and leave any other as it is.

        A heartbeat gets the count and digest of the settled part of each set, the seconds that the disk is
        behind, the transactions of its store, and the writers whose pending samples clients may hand over.
        """
        message = outgoing.message
        if not isinstance(message, Status):
            return outgoing
        roll_ups = tuple(map(self._with_settled, message.roll_ups))
        unstored_s = self._shared.store_queue.unstored_s(self._shared.clock.monotonic())
        message = msgspec.structs.replace(
            message,
            roll_ups=roll_ups,
            unstored_s=round(unstored_s, 3),
            pending=self._pending.for_heartbeat(),
            commits=self._shared.store_queue.commits,
        )
        return Outgoing(message, outgoing.to)

    def _with_settled(self, roll_up: RollUp) -> RollUp:
        data = self._shared.spaces.get(roll_up.name_space)
        if data is None:
            return roll_up
        self._advance(data)
        if self._shared.is_behind:
            return roll_up
        until_ns = border_before(data.present.now_ns - SETTLING_NS)
        return msgspec.structs.replace(roll_up, settled=Settled(until_ns, *data.settled(until_ns)))

    def _advance(self, data: NameSpaceData) -> None:
        """Advance the time of a name-space, and settle the samples that are old enough by then.

        Every node estimates the clock of the master, so that all settle the same samples. A node without a
        master uses its own clock.
        """
        following = data.state.following
        master = self._shared.core.fellow(following.node) if following is not None else None
        data.present.follow(master.skew_ns if master is not None else 0)
        data.present.advance(self._shared.steady_ns())
        data.applied.settle_with(data.present)

    def heard(self, message: Message, sender: str) -> bool:
        """Queue a received heartbeat for comparison; True if it differs from the sets here.

        `work` compares it later, once the samples written before it have been taken in.
        """
        if not isinstance(message, Status):
            return False
        self._heard[sender] = message
        spaces = self._shared.spaces
        for theirs in message.roll_ups:
            data = spaces.get(theirs.name_space)
            if data is not None:
                ours = data.applied.summary() if data.has_changed else data.state.roll_up
                if theirs.digest != ours.digest or theirs.count != ours.count:
                    return True
        return False

    def work(self, now: float) -> None:
        """Compare with the heartbeats that have come since the last call."""
        if not self._heard:
            return
        heard, self._heard = self._heard, {}
        if self._shared.is_behind:
            return
        for sender, message in heard.items():
            fellow = self._shared.core.fellow(sender)
            if fellow is not None and fellow.status is message:  # otherwise a newer one has come
                self._compare(fellow, message, now)

    def _compare(self, fellow: Fellow, message: Status, now: float) -> None:
        core = self._shared.core
        for theirs in message.roll_ups:
            data = self._shared.spaces.get(theirs.name_space)
            if data is None or not theirs.complete or not data.state.complete:
                continue
            settled = theirs.settled
            if settled is not None and settled.until_ns > data.present.kept_ns:
                is_equal = data.settled(settled.until_ns) == (settled.count, settled.digest)
                core.compared(theirs.name_space, fellow.node, settled.until_ns, now, is_equal=is_equal)
