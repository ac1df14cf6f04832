"""Our participants, which a tag lets nodes recognise and ignore, with chosen GUIDs and free domain ids."""

from __future__ import annotations

import atexit
import contextlib
import enum
import os
import re
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol, Self

from engine.dds import abi
from engine.dds.errors import (
    BAD_PARAMETER,
    OUT_OF_RESOURCES,
    PRECONDITION_NOT_MET,
    DdsError,
    UnusableSettings,
    check,
    no_security,
)
from engine.dds.proofs import DomainSecret, Proofs
from engine.dds.qos import EndpointQos, group_qos, new_qos
from engine.dds.trial import refusal_of
from engine.dds.uri import asks_for_security, incomplete_part, unreadable_file

# 16 bits: two processes that start in the same 65 us still differ, and the order of any that start later is
# kept.
_RANDOM_BITS: Final = 0xFFFF
"""Random bits of a GUID that is made from the time; they cover 65 us."""
_LARGEST: Final = (1 << 64) - 1


def high_guid() -> bytes:
    """Make a participant's GUID above all made before, and above nearly all that Cyclone DDS draws."""
    return _guid(b"\xff\xff", time.time_ns())


def low_guid() -> bytes:
    """Make a participant's GUID below all made before, and below nearly all that Cyclone DDS draws."""
    return _guid(b"\0\0", _LARGEST - time.time_ns())


def _guid(first: bytes, rank: int) -> bytes:
    """Make a GUID of Cyclone DDS (vendor 1.16) that compares by `first`, then by `rank`."""
    rank = (rank & ~_RANDOM_BITS) | (int.from_bytes(os.urandom(2)) & _RANDOM_BITS)
    ranked = rank.to_bytes(8)
    return b"\x01\x10" + first + ranked[3::-1] + ranked[:3:-1] + b"\0\0\x01\xc1"


def in_memory(guid: bytes) -> bytes:
    """Return a GUID in the memory order of a little-endian reader, in which readers compare GUIDs."""
    return b"".join(guid[at : at + 4][::-1] for at in range(0, 16, 4))


NODE_ID_BYTES: Final = 16
TAG_VERSION: Final = 1
_NOT_OURS: Final = 0
_TAG: Final = re.compile(rb"ospltool-(node|deliverer|client|persistence)/(\d{1,4}):([0-9a-f]{32})")


class Closable(Protocol):
    """An object that a participant closes before itself."""

    def close(self) -> None:
        """Close it. Idempotent."""


class TagRole(enum.StrEnum):
    """Role of a participant of this product. Nodes treat a TOOL like an application."""

    NODE = "node"
    DELIVERER = "deliverer"
    CLIENT = "client"
    PERSISTENCE = "persistence"
    TOOL = "tool"


class Tag(NamedTuple):
    """The user data of a participant of this product.

    `node_id` has 16 bytes: the id of the node, also in its deliverers; a persistence service has its own id,
    and a client a random one.
    """

    role: TagRole
    node_id: bytes
    version: int = TAG_VERSION

    def encode(self) -> bytes:
        """Return the text that is sent as USER_DATA."""
        if len(self.node_id) != NODE_ID_BYTES:
            raise ValueError(f"a node id has {NODE_ID_BYTES} bytes, not {len(self.node_id)}")
        return f"ospltool-{self.role}/{self.version}:{self.node_id.hex()}".encode()

    @classmethod
    def decode(cls, user_data: bytes) -> Tag | None:
        """Return the tag in a participant's user data; None for other products."""
        found = _TAG.fullmatch(user_data)
        if found is None:
            return None
        return cls(TagRole(found[1].decode()), bytes.fromhex(found[3].decode()), int(found[2]))


_SETTINGS: Final = " with the given settings, of which Cyclone DDS names the wrong part on its log (stderr)"


class _Domains:
    """The Cyclone domains of this process: created with the first participant, deleted with the last."""

    def __init__(self) -> None:
        # Held while a domain is made, too: two threads must not make the same one.
        self._lock = threading.Lock()
        self._known: dict[int, list[int]] = {}

    def acquire(self, domain_id: int, uri: str, *, tries: bool) -> None:
        with self._lock:
            known = self._known.get(domain_id)
            if known is not None:
                known[1] += 1
                return
            if abi.OTHER and asks_for_security(uri):
                raise no_security(domain_id, "what hands over history has no identity of its own")
            if lack := incomplete_part(uri):
                raise UnusableSettings(BAD_PARAMETER, f"CYCLONEDDS_URI is incomplete: {lack}")
            refusal = refusal_of(uri, domain_id, abi.PATH) if tries else None
            entity = refusal.code if refusal else abi.create_domain(domain_id, uri.encode())
            if entity == PRECONDITION_NOT_MET:  # the application created it and stays its owner
                self._known[domain_id] = [_NOT_OURS, 1]
                return
            if entity < 0 and asks_for_security(uri):
                raise no_security(domain_id, "the package cyclonedds is built without DDS Security")
            if entity < 0 and (file := unreadable_file(uri)):
                raise DdsError(entity, f"create domain {domain_id}: CYCLONEDDS_URI names {file}")
            if refusal is not None:
                raise refusal
            check(entity, f"create domain {domain_id}{_SETTINGS}")
            self._known[domain_id] = [entity, 1]

    def release(self, domain_id: int) -> None:
        with self._lock:
            known = self._known[domain_id]
            known[1] -= 1
            if known[1] == 0:
                del self._known[domain_id]
                if known[0] != _NOT_OURS:
                    abi.delete(known[0])


