"""Whether a system starts, or comes back after the loss of all: nodes that are missing may still come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ospltool.health.codes import SECOND_NS
from ospltool.live.feed import ENDING
from ospltool.live.model import SystemModel
from ospltool.live.nodes import Node
from ospltool.live.supervision import START_NS, SupervisorReport

SLOW_START_NS: Final = 60 * SECOND_NS
"""Longest normal start of a node."""

STANDING_NS: Final = 4 * SECOND_NS
"""Time without progress of any node after which the others do not come with them."""


class Gathering:
    """The start of a system, or its return after the loss of all. It must be told of each moment.

    It is over once no node that is heard makes progress, and does not go on until nobody is heard any more: a
    node that is started again later does not excuse those that are missing.
    """

    def __init__(self) -> None:
        self._found_ns = -1
        self._is_over = False

    def goes_on(
        self,
        model: SystemModel,
        now_ns: int,
        heard: Sequence[Node],
        unheard: Mapping[str, SupervisorReport | None],
    ) -> bool:
        """Return whether nodes that are missing may still come.

        Args:
            model: the system.
            now_ns: not earlier than at the last call.
            heard: the nodes that are heard.
            unheard: the awaited nodes that were never heard, with the reports of their supervisors.
        """
        starts_ns = [
            now_ns - one.started_ns if one is not None and one.is_starting else SLOW_START_NS
            for one in unheard.values()
            if one is None or not one.in_order
        ]
        come = bool(starts_ns) and max(starts_ns) < SLOW_START_NS
        if not heard or model.outages.found_ns != self._found_ns:
            self._found_ns, self._is_over = model.outages.found_ns, False
        if not heard:
            return come or (bool(starts_ns) and min(starts_ns) < START_NS)
        moved_ns = max(model.outages.found_ns, *(node.moved_ns for node in heard))
        stands = now_ns - moved_ns >= STANDING_NS
        if model.outages.found_ns < 0:
            oldest_ns = max(map(_run_ns, heard)) + now_ns
            is_early = oldest_ns < START_NS or any(map(_is_on_its_way, heard))
            stands = oldest_ns >= SLOW_START_NS or (stands and not (come or is_early))
        self._is_over = self._is_over or stands
        return not self._is_over


def _run_ns(node: Node) -> int:
    """Return for how long a node has run, less the present moment by the feed's clock."""
    return node.snapshot.time_ns - node.snapshot.started_ns - node.heard_ns


def _is_on_its_way(node: Node) -> bool:
    """Return whether a node is about to be complete."""
    return node.snapshot.state not in ("COMPLETE", *ENDING)
