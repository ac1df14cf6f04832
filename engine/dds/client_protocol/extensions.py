"""ospltool's additions to the protocol, in its fields for extensions; other products skip them.

A message carries one addition: `ospltool`, a JSON object, or with a sample `ospltool.sample`, which has
what the protocol has no field for: exact status, whole sequence number, encapsulation, key, and the
history depth of the sample's group.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.dds.cdr import HEADER, Malformed
from engine.dds.client_protocol.encoding import CdrWriter, put_answer_head
from engine.dds.client_protocol.messages import Bead, ByteOrder, RequestId, SampleKind, Time

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
_HEADER_BYTES: Final = 4
_HASH_BYTES: Final = 16
_BIG_ENDIAN_HEADER: Final = b"\x00\x00\x00\x00"
_STATUS_OF: Final = {
    SampleKind.WRITE: DATA,
    SampleKind.DISPOSE: DISPOSE,
    SampleKind.UNREGISTER: UNREGISTER,
    SampleKind.WRITE_DISPOSE: DATA | DISPOSE,
}
_NO_LIMIT_NS: Final = (0x7FFFFFFF, 0x7FFFFFFF)


def pack(**values: object) -> dict[str, bytes]:
    """Pack values as ospltool's addition to a message."""
    return {NAME: json.dumps(values, separators=(",", ":")).encode()}


def with_proof(extensions: Mapping[str, bytes], proofs: Proofs) -> Mapping[str, bytes]:
    """Return the additions to a message with a place for its proof, if there is a secret."""
    place = proofs.place()
    return {**extensions, PROOF: place} if place else extensions


def unpack(extensions: Mapping[str, bytes]) -> dict[str, Any] | None:
    """Return ospltool's addition to a message, None if the sender is another product.

    Raises:
        Malformed: it is not a JSON object.
    """
    text = extensions.get(NAME)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Malformed("the ospltool extension is not JSON") from None
    if not isinstance(found, dict):
        raise Malformed("the ospltool extension is not a JSON object")
    return found


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
