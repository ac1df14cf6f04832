"""Recordings: lines of JSON, each with the moment it was heard (`heard_ns`), in the order of those moments.

Only the nodes below a key may be older: they keep the moment at which they were heard.

| kind           | data                                                                 |
|----------------|----------------------------------------------------------------------|
| recording      | first line: the recorded system, and the recorder's version          |
| key            | all known states follow, whole: reading can begin here               |
| node           | a whole snapshot, as on the monitor topic                            |
| node-delta     | `id`, and `patch` from the node's snapshot before it                 |
| replica        | what a replica of a persistence service shows of itself, whole       |
| replica-delta  | `id`, and `patch` from what the replica showed before                |
| event          | an event, as on the monitor topic                                    |
| past           | masterships and runs that a node remembers, as on its topic          |
| notice         | a message from the feed itself                                       |
| caption        | a sentence for the reader                                            |

A patch is small enough to record many of them each second. It is a list, which stands for the value itself
(`[value]`) or its absence (`[]`), or an object, which has the patches of those members of an object or array
that changed.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import marshal
from typing import Any, Final

from engine.core import plain
from engine.persistence.service.replica_view import ReplicaView
from engine.runtime import monitor
from engine.runtime.monitor import NodeEvent, NodePast, NodeSnapshot
from ospltool.live.expectation import NOTHING, Expectation
from ospltool.live.feed import FeedNotice, HeardReplica, ReceivedSnapshot


class PatchFault(ValueError):
    """A patch that does not fit the value it is applied to."""


def difference(old: Any, new: Any) -> Any:
    """Return the patch that turns `old` into `new`; None if they are the same JSON value.

    False and 0, or 1 and 1.0, are not the same, although Python calls them equal.
    """
    if type(old) is not type(new):
        return [new]
    if old == new and _bytes(old) == _bytes(new):  # most values are the same, and this is quick
        return None
    if isinstance(old, dict):
        found = {key: difference(old[key], value) if key in old else [value] for key, value in new.items()}
        found |= {key: [] for key in old if key not in new}
    elif isinstance(old, list) and len(old) == len(new):
        pairs = zip(old, new, strict=True)
        found = {str(index): difference(a, b) for index, (a, b) in enumerate(pairs)}
    else:
        return None if old == new else [new]
    return {key: part for key, part in found.items() if part is not None} or None


def _bytes(value: Any) -> bytes:
    """Return bytes that differ if the JSON values differ, and may differ although they do not."""
    return marshal.dumps(value, 2)


def patched(old: Any, patch: Any) -> Any:
    """Return `old` with `patch` applied. `old` itself is not changed.

    Raises:
        PatchFault: the patch was made for another value.
    """
    if patch is None:
        return old
    if isinstance(patch, list):
        if len(patch) != 1:
            raise PatchFault(f"a patch of {len(patch)} values")
        return patch[0]
    if not isinstance(patch, dict):
        raise PatchFault(f"a patch cannot be {type(patch).__name__}")
    if isinstance(old, dict):
        return _patched_object(old, patch)
    if isinstance(old, list):
        result = list(old)
        for index, part in patch.items():
            position = int(index) if index.isascii() and index.isdigit() else -1
            if not 0 <= position < len(result):
                raise PatchFault(f"a patch for member {index!r} of {len(result)}")
            result[position] = patched(result[position], part)
        return result
    raise PatchFault(f"a patch for the members of {type(old).__name__}")


def _patched_object(old: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    result = dict(old)
    for key, part in patch.items():
        if part == [] and isinstance(part, list):
            result.pop(key, None)
        elif isinstance(part, dict) and key not in result:
            raise PatchFault(f"a patch for {key!r}, which does not exist")
        else:
            result[key] = patched(result.get(key), part)
    return result


MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""A longer line is not a line of a recording."""

KEY_MARK: Final = b'{"format_version":1,"kind":"key"'
"""The first bytes of every line with a key, to find keys without decoding the lines between them."""


class RecordingFault(ValueError):
    """A recording that cannot be read or written; the text names file and line."""


@dataclasses.dataclass(frozen=True, slots=True)
class RecordingHeader:
    """The first line of a recording. `expected` is what the recorder's fleet file says should be there."""

    source: str
    made_by: str
    expected: Expectation = NOTHING


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """A place from which the recording can be read. The states of N nodes and N instances follow, whole."""

    nodes: int
    replicas: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Caption:
    """A sentence for the reader."""

    text: str


class SenderKind(enum.StrEnum):
    """Kind of a sender."""

    NODE = "node"
    REPLICA = "replica"


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedState:
    """The whole state of a sender in its plain form."""

    plain: dict[str, Any]
    of: SenderKind = SenderKind.NODE


@dataclasses.dataclass(frozen=True, slots=True)
class Delta:
    """The change from the state before."""

    id: str
    patch: Any
    of: SenderKind = SenderKind.NODE


