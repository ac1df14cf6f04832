"""What reads messages of nodes and persistence services, as targets for damaged bytes."""

from __future__ import annotations

import contextlib
import enum
import functools
import json
import sqlite3
import struct
import tempfile
import types
import typing
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from engine.core import messages, untrusted
from engine.core.events import AligneeRequest
from engine.core.messages import Epoch, Outgoing
from engine.core.name_spaces import Group
from engine.dataset.blocks import Block, pack_samples
from engine.dataset.dataset import DataSet
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.rateless import Encoder, Symbols
from engine.dataset.sample import DATA, DISPOSE, make_sample
from engine.dds.cdr import Malformed, pack_bytes, pack_named, unpack_bytes, unpack_named
from engine.dds.participant import Tag, TagRole
from engine.dds.proofs import DomainSecret, Proofs
from engine.dds.subscription_endpoints import unpack_state
from engine.persistence.core.messages import (
    Announcement,
    Fetch,
    FetchedSamples,
    GroupDescriptions,
    Hello,
    Inventory,
    KeptSample,
    MessageFault,
    OriginalSample,
    SampleBatch,
    ServedReaders,
    SubscriberAnswer,
    SubscriberState,
    Subscription,
    SubscriptionUpdate,
    Want,
    WriterLifespans,
    WriterState,
    decode,
    encode,
)
from engine.persistence.core.replica_link import ReplicaLink
from engine.persistence.core.subscription_ledger import LedgerState, SubscriptionTerms
from engine.persistence.service import replica_view as view
from engine.persistence.service.kept_groups import KnownGroups
from engine.persistence.service.service_parts import LateReaders, Lifespans, Registration
from engine.runtime import codec, monitor, stream
from engine.runtime.incoming import IncomingStreams
from engine.runtime.reconciling import messages as comparison
from engine.runtime.steps import StreamFault
from tests import fake
from tests.fuzzing import CHEAP, Target, damaged, damaged_json
from tests.redundancy.laws import numbers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BATCH: Final = struct.Struct("<4sBB16sII")
_COMPARISON: Final = struct.Struct("<4sBBII")
_NODE: Final = "alignee"
_NUMBER: Final = bytes(range(16))
_SCALARS: Final[dict[Any, Any]] = {str: "text", bytes: b"bytes", bool: True, int: 7, float: 1.5}
SYMBOLS: Final = 12
_WRITER: Final = "a" * 32
SAMPLES: Final = (
    OriginalSample(_WRITER, 1 << 100, b"key", -5, b"payload" * 20),
    OriginalSample("b" * 32, 7, b"", 9, b"", status=DISPOSE, first=5),
)
NUMBERS: Final = ((_WRITER, (1, 2, 1 << 100)), ("b" * 32, (5,)))
STATE: Final = SubscriberState("T", ("p", "q*"), "logger", 2, "m", 9, "ab", 4, True, NUMBERS, NUMBERS, True)


def some(wanted: Any) -> Any:
    """Some value of an annotated type, with one element in each collection."""
    if wanted in _SCALARS:
        return _SCALARS[wanted]
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        return some(next(each for each in inner if each is not type(None)))
    if origin is tuple:
        return tuple(some(each) for each in inner if each is not ...)
    if origin is dict:
        return {"name": some(inner[1])}
    if issubclass(wanted, enum.Enum):
        return next(iter(wanted))
    hints = typing.get_type_hints(wanted)
    names = wanted.__struct_fields__ if hasattr(wanted, "__struct_fields__") else wanted._fields
    return wanted(**{name: some(hints[name]) for name in names})


def refusing(read: Callable[[bytes], object], *known: type[Exception]) -> Callable[[bytes], None]:
    """A reader that may refuse with these errors."""

    def refuse(data: bytes) -> None:
        with contextlib.suppress(*known):
            repr(read(data)).encode()  # what was taken in can be shown

    return refuse


