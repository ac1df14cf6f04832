"""What incidents may be about: to tell a mute that can match something from a mistyped one."""

from __future__ import annotations

from collections.abc import Iterator

from ospltool.health.health import Health
from ospltool.health.signs.services import called


def is_known(health: Health, who: str) -> bool:
    """Return whether the fleet file, the domain or an incident knows a subject, or both of a pair."""
    names = set(known(health))
    return who in names or all(one in names for one in who.split(" and "))


def known(health: Health) -> Iterator[str]:
    """Yield the subjects that incidents may have: of nodes also those that only their fellows know."""
    model = health.model
    yield from health.awaited
    yield from (one.name for one in health.expected.name_spaces)
    for node in model.ordered_nodes():
        yield node.snapshot.name
        yield from (fellow.name for fellow in node.snapshot.fellows)
    yield from model.name_space_names()
    for group in model.groups.ordered():
        yield f"{group.partition}.{group.topic}" if group.partition else group.topic
    for service in model.persistence.ordered():
        yield called(service.view)
        yield from (f"subscription {one.name}" for one in service.view.subscriptions)
    yield from ("domain", "watcher")
    yield from (one.who for one in health.every)
