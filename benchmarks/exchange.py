"""Two nodes that compare their sets, with nothing between them but the bytes of what they send."""

from __future__ import annotations

import collections
import types
from typing import TYPE_CHECKING, Any, cast

from engine.core.events import AligneeRequest, ExpectSet, SendSet
from engine.core.messages import NO_EPOCH
from engine.dataset.dataset import DataSet
from engine.runtime.steps import Steps
from engine.runtime.transfers import Transfers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.core.name_spaces import Group
    from engine.dataset.groups import GroupDescription

NAME_SPACE = "all"


class _Anything:
    """Takes every call."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Side:
    """The alignment of one node: what it sends waits in `sent`."""

    def __init__(self, node: str, held: DataSet, describe: dict[Group, GroupDescription]) -> None:
        self.node = node
        self.sent: collections.deque[bytes] = collections.deque()
        self.result: DataSet | None = None
        self.failed = False
        self.now = 0.0
        policy = types.SimpleNamespace(filtered=False)
        state = types.SimpleNamespace(
            name=NAME_SPACE,
            holder=True,
            complete=True,
            lineage=NO_EPOCH,
            policy=policy,
            is_part=False,
            is_wanted=lambda _: True,
        )
        self.space: Any = types.SimpleNamespace(
            state=state,
            working=held,
            loaded=None,
            staging=None,
            begin=lambda _: None,
            is_on_disk=lambda _: True,
            stored_part=lambda _: None,
        )
        self.space.replace = self._replace
        anything: Any = _Anything()
        core: Any = types.SimpleNamespace(
            fellow=lambda _: None,
            name_of=str,
            expects=lambda *_: True,
            set_progress=lambda *_: None,
            set_received=lambda *_, **__: None,
            set_failed=self._fail,
            surplus_found=lambda _: (),
            name_space_of=lambda _: state,
        )
        shared = types.SimpleNamespace(
            settings=types.SimpleNamespace(
                node=node, incarnation=1, life=0, role="r", request_patience_s=10.0
            ),
            spaces={NAME_SPACE: self.space},
            descriptions=describe,
            counters=collections.Counter(),
            clock=types.SimpleNamespace(monotonic=lambda: self.now, wall_ns=lambda: 0),
            tracer=anything,
            persistence=anything,
            core=core,
            wire=types.SimpleNamespace(send_note=self._note, send_stream=self._stream),
            open_group=lambda *_, **__: True,
            write_set=lambda *_, **__: None,
            tell_changes=lambda: None,
            malformed=self._malformed,
        )
        self.shared = cast("Any", shared)
        steps = Steps(shared.clock, self._fail)
        secret = b"secret of " + node.encode()
        none = anything, anything, anything, anything
        self.transfers = Transfers(self.shared, *none, steps, anything, secret)

    def work(self) -> None:
        """Carry out all steps."""
        while self.transfers.steps.are_left:
            self.transfers.steps.work()

    def _note(self, _: str, note: bytes) -> None:
        self.sent.append(note)

    def _stream(self, _: str, __: tuple[str, ...], batches: Iterator[bytes], ___: int) -> None:
        self.sent.extend(batches)

    def _replace(self, other: DataSet, *_: object) -> tuple[dict[Any, Any], list[Any]]:
        self.result = other
        return {}, []

    def _fail(self, *_: object) -> None:
        self.failed = True

    def _malformed(self, *_: object) -> None:
        self.shared.counters["malformed"] += 1


def _as_fellow(side: Side) -> types.SimpleNamespace:
    return types.SimpleNamespace(node=side.node, roll_up=lambda _: None)


def align(
    aligner: Side, alignee: Side, request: int = 1, change: Callable[[bytes], bytes] = bytes
) -> tuple[int, int]:
    """Let the alignee ask for the aligner's set and take its place; returns bytes and messages on the wire.

    `change` is done to everything that is sent.
    """
    for one, other in ((aligner, alignee), (alignee, aligner)):
        one.shared.core.fellow = {other.node: _as_fellow(other)}.get
    alignee.transfers.expect(ExpectSet(NAME_SPACE, request, aligner.node, "replace"))
    alignee.work()
    target = AligneeRequest(alignee.node, request, "replace", compares=bool(alignee.sent))
    aligner.transfers.send(SendSet(NAME_SPACE, NO_EPOCH, (target,)))
    size = messages = 0
    while aligner.sent or alignee.sent:
        for source, sink in ((alignee, aligner), (aligner, alignee)):
            while source.sent:
                item = change(source.sent.popleft())
                size += len(item)
                messages += 1
                sink.transfers.batch(source.node, item)
                sink.work()
    return size, messages
