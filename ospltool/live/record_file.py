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
| local          | what supervisors of the recorder's machine tell, and its addresses   |
| caption        | a sentence for the reader                                            |

`ospltool.live.patches` says what a patch is.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
from collections.abc import Callable
from typing import Any, Final

from engine.core import plain
from engine.persistence.service.replica_view import ReplicaView
from engine.runtime import monitor
from engine.runtime.monitor import NodeEvent, NodePast, NodeSnapshot
from ospltool.live.expectation import NOTHING, Expectation
from ospltool.live.feed import FeedNotice, HeardReplica, ReceivedSnapshot
from ospltool.live.patches import PatchFault, changed, difference, patched
from ospltool.live.supervision import LocalView

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


PAUSE_NS: Final = 2_000_000_000
"""Time without a look at the system after which a recorder counts as having stood still."""


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """A place from which the recording can be read. The states of N nodes and N instances follow, whole."""

    nodes: int
    replicas: int = 0
    is_resumed: bool = False
    """Whether nothing was recorded before, as the recorder begins, stood still, or could not write."""


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

Item = RecordingHeader | Key | RecordedState | Delta | NodeEvent | NodePast | FeedNotice | LocalView | Caption


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
    "local": LocalView,
    "caption": Caption,
}
_DELTA: Final = "-delta"
_STATES: Final = {of.value: of for of in SenderKind}
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
        document: Any = _document(line)
        if document["format_version"] != monitor.FORMAT_VERSION:
            raise ValueError(f"format {document['format_version']!r} is not {monitor.FORMAT_VERSION}")
        heard_ns = document["heard_ns"]
        if type(heard_ns) is not int:
            raise ValueError(f"heard_ns {heard_ns!r} is not a whole number")
        return RecordingLine(heard_ns, _item(document["kind"], document["data"]))
    except Exception as error:  # of any class: a file may contain anything
        raise RecordingFault(f"{where}: not a line of a recording: {plain.words_of(error)}") from error


def _document(line: bytes) -> Any:
    """Return what `json` makes of a line; msgspec takes half the time for it."""
    quick = _quick_decoder()
    if quick is not None:
        try:
            return quick(line)
        except (ValueError, RecursionError):  # `json` says what is wrong, or takes it all the same
            pass
    return json.loads(line)


@functools.cache
def _quick_decoder() -> Callable[[bytes], Any] | None:
    """Return the reader of JSON that an installation for live systems has."""
    try:
        import msgspec
    except ModuleNotFoundError:
        return None
    decode: Callable[[bytes], Any] = msgspec.json.decode
    return decode


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
    """The newest of what each node and replica shows, kept up with states and deltas.

    The state of a sender is there in its plain form, or as the value that was made of it: deltas change the
    value itself, as making all of it again takes ten times as long.
    """

    def __init__(self) -> None:
        self._plain: dict[Shown, dict[str, Any]] = {}
        self._made: dict[Shown, NodeSnapshot | ReplicaView] = {}

    def __len__(self) -> int:
        return len(self._plain) + len(self._made)

    def copy(self) -> Snapshots:
        """Return an independent copy."""
        found = Snapshots()
        found._plain.update(self._plain)
        found._made.update(self._made)
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
            self._put(key, item.plain)
            return key
        key = (item.of, item.id)
        made = self._made.get(key)
        if made is not None and self._change(key, made, item):
            return key
        if made is None and key not in self._plain:
            raise PatchFault(f"a delta for {item.of} {item.id!r} without a state before it")
        state = patched(self._plain[key] if made is None else plain.to_plain(made), item.patch)
        if not isinstance(state, dict) or state.get("id") != item.id:
            raise PatchFault(f"a delta that makes another {item.of} of {item.id!r}")
        self._put(key, state)
        return key

    def decode(self, key: Shown, heard_ns: int) -> ReceivedSnapshot | HeardReplica:
        """Return the newest state of a node or a replica, heard at this moment.

        Raises:
            PlainFault: the state is malformed.
        """
        made = self._made.get(key)
        if made is None:
            made = plain.from_plain(_VIEWS[key[0]], self._plain[key])
            self._made[key] = made
            del self._plain[key]
        if isinstance(made, ReplicaView):
            return HeardReplica(made, heard_ns)
        return ReceivedSnapshot(made, heard_ns)

    def _put(self, key: Shown, state: dict[str, Any]) -> None:
        self._plain[key] = state
        self._made.pop(key, None)

    def _change(self, key: Shown, made: NodeSnapshot | ReplicaView, delta: Delta) -> bool:
        """Apply an ordinary delta; return False if it is another, or a wrong one."""
        if type(delta.patch) is not dict:
            return False
        try:
            after = changed(made, delta.patch)
        except (PatchFault, plain.PlainFault):
            return False
        if after.id != delta.id:
            return False
        self._made[key] = after
        return True


_VIEWS: Final = {SenderKind.NODE: NodeSnapshot, SenderKind.REPLICA: ReplicaView}


def key_of(shown: NodeSnapshot | ReplicaView) -> Shown:
    """Return the identity of the sender."""
    return (SenderKind.REPLICA if isinstance(shown, ReplicaView) else SenderKind.NODE, shown.id)
