"""What reads messages of clients, samples and journals, as targets for damaged bytes."""

from __future__ import annotations

import functools
import pathlib
import tempfile
from typing import TYPE_CHECKING, Final

from engine.client_service.storage import StorageQuestion
from engine.core.name_spaces import Group
from engine.dataset.content import Expression, ExpressionFault, Undecodable
from engine.dataset.groups import DurabilityKind, GroupQos, TypeDescription
from engine.dataset.sample import DATA, DISPOSE, Sample, make_sample
from engine.dds import decoding as samples_decoding
from engine.dds.cdr import Malformed
from engine.dds.client_protocol import extensions, messages, naming
from engine.dds.client_protocol.messages import (
    INFINITE,
    Bead,
    ByteOrder,
    ErrorCode,
    GroupState,
    HistoryRequest,
    Link,
    RequestId,
    StateAnswer,
    StateRequest,
    Time,
)
from engine.dds.errors import DdsError
from engine.dds.typeinfo import check_description
from ospltool.client.errors import JournalError, JournalInUse, JournalMismatch
from ospltool.client.journal import Journal
from ospltool.stores import cdr, types, xtypes
from tests.fuzzing import CHEAP, Target, damaged_json
from tests.property.fuzz_messages import refusing

if TYPE_CHECKING:
    from collections.abc import Sequence

_SERVER: Final = bytes(range(16))
_REQUEST: Final = RequestId(bytes(range(0xF0, 0x100)), 77)
_QOS: Final = GroupQos(DurabilityKind.PERSISTENT, history_depth=5, by_source_timestamp=True)
_SAMPLES: Final = [
    make_sample(1_000 + number, b"w" * 16, DATA if number % 3 else DISPOSE, bytes([number]), b"\0\1\0\0text")
    for number in range(6)
]
_OWNER: Final = {"topic": "Reading", "type": "depot.Reading", "partitions": ["stock"]}
_TYPE: Final = types.Structure(
    "depot::Item",
    (
        types.StructMember("id", types.LONG),
        types.StructMember("name", types.Text()),
        types.StructMember("flag", types.BOOLEAN),
        types.StructMember("colour", types.Enumeration("depot::Colour", (("RED", 0), ("BLUE", 1)))),
        types.StructMember("numbers", types.Sequence(types.DOUBLE)),
        types.StructMember("names", types.Sequence(types.Text(), 5)),
        types.StructMember("place", types.Array(types.SHORT, 3)),
        types.StructMember(
            "either",
            types.Union(
                "depot::Either",
                types.LONG,
                (types.UnionCase("a", types.LONG, (1,)), types.UnionCase("b", types.Text(), (None,))),
            ),
        ),
    ),
)
_VALUE: Final[dict[str, types.Value]] = {
    "id": 5,
    "name": "Pier 7",
    "flag": True,
    "colour": "BLUE",
    "numbers": [1.5, -2.0],
    "names": ["a", "", "ccc"],
    "place": [1, 2, 3],
    "either": {"switch": 1, "a": 9},
}
CONDITIONS: Final = (
    "id = 5 and (name like 'Pier %' or not flag = TRUE)",
    "numbers.x between %0 and %1 or colour <> 'RED' and id >= -15e-1",
)


STORED: Final = extensions.StateRequestAddition(stored=extensions.StoredQuestion(2, b"w" * 16, 3))
PENDING: Final = extensions.StateRequestAddition(pending=extensions.PendingAddition("77" * 16, 3, 86_400.0))


def _history(data: bytes) -> None:
    """A client takes a part of an answer."""
    history = messages.decode_history(data)
    extensions.unpack(history.extensions, extensions.LinkAddition)
    if isinstance(history.content, Bead):
        extensions.sample_of(history.content, history.extensions)


def _history_request(data: bytes) -> None:
    request = messages.decode(HistoryRequest, data)
    extensions.unpack(request.extensions, extensions.HistoryRequestAddition)
    Expression(request.sql_filter, request.sql_parameters)


def _state_request(data: bytes) -> None:
    """A node takes a question about states, with samples or their names in it."""
    request = messages.decode(StateRequest, data)
    said = extensions.unpack(request.extensions, extensions.StateRequestAddition)
    if said is not None and said.stored is not None:
        StorageQuestion.parse(said.stored, request.extensions)
    naming.unpack_samples(request.extensions.get(naming.SAMPLES, b""))


def _state(data: bytes) -> None:
    """A client takes a node's answer."""
    state = messages.decode(StateAnswer, data)
    extensions.unpack(state.extensions, extensions.StateAddition)
    naming.unpack_verdicts(state.extensions.get(naming.VERDICTS, b""), 2)


def _addition(data: bytes) -> None:
    """A node takes what a state request says besides."""
    said = extensions.unpack({extensions.NAME: data}, extensions.StateRequestAddition)
    if said is not None and said.stored is not None:
        StorageQuestion.parse(said.stored, {})


