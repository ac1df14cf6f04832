"""ospltool's additions to the protocol, in its fields for extensions; other products skip them.

A message carries one addition: `ospltool`, a JSON object that a class here describes, or with a sample
`ospltool.sample`, which has what the protocol has no field for: exact status, whole sequence number,
encapsulation, key, and the history depth of the sample's group.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.dds.cdr import HEADER, Malformed
from engine.dds.client_protocol.encoding import CdrWriter
from engine.dds.client_protocol.messages import (
    ID_BYTES,
    UNLIMITED,
    Bead,
    ByteOrder,
    RequestId,
    SampleKind,
    Time,
    put_answer_head,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.core.name_spaces import Group
    from engine.dataset.groups import GroupQos
    from engine.dds.proofs import Proofs

NAME: Final = "ospltool"
SAMPLE: Final = "ospltool.sample"
PROOF: Final = "ospltool.proof"
_SAMPLE_HEAD: Final = struct.pack("<II16s", 1, len(SAMPLE) + 1, SAMPLE.encode())
_U32: Final = struct.Struct("<I")
_EXTRA: Final = struct.Struct("<BIQ4s")
# Encapsulation identifier and options, 2 bytes each (DDSI-RTPS 10.2).
_HEADER_BYTES: Final = 4
# A key hash is an MD5 digest or the padded key (DDSI-RTPS 9.6.4.8).
_HASH_BYTES: Final = 16
_BIG_ENDIAN_HEADER: Final = b"\x00\x00\x00\x00"
_STATUS_OF: Final = {
    SampleKind.WRITE: DATA,
    SampleKind.DISPOSE: DISPOSE,
    SampleKind.UNREGISTER: UNREGISTER,
    SampleKind.WRITE_DISPOSE: DATA | DISPOSE,
}
# DURATION_INFINITE in seconds and nanoseconds (DCPS 2.2.1).
_NO_LIMIT_NS: Final = (0x7FFFFFFF, 0x7FFFFFFF)


Guid = Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
Count = Annotated[int, Meta(ge=0)]
_A = TypeVar("_A", bound=Struct)


class HistoryRequestAddition(Struct, frozen=True, omit_defaults=True):
    """The addition to a request for historical data.

    Attributes:
        follow: the reader gets updates afterwards.
        cancel: they end, and the request with its number.
        each: samples of each instance that are wanted, the newest; -1 for all.
    """

    follow: bool = False
    cancel: bool = False
    each: int = UNLIMITED


class LinkAddition(Struct, frozen=True, omit_defaults=True):
    """The addition to the end of an answer.

    Attributes:
        living: living writers of the groups; None from a node that names none.
        disposing: their lost writers that had autodispose.
        update: whether it is an update after the answer.
        name_spaces: the name-spaces that the request touches, each with whether the node has all of it.
        covers: those of them whose whole history is in the answer.
        parts: those of which the node has a part only.
    """

    living: frozenset[Guid] | None = None
    disposing: frozenset[Guid] = frozenset()
    update: bool = False
    name_spaces: dict[str, bool] = {}
    covers: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


class DeletionOrder(Struct, frozen=True):
    """The groups, by expressions, and the source time up to which their samples are to be deleted."""

    partition: str
    topic: str
    until_ns: int


class StoredQuestion(Struct, frozen=True, omit_defaults=True):
    """The question for samples: for `count` ones of a writer, or for those named beside it.

    Attributes:
        version: of the answers that the client understands.
        writer: GUID of the writer; empty for named samples.
        count: samples that it has written.
    """

    version: int
    writer: Annotated[bytes, Meta(max_length=ID_BYTES)] = b""
    count: Count = 0


class PendingAddition(Struct, frozen=True):
    """A durable writer, and since which source time it may hand over samples; None if it will not.

    `wait_s` is for how long nodes shall wait for it while it is silent.
    """

    id: Annotated[str, Meta(pattern=r"^(?:[0-9a-f]{2}){1,32}\Z")]
    since_ns: int | None
    wait_s: Annotated[float, Meta(ge=0)]


class StateRequestAddition(Struct, frozen=True, omit_defaults=True):
    """The addition to a state request: at most one of these.

    Attributes:
        delete: delete samples.
        stored: answer whether samples are stored.
        pending: note that a writer may hand over samples; nothing is answered.
        keep: keep the samples beside it, which this living writer has in its groups.
        others: name the fellows, too.
    """

    delete: DeletionOrder | None = None
    stored: StoredQuestion | None = None
    pending: PendingAddition | None = None
    keep: Guid | None = None
    others: bool = False


class StateAddition(Struct, frozen=True, omit_defaults=True):
    """The addition to a node's answer to a state request; most of it only on request."""

    node: str = ""
    """Id of the node."""
    name: str = ""
    """Its name."""
    filtered: tuple[int, ...] = ()
    """Places of the groups of which a content filter withholds samples."""
    samples: tuple[Count, ...] = ()
    """Samples of each group."""
    floors: tuple[int | None, ...] = ()
    """Source time up to which each group was deleted; None for one that is not kept."""
    left_out: int = 0
    """Groups for which the answer has no room."""
    fellows: tuple[tuple[str, str], ...] = ()
    """Ids and names of the nodes that it hears."""
    away: tuple[str, ...] = ()
    """Names of those that it does not hear any more."""
    reason: str = ""
    """Why the answer is no."""
    deleted: bool = False
    """Whether it has deleted; of a question for samples, whether a deletion covers some of them."""
    until_ns: int | None = None
    """Source time up to which it has deleted."""
    slow: str = ""
    """Node whose clock bounds that."""
    answers: int = 0
    """Version of the answers about samples."""
    required: bool = False
    """Whether it must keep the samples."""
    partitions: tuple[str, ...] = ()
    """The partitions of the question that it keeps."""
    complete: bool = False
    """Whether its sets are complete."""
    on_disk: bool = False
    """Whether it keeps the groups on disk."""
    weaker: bool = False
    """Whether it keeps PERSISTENT groups in memory only."""
    not_shared: str = ""
    """Why its samples reach no other node."""
    limits: str = ""
    """The limits of the groups, in words."""
    forgotten_ns: int = 0
    """Source time up to which samples may have been here and been purged."""
    captured: int | None = None
    """Samples of the writer that it captured and kept."""
    refused: int = 0
    """Samples of the writer that it refused."""
    content: tuple[int, str] | None = None
    """Count and digest of the writer's samples."""
    written: bool = False
    """Whether they are on disk."""
    kept_out: bool = False
    """Whether limits have kept samples out."""
    kept: int = 0
    """Samples that were handed over and taken."""


