"""What nodes told of the fellows that they lost, which those who come late learn from their pasts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from engine.runtime.monitor import NodeEvent
from ospltool.live.model import SystemModel

IN_ORDER: Final = "it is terminating"
"""The reason of a fellow that had announced its end."""


class Parting(NamedTuple):
    """The event of a node that lost a fellow, with the name of that and the reason."""

    event: NodeEvent
    fellow: str
    reason: str


def partings(model: SystemModel) -> Iterator[Parting]:
    """Yield the partings that nodes told, newest first."""
    for one in reversed(model.events):
        if one.event == "fellow.disconnected":
            name, _, reason = one.text.removeprefix("Removing confirmed fellow ").partition(". Reason: ")
            yield Parting(one, name, reason.removesuffix("."))


def parted_ns(model: SystemModel) -> dict[tuple[str, str], int]:
    """Return when a node (id) told last that it lost a fellow (name), by the node's clock."""
    found: dict[tuple[str, str], int] = {}
    for one in partings(model):
        found.setdefault((one.event.node, one.fellow), one.event.time_ns)
    return found


def last_parting_ns(model: SystemModel, fellow: str, after_ns: int) -> int:
    """Return when the last node told after a moment that it lost a fellow (name) unannounced; 0 for never."""
    for one in partings(model):
        if one.event.time_ns <= after_ns:
            break
        if one.fellow == fellow:
            return 0 if one.reason == IN_ORDER else one.event.time_ns
    return 0