_domains = _Domains()
_open: weakref.WeakSet[NodeParticipant] = weakref.WeakSet()


class NodeParticipant:
    """A participant of this product, in a domain of this process.

    The first participant of a domain creates it with its `uri`; later ones in the same process share it, and
    so do participants in an application that created the domain before. Their `uri` has no effect.

    Args:
        domain_id: the domain id in this process, 0 to 230.
        uri: settings as XML, see `engine.dds.uri`.
        name: the entity name that others see.
        node_tag: the node id, 16 bytes.
        role: the participant's role.
        guid: its GUID, 16 bytes in network order; None lets Cyclone DDS draw one.
        secret: the secret of the domain. A node has that of its configuration or none; others have that of
            the environment, if they are given none.
        tries: whether another process tries the settings first, so that their refusal is one sentence that
            names the wrong part. It takes some 50 ms.

    Attributes:
        proofs: of the messages that it sends and receives.

    Raises:
        SecretError: the secret of the environment cannot be used.
        DdsError: the domain or the participant cannot be created, for example because the interface does
            not exist or every participant index is taken.
    """

    def __init__(
        self,
        domain_id: int,
        uri: str,
        name: str,
        node_tag: bytes,
        role: TagRole = TagRole.NODE,
        guid: bytes | None = None,
        secret: DomainSecret | None = None,
        *,
        tries: bool = False,
    ) -> None:
        if secret is None and role is not TagRole.NODE:
            secret = DomainSecret.of_environment(os.environ)
        self.proofs = Proofs(secret)
        self.domain_id = domain_id
        self.uri = uri
        self.name = name
        self.tag = Tag(role, node_tag)
        self._lock = threading.Lock()  # readers and writers come and go on several threads
        self._children: dict[int, Closable] = {}
        self._closed = False
        user_data = self.tag.encode()
        _domains.acquire(domain_id, uri, tries=tries)
        try:
            with new_qos() as qos:
                abi.qset_userdata(qos, user_data, len(user_data))
                abi.qset_entity_name(qos, name.encode())
                code = (
                    abi.create_participant(domain_id, qos, None)
                    if guid is None
                    else abi.create_participant_as(domain_id, qos, None, 0, guid)
                )
                self.entity: int = check(code, f"create a participant in domain {domain_id}")
        except DdsError:
            _domains.release(domain_id)
            raise
        self.guid = abi.guid_of(self.entity)
        _open.add(self)

    @property
    def closed(self) -> bool:
        """Whether the participant is closed."""
        return self._closed

    def create_subscriber(self, qos: EndpointQos) -> int:
        """Create a subscriber for the partitions of `qos`; the caller deletes it."""
        with group_qos(qos) as c_qos:
            return check(abi.create_subscriber(self.entity, c_qos, None), "create a subscriber")

    def create_publisher(self, qos: EndpointQos) -> int:
        """Create a publisher for the partitions of `qos`; the caller deletes it."""
        with group_qos(qos) as c_qos:
            return check(abi.create_publisher(self.entity, c_qos, None), "create a publisher")

    def adopt(self, entity: int, child: Closable) -> None:
        """Make `close` close the child first; C holds pointers into some children."""
        with self._lock:
            self._children[entity] = child

    def disown(self, entity: int) -> None:
        """Forget a child that was closed."""
        with self._lock:
            self._children.pop(entity, None)

    def close(self) -> None:
        """Close the participant's children, newest first, then the participant. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            children = list(self._children.values())
        for child in reversed(children):  # what was made later may use what was there
            child.close()
        abi.delete(self.entity)
        _domains.release(self.domain_id)
        _open.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@atexit.register
def _close_all() -> None:
    """Close all participants before the interpreter ends: their threads must not call into it later."""
    for participant in list(_open):
        # One that its owner has closed meanwhile, or that Cyclone DDS has taken down already; the others
        # must be closed.
        with contextlib.suppress(DdsError):
            participant.close()


# Above 230, the last id that DDSI has ports for, with a round number to be known in a log.
_FIRST_ID: Final = 1000
# Room for more than the sessions of a process (`directed.MAX_SESSIONS`).
_LAST_ID: Final = 1999
# Sessions are opened by several workers at once.
_ids_lock = threading.Lock()
_ids_used: set[int] = set()


@contextlib.contextmanager
def free_domain_id() -> Iterator[int]:
    """Reserve a domain id that nothing else in this process uses while the block runs.

    These ids name domains in this process only and lie above those that applications may use (0 to 230).
    On the wire such a domain uses the `ExternalDomainId` of its settings.

    Raises:
        DdsError: all thousand are in use.
    """
    with _ids_lock:
        free = next((number for number in range(_FIRST_ID, _LAST_ID + 1) if number not in _ids_used), None)
        if free is None:
            raise DdsError(OUT_OF_RESOURCES, "find a free domain id")
        _ids_used.add(free)
    try:
        yield free
    finally:
        with _ids_lock:
            _ids_used.discard(free)
