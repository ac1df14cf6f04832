"""Signs of the domain as a whole, and of the watcher."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ospltool.health.codes import SECOND_NS, Sign, continue_them, joined
from ospltool.health.scene import Scene
from ospltool.health.signs.losses import OWN_LINK, broken_link, cause_of_domain_loss
from ospltool.live.nodes import Presence
from ospltool.output.text import plural

LEFT_OUT_NS: Final = 5 * SECOND_NS
"""Time for which the loss of a message by the watcher is told: what is too large is lost again and again."""


def of_domain(scene: Scene) -> Iterator[Sign]:
    """Yield the signs about the domain as a whole, and about the watcher."""
    model, lost = scene.model, [one for one in scene.nodes if scene.presence(one) is not Presence.STOPPED]
    if (model.domain_lost_ns and not model.all_stopped) or (
        lost and not scene.heard and (model.link_lost or model.is_silent(scene.now_ns))
    ):
        lost_ns = model.domain_lost_ns or scene.now_ns
        heard_ns = [node.heard_ns for node in model.nodes.values() if not node.in_order]
        since_ns = min(lost_ns, max(heard_ns, default=lost_ns))
        nodes = tuple(model.nodes)
        silent_ns = max((one.all_lost_after_ns for one in lost), default=0)
        link = broken_link(scene, since_ns + silent_ns, since_ns)
        are_dead = bool(lost) and all(one.snapshot.name in scene.ends for one in lost)
        yield Sign(
            "DUL-DOMAIN-LOST", "domain", "this watch hears no node any more", since_ns, nodes,
            why="" if are_dead else link, guess=cause_of_domain_loss(scene),
            next=OWN_LINK if link else stopped_processes(scene, [one.snapshot.name for one in lost]),
        )  # fmt: skip
    if model.left_out_ns and scene.now_ns - model.left_out_ns < LEFT_OUT_NS:
        what = f"{plural(model.messages_left_out, 'message')} not shown: no room, or unreadable"
        yield Sign("DUL-MESSAGES-LOST", "watcher", what)


def stopped_processes(scene: Scene, names: Iterable[str]) -> str:
    """Return the advice about the stopped processes of nodes on this machine; empty without any."""
    reports = {name: scene.reports.get(name) for name in names}
    stopped = {name: report.stopped for name, report in reports.items() if report and report.stopped}
    if not stopped:
        return ""
    them = "the process" if len(stopped) == 1 else "the processes"
    return continue_them(
        f"{them} of {joined(list(stopped))}", [pid for each in stopped.values() for pid in each]
    )
