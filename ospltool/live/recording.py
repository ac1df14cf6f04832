"""Recordings: lines of JSON, each with the moment it was heard (`heard_ns`), in the order of those moments.

Only the nodes below a key may be older: they keep the moment at which they were heard.

| kind       | data                                                                     |
|------------|--------------------------------------------------------------------------|
| recording  | first line: what was recorded, by which version                           |
| key        | everything known stands below, whole: reading can begin here              |
| node       | a whole snapshot, as on the monitor topic                                 |
| node-delta | `id`, and `patch` from the node's snapshot before it                      |
| event      | an event, as on the monitor topic                                         |
| notice     | what the feed had to say                                                  |
| caption    | a sentence for the reader                                                 |
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

from engine.core import plain
from engine.runtime import monitor
from engine.runtime.monitor import NodeEvent, NodeSnapshot
from ospltool.live.feed import Notice
from ospltool.live.patch import PatchFault, difference, patched

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""A longer line is no line of a recording."""

KEY_MARK: Final = b'{"format_version":1,"kind":"key"'
"""How every line with a key begins, so that keys are found without reading what is between them."""


class RecordingFault(ValueError):
    """A recording that can not be read or written; the text names file and line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """The first line of a recording."""

    source: str
    made_by: str


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """From here on the recording can be read without what is before. `nodes` stand whole below."""

    nodes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Caption:
    """A sentence for the reader."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class NodeState:
    """A whole snapshot in its plain form."""

    plain: dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class NodeDelta:
    """What changed in a node's snapshot."""

    id: str
    patch: Any


Item = Header | Key | NodeState | NodeDelta | NodeEvent | Notice | Caption


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One line of a recording."""

    heard_ns: int
    item: Item


_PLAIN_KINDS: Final[dict[str, type[Any]]] = {
    "recording": Header,
    "key": Key,
    "event": NodeEvent,
    "notice": Notice,
    "caption": Caption,
}
_NAMES: Final = {kind: name for name, kind in _PLAIN_KINDS.items()}


def encode_line(heard_ns: int, item: Item) -> bytes:
    """One line with its line end."""
    data: Any
    if isinstance(item, NodeState):
        kind, data = "node", item.plain
    elif isinstance(item, NodeDelta):
        kind, data = "node-delta", {"id": item.id, "patch": item.patch}
    else:
        kind, data = _NAMES[type(item)], plain.to_plain(item)
    document = {"format_version": monitor.FORMAT_VERSION, "kind": kind, "heard_ns": heard_ns, "data": data}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def decode_line(line: bytes, where: str) -> Entry:
    """The entry in `line`; `where` names file and line in an error.

    Raises:
        RecordingFault: not a line of a recording.
    """
    try:
        document: Any = json.loads(line)
        if document["format_version"] != monitor.FORMAT_VERSION:
            raise ValueError(f"format {document['format_version']!r} is not {monitor.FORMAT_VERSION}")
        heard_ns = document["heard_ns"]
        if type(heard_ns) is not int:
            raise TypeError(f"heard_ns {heard_ns!r} is not an integer")
        return Entry(heard_ns, _item(document["kind"], document["data"]))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
        raise RecordingFault(f"{where}: not a line of a recording: {reason}") from error


def _item(kind: str, data: Any) -> Item:
    if kind == "node":
        if not isinstance(data, dict) or not isinstance(data.get("id"), str):
            raise ValueError("a node without an id")
        return NodeState(data)
    if kind == "node-delta":
        if type(data["id"]) is not str:
            raise ValueError("a node without an id")
        return NodeDelta(data["id"], data["patch"])
    if kind not in _PLAIN_KINDS:
        raise ValueError(f"kind {kind!r} is none of ours")
    item: Item = plain.from_plain(_PLAIN_KINDS[kind], data)
    return item


class Snapshots:
    """The newest snapshot of each node in its plain form, kept up with states and deltas."""

    def __init__(self) -> None:
        self._plain: dict[str, dict[str, Any]] = {}

    def __len__(self) -> int:
        return len(self._plain)

    def clear(self) -> None:
        """Forget all nodes."""
        self._plain.clear()

    def encode(self, snapshot: NodeSnapshot) -> NodeState | NodeDelta:
        """How a recorder writes this snapshot: as a delta when the node is known."""
        new = plain.to_plain(snapshot)
        old = self._plain.get(snapshot.id)
        self._plain[snapshot.id] = new
        return NodeState(new) if old is None else NodeDelta(snapshot.id, difference(old, new) or {})

    def states(self) -> list[NodeState]:
        """All nodes, whole."""
        return [NodeState(value) for value in self._plain.values()]

    def take(self, item: NodeState | NodeDelta) -> str:
        """Note a line that was read; the id of its node.

        Raises:
            PatchFault: a delta without the state that it changes, or for another.
        """
        if isinstance(item, NodeState):
            self._plain[item.plain["id"]] = item.plain
            return str(item.plain["id"])
        if item.id not in self._plain:
            raise PatchFault(f"a delta for node {item.id!r}, of which no state stands above")
        changed = patched(self._plain[item.id], item.patch)
        if not isinstance(changed, dict) or changed.get("id") != item.id:
            raise PatchFault(f"a delta that makes another node of {item.id!r}")
        self._plain[item.id] = changed
        return item.id

    def decode(self, node: str) -> NodeSnapshot:
        """The snapshot of a node as it stands now.

        Raises:
            PlainFault: it is no snapshot.
        """
        snapshot: NodeSnapshot = plain.from_plain(NodeSnapshot, self._plain[node])
        return snapshot