Shown = tuple[SenderKind, str]
"""Identity of a sender: kind and id."""

Item = RecordingHeader | Key | RecordedState | Delta | NodeEvent | NodePast | FeedNotice | Caption


@dataclasses.dataclass(frozen=True, slots=True)
class RecordingLine:
    """One line of a recording."""

    heard_ns: int
    item: Item


_PLAIN_KINDS: Final[dict[str, type[Any]]] = {
    "recording": RecordingHeader,
    "key": Key,
    "event": NodeEvent,
    "past": NodePast,
    "notice": FeedNotice,
    "caption": Caption,
}
_DELTA: Final = "-delta"
_STATES: Final = {of.value: of for of in SenderKind} | {"instance": SenderKind.REPLICA}
"""Release 0.1 called a replica an instance."""
_DELTAS: Final = {name + _DELTA: of for name, of in _STATES.items()}
_NAMES: Final = {kind: name for name, kind in _PLAIN_KINDS.items()}


def encode_line(heard_ns: int, item: Item) -> bytes:
    """Encode one line with its line end."""
    data: Any
    if isinstance(item, RecordedState):
        kind, data = item.of.value, item.plain
    elif isinstance(item, Delta):
        kind, data = item.of.value + _DELTA, {"id": item.id, "patch": item.patch}
    else:
        kind, data = _NAMES[type(item)], plain.to_plain(item)
    document = {"format_version": monitor.FORMAT_VERSION, "kind": kind, "heard_ns": heard_ns, "data": data}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def decode_line(line: bytes, where: str) -> RecordingLine:
    """Decode a line; `where` names file and line in an error.

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
        return RecordingLine(heard_ns, _item(document["kind"], document["data"]))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
        raise RecordingFault(f"{where}: not a line of a recording: {reason}") from error


def _item(kind: str, data: Any) -> Item:
    if kind in _STATES:
        if not isinstance(data, dict) or not isinstance(data.get("id"), str):
            raise ValueError(f"{kind} without an id")
        return RecordedState(data, _STATES[kind])
    if kind in _DELTAS:
        if type(data["id"]) is not str:
            raise ValueError(f"{kind} without an id")
        return Delta(data["id"], data["patch"], _DELTAS[kind])
    if kind not in _PLAIN_KINDS:
        raise ValueError(f"kind {kind!r} is unknown")
    item: Item = plain.from_plain(_PLAIN_KINDS[kind], data)
    return item


class Snapshots:
    """The newest of what each node and replica shows, in its plain form, kept up with states and deltas."""

    def __init__(self) -> None:
        self._plain: dict[Shown, dict[str, Any]] = {}

    def __len__(self) -> int:
        return len(self._plain)

    def copy(self) -> Snapshots:
        """Return an independent copy."""
        found = Snapshots()
        found._plain.update(self._plain)
        return found

    def encode(self, shown: NodeSnapshot | ReplicaView) -> RecordedState | Delta:
        """Return what a recorder writes: a delta if there was a state before, else the state."""
        key = key_of(shown)
        new = plain.to_plain(shown)
        old = self._plain.get(key)
        self._plain[key] = new
        if old is None:
            return RecordedState(new, key[0])
        return Delta(shown.id, difference(old, new) or {}, key[0])

    def states(self) -> list[RecordedState]:
        """Return all states, whole."""
        return [RecordedState(value, of) for (of, _), value in self._plain.items()]

    def take(self, item: RecordedState | Delta) -> Shown:
        """Apply a state or delta that was read; return its sender.

        Raises:
            PatchFault: the delta has no state before it, or belongs to another state.
        """
        if isinstance(item, RecordedState):
            key = (item.of, str(item.plain["id"]))
            self._plain[key] = item.plain
            return key
        key = (item.of, item.id)
        if key not in self._plain:
            raise PatchFault(f"a delta for {item.of} {item.id!r}without a state before it")
        changed = patched(self._plain[key], item.patch)
        if not isinstance(changed, dict) or changed.get("id") != item.id:
            raise PatchFault(f"a delta that makes another {item.of} of {item.id!r}")
        self._plain[key] = changed
        return key

    def decode(self, key: Shown, heard_ns: int) -> ReceivedSnapshot | HeardReplica:
        """Return the newest state of a node or a replica, heard at this moment.

        Raises:
            PlainFault: the state is malformed.
        """
        value = self._plain[key]
        if key[0] is SenderKind.REPLICA:
            return HeardReplica(plain.from_plain(ReplicaView, value), heard_ns)
        return ReceivedSnapshot(plain.from_plain(NodeSnapshot, value), heard_ns)


def key_of(shown: NodeSnapshot | ReplicaView) -> Shown:
    """Return the identity of the sender."""
    return (SenderKind.REPLICA if isinstance(shown, ReplicaView) else SenderKind.NODE, shown.id)