def _protocol() -> list[Target]:
    request = HistoryRequest(
        _REQUEST,
        "Observation",
        ("ships*", "", "weather"),
        ByteOrder.LITTLE_ENDIAN,
        3,
        Time(10, 5),
        INFINITE,
        "id > %0",
        ("3", "it's"),
        5,
        6,
        7,
        ("durabilityPartition.x",),
        (_SERVER, bytes(16)),
        Time(0, 500_000_000),
        {"ospltool": b'{"follow":true}', "x": b""},
    )
    question = {
        **extensions.pack(STORED),
        naming.NAMES: naming.pack_names(map(naming.SampleName.from_sample, _SAMPLES[:2])),
        naming.SAMPLES: naming.pack_samples(_SAMPLES[:2]),
    }
    answer = {**extensions.pack(extensions.StateAddition(name="n1", samples=(1,))), naming.VERDICTS: b"\1\6"}
    groups = (GroupState("a", "T", 2), GroupState("", "U", 1))
    encoders = [
        extensions.SampleEncoder(_SERVER, _REQUEST, Group("p", "T"), _QOS, ours=ours)
        for ours in (True, False)
    ]
    parts = [encoder.encode(each) for encoder in encoders for each in _SAMPLES[:3]]
    parts.append(messages.encode_link(_SERVER, _REQUEST, Link(3, 2, ErrorCode.NOT_RESPONSIBLE), {"x": b"y"}))
    states = StateRequest(_REQUEST, "Observation", ("a", "*"), (_SERVER,), Time(1, 2), question)
    return [
        Target(
            "client-history-request",
            [messages.encode(request)],
            refusing(_history_request, Malformed, ExpressionFault),
            CHEAP,
        ),
        Target("client-history", parts, refusing(_history, Malformed), CHEAP),
        Target(
            "client-state-request",
            [messages.encode(states)],
            refusing(_state_request, Malformed),
            CHEAP,
        ),
        Target(
            "client-state",
            [messages.encode(StateAnswer(_SERVER, (_REQUEST,), groups, answer))],
            refusing(_state, Malformed),
            CHEAP,
        ),
        *_additions(),
        Target(
            "condition",
            [each.encode() for each in CONDITIONS],
            refusing(_condition, ExpressionFault),
            CHEAP,
        ),
    ]


def _additions() -> list[Target]:
    names = [naming.SampleName.from_sample(each) for each in _SAMPLES]
    return [
        *(
            Target(
                f"client-{name}",
                [extensions.pack(added)[extensions.NAME]],
                refusing(_addition, Malformed),
                CHEAP,
                damaged_json,
            )
            for name, added in (("storage", STORED), ("pending", PENDING))
        ),
        Target("sample-names", [naming.pack_names(names)], refusing(naming.unpack_names, Malformed), CHEAP),
        Target("samples", [naming.pack_samples(_SAMPLES)], refusing(naming.unpack_samples, Malformed), CHEAP),
    ]


def _condition(data: bytes) -> None:
    condition = Expression(data.decode(errors="replace"), ("3", "'it''s'"))
    condition.accepts(_VALUE)


def _check_types(description: TypeDescription, data: bytes) -> None:
    """Take the first bytes for the TypeInformation, and the rest for the TypeMapping."""
    at = len(description.information)
    check_description(TypeDescription("T", data[:at], data[at:], keyed=True))


def _decode(description: TypeDescription, data: bytes) -> None:
    for status in (DATA, DISPOSE):
        samples_decoding.decode(description, status, data)


def _decode_stored(data: bytes) -> None:
    cdr.ValueReader(data, 4, origin=4).value(_TYPE)


def _typed() -> list[Target]:
    """Types, and samples of a type."""
    description = xtypes.describe(_TYPE, (("id",),))
    payload = cdr.encode_payload(_TYPE, _VALUE)
    return [
        Target(
            "type",
            [description.information + description.mapping],
            refusing(functools.partial(_check_types, description), DdsError),
            CHEAP,
        ),
        Target(
            "sample",
            [payload, cdr.HEADER_XCDR1_LITTLE + payload[4:]],
            refusing(functools.partial(_decode, description), Undecodable),
        ),
        Target("stored-sample", [payload], refusing(_decode_stored, Undecodable), CHEAP),
    ]


def _journal(scratch: pathlib.Path) -> bytes:
    path = scratch / "journal"
    made = Journal(path, _OWNER, sync=False)
    samples: list[Sample] = [
        make_sample(1_000 + number, b"w" * 16, DATA, bytes([number]), b"x" * number) for number in range(6)
    ]
    for each in samples:
        made.append(each)
    made.stored([each.digest for each in samples[:2]])
    made.close()
    return path.read_bytes()


def _read_journal(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "journal"
        path.write_bytes(data)
        try:
            made = Journal(path, _OWNER, sync=False)
        except (JournalMismatch, JournalInUse, JournalError):
            return
        made.close()


def targets(scratch: pathlib.Path) -> Sequence[Target]:
    """All readers of what clients send and keep."""
    return [*_protocol(), *_typed(), Target("journal", [_journal(scratch)], _read_journal)]
