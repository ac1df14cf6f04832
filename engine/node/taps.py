"""The taps of a process: what is captured, one for each topic and type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.dds.qos import incompatibilities
from engine.dds.tap import CaptureReader
from engine.dds.topics import open_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.core.namespaces import Group
    from engine.dataset.groups import GroupDescription
    from engine.dds.participant import NodeParticipant
    from engine.dds.qos import EndpointQos
    from engine.dds.waiting import Signal

TAP_BYTES: Final = 16 << 20
"""What may wait in a tap; then its writers are held back."""


class Taps:
    """Opened by one thread, and looked at by others.

    Args:
        participant: where they live.
        signal: set when one of them has something.
    """

    def __init__(self, participant: NodeParticipant, signal: Signal) -> None:
        self._participant = participant
        self._signal = signal
        self._taps: dict[tuple[str, str], CaptureReader] = {}

    def __iter__(self) -> Iterator[CaptureReader]:
        return iter(list(self._taps.values()))

    def open(self, description: GroupDescription) -> None:
        """Make the tap of a group's topic and type, if there is none yet."""
        key = (description.group.topic, description.type.type_id)
        if key not in self._taps:
            topic = open_topic(self._participant, description.group.topic, description.type)
            self._taps[key] = CaptureReader(
                self._participant,
                topic,
                capacity_bytes=TAP_BYTES,
                exclusive=description.qos.exclusive,
                durability=description.qos.requested,
                signal=self._signal,
            )

    def refusals(self, group: Group, offer: EndpointQos) -> tuple[str, ...] | None:
        """The policies because of which a writer does not match the tap of a group; None without a tap."""
        tap = self._taps.get((group.topic, group.type_id))
        return None if tap is None else incompatibilities(offer, tap.qos)

    def has_news(self) -> bool:
        """Whether one of them has something."""
        return any(len(tap) for tap in self)

    def close(self) -> None:
        """Capture nothing any more."""
        for tap in self:
            tap.close()