NOTHING: Final = StateAddition()
"""The addition of another product, which sends none."""


def pack(addition: Struct) -> dict[str, bytes]:
    """Pack ospltool's addition to a message."""
    return {NAME: msgspec.json.encode(addition)}


def unpack(extensions: Mapping[str, bytes], kind: type[_A]) -> _A | None:
    """Return ospltool's addition to a message, None if the sender is another product.

    Raises:
        Malformed: it is none of this kind.
    """
    text = extensions.get(NAME)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Malformed(f"the ospltool extension: {error}"[:200]) from None


def with_proof(extensions: Mapping[str, bytes], proofs: Proofs) -> Mapping[str, bytes]:
    """Return the additions to a message with a place for its proof, if there is a secret."""
    place = proofs.place()
    return {**extensions, PROOF: place} if place else extensions


class SampleEncoder:
    """Encodes the samples of one group as parts of the answer to one request.

    Args:
        server: our node id.
        request: the request to answer.
        group: the group of the samples.
        qos: the group's policies.
        ours: whether the client is of this product; others get no addition.
    """

    def __init__(self, server: bytes, request: RequestId, group: Group, qos: GroupQos, *, ours: bool) -> None:
        head = CdrWriter()
        put_answer_head(head, server, (request,))
        head.u16(0)
        self._head = head.body()
        self._depth = qos.history_depth
        self._ours = ours
        # All fields before the payload have fixed places: parts common to all samples are encoded once.
        middle = CdrWriter()
        middle.raw(bytes(len(self._head) + _HASH_BYTES))
        middle.put("iII", 4, 0, 0, 0)
        start = len(middle)
        self._first = struct.Struct(f"<16s{start - len(self._head) - _HASH_BYTES - 12}xiII")
        _put_qos(middle, qos)
        middle.u32(1)
        middle.text(group.partition)
        self._middle = middle.body()[start:]
        padding = -len(middle) % 2
        after = len(middle) + padding + 2 + _HASH_BYTES + 2
        self._second = struct.Struct(f"<{padding}xH16sH{-after % 4}xI")

    def encode(self, sample: Sample, earlier: bytes = b"") -> bytes:
        """Encode one sample.

        Args:
            sample: the sample.
            earlier: the body of an earlier write of the instance, empty if there is none. Clients of other
                products expect a whole sample in a dispose.
        """
        payload = sample.payload
        time = Time.of_ns(sample.source_time_ns)
        body = payload[_HEADER_BYTES:] if self._ours or sample.status & DATA else earlier
        format_ = ByteOrder.LITTLE_ENDIAN if payload[1] & 1 else ByteOrder.BIG_ENDIAN
        parts = [
            HEADER,
            self._head,
            self._first.pack(sample.writer, *time, sample.sequence & 0xFFFFFFFF),
            self._middle,
            self._second.pack(_kind(sample.status), sample.key[:_HASH_BYTES], format_, len(body)),
            body,
            bytes(-len(body) % 4),
        ]
        if self._ours:
            header = payload[:_HEADER_BYTES]
            extra = _EXTRA.pack(sample.status, self._depth, sample.sequence, header) + sample.key
            parts += (_SAMPLE_HEAD, _U32.pack(len(extra)), extra, bytes(-len(extra) % 4))
        else:
            parts.append(bytes(4))
        return b"".join(parts)


