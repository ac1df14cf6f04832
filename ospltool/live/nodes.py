"""One node as it showed itself last, and whether it can be heard."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Final

from engine.runtime.monitor import NameSpaceView, NodeSnapshot

MIN_STALE_NS: Final = 2_000_000_000


class Presence(enum.StrEnum):
    """Whether a node can be heard; the value is the word that people read.

    SILENT: nothing was heard for too long. STOPPED: it has ended in order. GONE: it went without a word.
    """

    HEARD = "heard"
    SILENT = "silent"
    STOPPED = "stopped"
    GONE = "gone"


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """The newest snapshot of one node, when it was heard, and since when it is gone (0: it is there).

    `in_order` says that it told that it ends before it went.
    `digests` maps a name-space to its digest and since when that digest is unchanged; `aligning` are the
    name-spaces with a running alignment. `heartbeats` says when it last had one of each fellow, by its clock;
    `is_settled` that it is complete and none of its name-spaces waits for anything.
    """

    snapshot: NodeSnapshot
    heard_ns: int
    gone_ns: int = 0
    in_order: bool = False
    name_spaces: Mapping[str, NameSpaceView] = dataclasses.field(default_factory=dict)
    digests: Mapping[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    aligning: tuple[NameSpaceView, ...] = ()
    heartbeats: Mapping[str, int] = dataclasses.field(default_factory=dict)
    is_settled: bool = False

    @property
    def id(self) -> str:
        """The node's 128-bit id as text."""
        return self.snapshot.id

    @property
    def stale_after_ns(self) -> int:
        """How long without a snapshot is still normal: two update periods, two seconds at least."""
        return max(2 * self.snapshot.update_period_ns, MIN_STALE_NS)

    def age_ns(self, now_ns: int) -> int:
        """Time since the node was heard."""
        return max(0, now_ns - self.heard_ns)

    def is_stale(self, now_ns: int) -> bool:
        """What is shown of the node may be out of date."""
        return self.presence(now_ns) is not Presence.HEARD

    def presence(self, now_ns: int) -> Presence:
        """Whether the node can be heard."""
        if self.gone_ns:
            return Presence.STOPPED if self.in_order else Presence.GONE
        return Presence.SILENT if self.age_ns(now_ns) > self.stale_after_ns else Presence.HEARD

    def shown_state(self, now_ns: int) -> str:
        """How the node is, in one word: its own state while it is heard, else what became of it."""
        presence = self.presence(now_ns)
        return self.snapshot.state if presence is Presence.HEARD else presence.value
