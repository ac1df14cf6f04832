"""The rule of the diagnosis on PERSISTENT data that nodes keep in memory only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.runtime.monitor import NameSpaceView, NodeSnapshot
from ospltool.doctor.picture import DoctorCause, DoctorFinding, Weight

_MOST_TOPICS = 5
_NO_DISK = "there is no store on disk", "a StoreDirectory"


def kept_in_memory(nodes: Sequence[NodeSnapshot]) -> Iterator[DoctorFinding]:
    """Find PERSISTENT data that nodes do not write to disk, one finding for each reason."""
    topics: dict[tuple[str, str], set[str]] = {}
    names: dict[tuple[str, str], dict[str, None]] = {}
    for node in nodes:
        reasons = {space.name: _reason(node, space) for space in node.name_spaces}
        for group in node.groups:
            reason = reasons.get(group.name_space)
            if reason and group.durability == "PERSISTENT":
                topics.setdefault(reason, set()).add(group.topic)
                names.setdefault(reason, {})[node.name] = None
    for (why, advice), found in topics.items():
        shown, who = sorted(found), names[why, advice]
        listed, word = ", ".join(shown[:_MOST_TOPICS]), "topic" if len(shown) == 1 else "topics"
        more = f" and {len(shown) - _MOST_TOPICS:,} more" if len(shown) > _MOST_TOPICS else ""
        yield DoctorFinding(
            DoctorCause.MEMORY_ONLY,
            Weight.INFO,
            "",
            f"{', '.join(who)} {'keeps' if len(who) == 1 else 'keep'} PERSISTENT data in memory only, "
            f"because {why}: {word} {listed}{more}",
            f"{advice}, if it must survive a restart of all nodes",
            nodes=tuple(who),
        )


def _reason(node: NodeSnapshot, space: NameSpaceView) -> tuple[str, str] | None:
    """Return why a node keeps PERSISTENT data of a name-space in memory only, and the advice."""
    if space.durability == "Transient":
        where = f"'{space.name}'"
        return f"the policy of name-space {where} is Transient", f'durability="Persistent" for {where}'
    return _NO_DISK if node.store.kind == "memory" else None