def _put_qos(writer: CdrWriter, qos: GroupQos) -> None:
    writer.put("3iB", 4, 1, int(qos.exclusive), int(qos.by_source_timestamp), 0)
    writer.put("2iBB", 4, int(qos.durability), 0, 0, 0)
    writer.put("iIiI", 4, 0, 0, *_NO_LIMIT_NS)
    writer.put("iiI", 4, 0, *_NO_LIMIT_NS)
    writer.put("iIi", 4, *_NO_LIMIT_NS, 0)


def sample_of(bead: Bead, extensions: Mapping[str, bytes]) -> tuple[Sample, int | None]:
    """Return the sample in a bead and, from an ospltool server, its group's history depth (0 for all).

    A sample from another product's server has no key: `key` is empty then.

    Raises:
        Malformed: the bead is damaged.
    """
    time_ns = bead.source_time.ns
    extra = extensions.get(SAMPLE)
    if extra is None:
        status = _STATUS_OF.get(SampleKind(bead.kind), 0) if bead.kind in set(SampleKind) else 0
        if not status:
            raise Malformed(f"a sample of kind {bead.kind}")
        header = _BIG_ENDIAN_HEADER if bead.format == ByteOrder.BIG_ENDIAN else HEADER
        return make_sample(time_ns, bead.writer, status, b"", header + bead.payload), None
    if len(extra) < _EXTRA.size:
        raise Malformed("the ospltool extension of a sample is cut off")
    status, depth, sequence, header = _EXTRA.unpack_from(extra)
    if not status or status > DATA | DISPOSE | UNREGISTER:
        raise Malformed(f"a sample of status {status}")
    key = extra[_EXTRA.size :]
    return make_sample(time_ns, bead.writer, status, key, header + bead.payload, sequence), depth


def _kind(status: int) -> SampleKind:
    if status & DATA:
        return SampleKind.WRITE_DISPOSE if status & DISPOSE else SampleKind.WRITE
    return SampleKind.DISPOSE if status & DISPOSE else SampleKind.UNREGISTER