def headed(head_bytes: Callable[[bytes], tuple[int, int]], repaired: Callable[[bytes], bytes]) -> Any:
    """Damage to a message of a head, JSON and a body; lengths and checksums fit for two seeds of three.

    Args:
        head_bytes: returns where the JSON begins and where it ends.
        repaired: returns the message with its lengths and checksums made right.
    """

    def damage(data: bytes, seed: int) -> bytes:
        begin, end = head_bytes(data)
        if seed % 3 == 0 or begin == end:
            return damaged(data, seed)
        if seed % 3 == 1:
            text = damaged_json(data[begin:end], seed // 3 * 3 + 1)
            return repaired(_resized(data, begin, text) + data[end:])
        return repaired(data[:end] + damaged(data[end:], seed))

    return damage


def _resized(data: bytes, begin: int, text: bytes) -> bytes:
    """Head and JSON, with the new length in the four bytes before the JSON."""
    order = "<" if data.startswith(comparison.MAGIC) else ">"
    return data[: begin - 4] + struct.pack(f"{order}I", len(text)) + text


def _part_of_comparison(data: bytes) -> tuple[int, int]:
    size = _COMPARISON.unpack_from(data)[4]
    return _COMPARISON.size, _COMPARISON.size + size


def _checked_comparison(data: bytes) -> bytes:
    magic, version, kind, _, size = _COMPARISON.unpack_from(data)
    content = data[_COMPARISON.size :]
    return _COMPARISON.pack(magic, version, kind, zlib.crc32(content), size) + content


def _damaged_batch(data: bytes, seed: int) -> bytes:
    """Damage with a checksum that fits, for two seeds of three."""
    if seed % 3 == 0:
        return damaged(data, seed)
    fields = list(_BATCH.unpack_from(data))
    body = damaged(data[_BATCH.size :], seed)
    fields[5] = zlib.crc32(body)
    if seed % 3 == 1:
        body = zlib.compress(body, 1)
        fields[2], fields[5] = 1, zlib.crc32(body)
    return _BATCH.pack(*fields) + body


def _before(size: int) -> Callable[[bytes], tuple[int, int]]:
    """Where the JSON is when its length stands in the four bytes before it."""
    return lambda data: (size, size + int.from_bytes(data[size - 4 : size], "big"))


def _unchanged(data: bytes) -> bytes:
    return data


def _read_comparison(data: bytes) -> object:
    message, body = comparison.decode(data)
    if isinstance(message, comparison.Sketch) and not message.is_list and not message.lacking:
        with contextlib.suppress(ValueError):
            if message.length <= SYMBOLS * 100:  # the aligner bounds it by what it asked for
                Symbols.from_bytes(body, message.first, message.length, message.count)
    return message


def _batches() -> list[bytes]:
    """The batches of a stream of two groups."""
    data, groups = DataSet(), []
    for partition in ("p", "q"):
        group = Group(partition, "T")
        part = data.open_group(group, 2)
        for number in range(4):
            status = DATA if number % 3 else DATA | DISPOSE
            part.apply(make_sample(1_000 + number, b"w" * 16, status, bytes([number]), b"payload", number))
        groups.append((stream.GroupBegin(_description(group), part.floor_ns), part.samples()))
    begin = stream.StreamBegin("all", "aligner", Epoch(3, "a"), (AligneeRequest(_NODE, 7, "initial"),), 0, 0)
    whole = list(stream.batches(_NUMBER, begin, groups))
    difference = msgspec.structs.replace(begin, is_difference=True)
    removed = stream.Removed(bytes(range(16)), stream.StreamEnd(8, 5))
    return [*whole, *stream.batches(_NUMBER, difference, groups, removed=removed)]


def _description(group: Group) -> GroupDescription:
    type_ = TypeDescription("T", b"information", b"mapping", keyed=True)
    return GroupDescription(group, type_, GroupQos(DurabilityKind.TRANSIENT, history_depth=2))


def _take_batch(data: bytes) -> None:
    incoming = IncomingStreams(_NODE).receive("aligner", data, 0)
    if incoming is not None:
        incoming.data.summary()
        [sample for group in incoming.data.groups.values() for sample in group.samples()]


def _symbols(data: bytes) -> None:
    for length in (SYMBOLS, SYMBOLS + 1):
        Symbols.from_bytes(data, 0, length, 100)


def _symbol_bytes() -> bytes:
    steps = Encoder(np.arange(1, 50, dtype=np.uint64)).until(SYMBOLS)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        made: Symbols = end.value
        return made.to_bytes(49)


def _take_frames(data: bytes) -> None:
    """A link takes a frame before it is up, and after."""
    for is_up in (False, True):
        numbers = iter(range(7, 100))
        link = ReplicaLink(b"hello", functools.partial(next, numbers))
        if is_up:
            link.receive(_frame(8, 7, 0, b"other", is_hello=True))
        link.receive(data)


def _frame(theirs: int, ours: int, number: int, body: bytes, *, is_hello: bool = False) -> bytes:
    return struct.pack(">4sBQQQ?", b"ospp", 2, theirs, ours, number, is_hello) + body


def _nodes() -> list[Target]:
    shown = [fake.snapshot(1, fake.name_space("A", 1)), fake.event(1, 1, 5, "text"), some(monitor.NodePast)]
    kinds: tuple[Any, ...] = typing.get_args(messages.Message)
    node_messages = [codec.encode(Outgoing(some(kind), ("a" * 32,))) for kind in kinds]
    compared = [
        comparison.encode(some(kind), _symbol_bytes())
        for kind in typing.get_args(comparison.ComparisonMessage)
    ]
    sketch = comparison.Sketch("ns", "a" * 32, 1, b"salt", 49, 5, 0, SYMBOLS)
    compared.append(comparison.encode(sketch, _symbol_bytes()))
    read_description = untrusted.json_reader(GroupDescription)
    return [
        Target(
            "message",
            node_messages,
            refusing(codec.decode, codec.PeerFault, codec.UnsupportedMessage),
            CHEAP,
            damaged_json,
        ),
        Target(
            "message-group",
            [json.dumps(msgspec.to_builtins(_description(Group("p", "T")))).encode()],
            refusing(read_description, untrusted.JsonFault),
            CHEAP,
            damaged_json,
        ),
        Target(
            "monitor",
            [monitor.encode(one) for one in shown],
            refusing(monitor.decode, monitor.MonitorFault),
            CHEAP,
            damaged_json,
        ),
        Target("stream", _batches(), refusing(_take_batch, StreamFault), CHEAP, _damaged_batch),
        Target(
            "comparison",
            compared,
            refusing(_read_comparison, StreamFault),
            CHEAP,
            headed(_part_of_comparison, _checked_comparison),
        ),
        Target("symbols", [_symbol_bytes()], refusing(_symbols, ValueError), CHEAP),
        Target("block", [_block()], refusing(_read_block, ValueError, IndexError, struct.error), CHEAP),
    ]


def _block() -> bytes:
    return pack_samples(
        [make_sample(number, b"w" * 16, DATA, bytes([number % 3]), b"payload", number) for number in range(9)]
    ).data


def _read_block(data: bytes) -> None:
    block = Block(data)
    block.digest_sum()
    for sample in block.samples():
        assert sample.status


def _proved() -> Target:
    """A message with a proof, which the same secret verifies."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "secret"
        path.touch(0o600)
        path.write_bytes(b"of the fuzzer" * 4)
        proofs = Proofs(DomainSecret(str(path)))
    seed = proofs.prove("topic", bytes(16), b"", b"payload") + b"payload"
    return Target("proof", [seed], refusing(lambda data: proofs.verify("topic", bytes(16), b"", data)), CHEAP)


def _packages() -> list[Target]:
    """The types that carry messages over DDS, and the tags of participants."""
    state = encode(STATE)
    tags = [Tag(role, bytes(range(16))).encode() for role in TagRole]
    return [
        Target("bytes", [pack_bytes(b"payload")], refusing(unpack_bytes, Malformed), CHEAP),
        Target("named", [pack_named(b"name", b"payload")], refusing(unpack_named, Malformed), CHEAP),
        Target(
            "subscriber-state",
            [pack_named(b"a" * 32 + b"-1", state)],
            refusing(lambda data: unpack_state(data, bytes(16), Proofs(None)), Malformed),
            CHEAP,
        ),
        Target("tag", tags, refusing(Tag.decode), CHEAP),
        _proved(),
    ]


def _replicas() -> list[Target]:
    kept = tuple(KeptSample(each, frozenset({_WRITER})) for each in SAMPLES)
    had = numbers_of((1, 2, 5))
    ledger = LedgerState("logger", SubscriptionTerms(3, True), 2, NUMBERS, (("m", NUMBERS), ("n", ())))
    group = bytes(range(8))
    told = {
        "announcement": Announcement((WriterState(_WRITER, had, ("a", "b")),), tuple(range(3))),
        "subscription": Subscription(3, (Want(_WRITER, had, had), Want("b" * 32, had))),
        "delivery": SampleBatch(kept, ((b"key", frozenset({_WRITER})),), ((_WRITER, had),)),
        "inventory": Inventory(1, ((b"key", (5, _WRITER, 6)),)),
        "books": SubscriptionUpdate((ledger,), NUMBERS, group),
        "fetch": Fetch(NUMBERS, group),
        "handed": FetchedSamples(SAMPLES, group),
        "groups": GroupDescriptions((_description(Group("p", "T")),)),
        "lifespans": WriterLifespans({_WRITER: 5, "b" * 32: 1 << 40}),
        "served": ServedReaders((_WRITER, "b" * 32)),
    }
    readers: dict[str, Callable[[bytes], object]] = {
        "groups": _take_groups,
        "lifespans": _take_lifespans,
        "served": _take_served,
    }
    answers = [encode(SubscriberAnswer(5, 6, SAMPLES, True, 7)), encode(SubscriberAnswer(1))]
    return [
        *(
            _replica(f"replica-{kind}", readers.get(kind, decode), encode(each))
            for kind, each in told.items()
        ),
        _replica("replica-hello", lambda data: decode(data, Hello), encode(Hello("s", "name", "a" * 32))),
        _replica("subscriber", lambda data: decode(data, SubscriberState), encode(STATE)),
        _replica("answer", lambda data: decode(data, SubscriberAnswer), *answers),
        Target(
            "replica-frame",
            [_frame(8, 7, 1, b"body"), _frame(8, 0, 0, b"body", is_hello=True)],
            refusing(_take_frames, MessageFault),
            CHEAP,
        ),
        Target(
            "replica-view",
            [view.encode(fake.replica("a", fake.provided(1)))],
            refusing(view.decode, view.ViewFault),
            CHEAP,
            damaged_json,
        ),
        Target(
            "registration",
            [Registration("T", "name", ("p", "q*")).key.encode()],
            refusing(lambda data: Registration.parse(data.decode(errors="replace"))),
            CHEAP,
            damaged_json,
        ),
    ]


def _replica(name: str, read: Callable[[bytes], object], *seeds: bytes) -> Target:
    """What reads a message of replicas, whose head is damaged in two seeds of three."""
    return Target(name, [*seeds], refusing(read, MessageFault), CHEAP, headed(_head_of_replica, _unchanged))


def _head_of_replica(data: bytes) -> tuple[int, int]:
    (count,) = struct.unpack_from(">I", data, 1)
    (size,) = struct.unpack_from(">I", data, 5 + 4 * count)
    begin = 9 + 4 * count
    return begin, begin + size


def _take_groups(data: bytes) -> None:
    """A service takes groups, and stores them."""
    groups = KnownGroups(())
    groups.learn_all(decode(data).groups)
    groups.changes()


def _take_lifespans(data: bytes) -> None:
    """A service takes lifespans, and stores them."""
    lifespans = Lifespans()
    lifespans.receive("peer", decode(data))
    write = lifespans.changes()
    if write is not None:
        with contextlib.closing(sqlite3.connect(":memory:")) as store:
            store.execute(Lifespans.tables)
            write(store)


def _take_served(data: bytes) -> None:
    """A service takes the list of readers that another one has served."""
    readers = LateReaders(
        "name",
        synchronizes=True,
        groups=KnownGroups(()),
        kept=lambda _: [],
        is_expired=lambda *_: False,
        deliver=lambda *_: (_ for _ in ()).throw(AssertionError("nobody asked")),
        submit=lambda *_: None,
    )
    readers.connected("peer")
    readers.receive("peer", decode(data))


def targets() -> Sequence[Target]:
    """All readers of messages of nodes and persistence services."""
    return [*_nodes(), *_packages(), *_replicas()]
