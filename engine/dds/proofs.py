"""Proofs that a message comes from a process that knows the domain's secret, and from the writer it came by.

A proof is a keyed BLAKE2b of topic, writer, sender, serial and payload. The GUID of the writer is new in each
run of a process, and the serial of a writer only grows, so what was recorded proves nothing when it is sent
again. Without a secret nothing is proved, and proved messages are refused: those with and those without a
secret do not communicate.

The file of the secret has one secret in each line, of `MIN_CHARS` characters or more; `#` begins a comment.
The first one proves, all of them verify. It belongs to the user that runs the process, and nobody else may
read it. It is read again when it has changed.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import hmac
import math
import os
import stat
import struct
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeVar

from engine.dataset.sample import DATA, Sample, captured_sample
from engine.dds import cdr

ELEMENT: Final = "//OpenSplice/Domain/DomainSecret"
"""Element of a configuration with the path of the file."""
VARIABLE: Final = "OSPLTOOL_DOMAIN_SECRET"
"""Environment variable with the path of the file, for processes whose configuration does not name it."""
MIN_CHARS: Final = 32
"""Least length of a secret, so that it cannot be guessed: 128 bits if its characters are hexadecimal."""
# With N secrets a forged message costs N digests, so few.
MAX_SECRETS: Final = 8
"""Secrets in the file; a change needs two, and each wrong proof is tried with all."""
# Eight secrets of any sensible length; `/dev/zero` as the path must end.
MAX_FILE_BYTES: Final = 65_536
"""A larger file is none of secrets; it is not read into memory."""
LOOK_S: Final = 1.0
"""Time between two looks at the file."""
# Some hundred bytes each. A message of a forgotten writer could be replayed, so this is far above the
# writers of a system.
MAX_REMEMBERED: Final = 20_000
"""Writers whose last serial is remembered, and participants whose messages were refused."""
# Chosen: it is milliseconds of hashing. Less would refuse the first messages of a large set after a change
# of secrets.
WASTE_BYTES: Final = 4 << 20
"""Bytes with wrong proofs that are hashed for one participant in a second; it has proved nothing so far."""
# A short message costs a call and look-ups, however little there is to hash. Chosen, not measured.
MESSAGE_COST: Final = 4_096
"""Bytes that a message counts for at least in that, and in `LATER_BYTES`."""
# 256 states of the largest size; a change of secrets takes the time in which an operator copies files, and
# states are replaced rather than added.
LATER_BYTES: Final = 16 << 20
"""Bytes of states with an unknown secret that are kept until it is known, the newest ones."""
# State messages of nodes have some kilobytes.
MAX_LATER_BYTES: Final = 1 << 16
"""Size of the largest one: only many participants together can push out the state of another."""

T = TypeVar("T")
_MAGIC: Final = b"\0PRF"
_HEAD: Final = struct.Struct("<4s8sQ")
"""Magic, id of the secret, serial; then the proof."""
_PROVED: Final = struct.Struct("<HHQ")
# 256 bits: nobody finds a proof by trying.
_PROOF_BYTES: Final = 32
SIZE: Final = _HEAD.size + _PROOF_BYTES
"""Bytes before the payload of a message that is proved."""
PLACE: Final = b"\0PRF place of a proof, which is filled in: \0\0\0\0\0\0\0\0\0"
"""Placeholder for the proof in a message of an OpenSplice type."""
assert len(PLACE) == SIZE


class SecretError(ValueError):
    """The file of the secret cannot be used; the text says why.

    Args:
        text: why.
        is_local: another user, or another machine, may be able to use the file of this name.
    """

    def __init__(self, text: str, *, is_local: bool = False) -> None:
        super().__init__(text)
        self.is_local = is_local


class _Key(NamedTuple):
    id: bytes
    key: bytes


def _keys_in(content: bytes, path: str) -> tuple[_Key, ...]:
    lines = [line.strip() for line in content.splitlines()]
    secrets = [line for line in lines if line and not line.startswith(b"#")]
    if not secrets:
        raise SecretError(f"{path} has no secret")
    if len(secrets) > MAX_SECRETS:
        raise SecretError(f"{path} has {len(secrets)} secrets; {MAX_SECRETS} are enough")
    short = min(map(len, secrets))
    if short < MIN_CHARS:
        raise SecretError(f"{path} has a secret of {short} characters; at least {MIN_CHARS} are needed")
    keys = [hashlib.blake2b(secret, person=b"ospltool key").digest() for secret in secrets]
    return tuple(_Key(hashlib.blake2b(key, digest_size=8).digest(), key) for key in keys)


def fingerprints(path: str) -> tuple[str, ...]:
    """Return what tells the secrets of a file apart and reveals nothing of them, that which proves first.

    It does not matter here who else may read the file. Raises SecretError.
    """
    return tuple(key.id.hex() for key in _keys_in(_open(path, is_private=False)[1], path))


def _open(path: str, *, is_private: bool = True) -> tuple[os.stat_result, bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SecretError(f"{path} cannot be read: {error.strerror}", is_local=True) from error
    except ValueError as error:  # a path with a zero byte
        raise SecretError(f"{path!r}: {error}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise SecretError(f"{path} is not a file")
        if is_private and found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            raise SecretError(f"{path} has mode {mode:04o}, and others may use it: chmod 600 {path}")
        if is_private and found.st_uid != os.geteuid():
            text = f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}"
            raise SecretError(text, is_local=True)
        return found, os.read(descriptor, MAX_FILE_BYTES)
    finally:
        os.close(descriptor)


class DomainSecret:
    """The secret of a domain, read from its file and again when that changes.

    Args:
        path: the file.

    Raises:
        SecretError: it cannot be used.

    Attributes:
        problem: why the file could not be read again; the secrets that were in it still count.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.problem = ""
        found, content = _open(path)
        self._seen = _version(found)
        self._keys = _keys_in(content, path)
        self._due_s = time.monotonic() + LOOK_S

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> Self | None:
        """Return the secret of `VARIABLE`; None if that is not set. Raises SecretError."""
        path = environ.get(VARIABLE, "")
        return cls(path) if path else None

    def current(self) -> tuple[_Key, ...]:
        """Return the keys; the first one proves."""
        now = time.monotonic()
        if now >= self._due_s:
            self._due_s = now + LOOK_S
            self._reread()
        return self._keys

    def _reread(self) -> None:
        try:
            if _version(Path(self.path).stat()) == self._seen and not self.problem:
                return
            found, content = _open(self.path)
            self._keys, self._seen, self.problem = _keys_in(content, self.path), _version(found), ""
        except OSError as error:  # the last secrets go on: while the file is replaced, it may be away
            self.problem = f"{self.path} cannot be read: {error.strerror}"
        except SecretError as fault:
            self.problem = str(fault)


def _version(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


class ProofFault(enum.StrEnum):
    """Why a message was refused."""

    MISSING = "without a proof"
    OTHER = "with another secret"
    WRONG = "with a wrong proof"
    AGAIN = "sent again"
    UNASKED = "with a proof, while there is no secret here"
    IMPOSTOR = "in the name of a node that it is not"
    NONSENSE = "that are no messages"


NO_SECRET_HELPS: Final = frozenset((ProofFault.IMPOSTOR, ProofFault.NONSENSE))
"""What is refused with and without a secret: its sender is no node."""


@dataclasses.dataclass(slots=True)
class Refused:
    """Messages of one participant that were refused."""

    counts: dict[ProofFault, int] = dataclasses.field(default_factory=dict)
    last_s: float = 0.0
    """When the last one came, on the monotonic clock."""
    second: int = 0
    wasted: int = 0
    """Bytes hashed in vain in that second."""


class Proofs:
    """Proves what one participant sends, and verifies what it receives. All threads may use it.

    Attributes:
        secret: that of the domain; None for none.
        refused: what was refused, by participant.
    """

    def __init__(self, secret: DomainSecret | None) -> None:
        self.secret = secret
        self.refused: dict[bytes, Refused] = {}
        self._lock = threading.Lock()  # the pump verifies; the sender and the workers prove
        self._serial = 0
        self._serials: dict[bytes, int] = {}
        self._known: dict[bytes, None] = {}
        self._later: dict[tuple[str, bytes], Sample] = {}
        self._later_bytes = 0

    def prove(self, topic: str, writer: bytes, sender: bytes, payload: bytes) -> bytes:
        """Return what goes before a payload, empty without a secret.

        Args:
            topic: where it is written.
            writer: GUID of the writer, which sends its messages in the order of this call.
            sender: the id of the sender in the message; may be empty.
            payload: the rest of the message.
        """
        if self.secret is None:
            return b""
        key = self.secret.current()[0]
        with self._lock:
            self._serial = serial = max(self._serial + 1, time.time_ns())
        head = _HEAD.pack(_MAGIC, key.id, serial)
        return head + _proof(key.key, topic, writer, sender, serial, payload)

    def verify(
        self,
        topic: str,
        writer: bytes,
        sender: bytes,
        message: bytes | memoryview,
        *,
        is_state: bool = False,
    ) -> bytes | None:
        """Return the payload of a message; None if it is refused, which is counted.

        Args:
            topic: where it was read.
            writer: GUID of its writer, from the transport.
            sender: the id of the sender in the message.
            message: what came: the proof, then the payload.
            is_state: a state that comes again, because the writer came into reach again, still holds. One
                with an unknown secret is kept for `verifiable`: its writer has no reason to send it again.
        """
        if self.secret is None:
            if message[: len(_MAGIC)] == _MAGIC:
                self.refuse(writer, ProofFault.UNASKED)
                return None
            return bytes(message)
        proof, content = bytes(message[:SIZE]), memoryview(message)[SIZE:]
        reason = self._judge(topic, writer, sender, proof, content, is_state=is_state)
        if is_state:
            is_later = reason is ProofFault.OTHER and len(message) <= MAX_LATER_BYTES
            self._replace_later(topic, writer, cdr.pack_named(sender, bytes(message)) if is_later else b"")
        if reason is not None:
            self.refuse(writer, reason)
            return None
        return bytes(content)  # the only copy: batches are large

    def _replace_later(self, topic: str, writer: bytes, payload: bytes) -> None:
        """Keep this state of a participant on a topic in place of the last one; none if it is empty."""
        place = topic, _participant_of(writer)
        with self._lock:
            if (before := self._later.pop(place, None)) is not None:
                self._later_bytes -= max(len(before.payload), MESSAGE_COST)
            if payload:
                self._later[place] = captured_sample(0, writer, DATA, b"", payload)
                self._later_bytes += max(len(payload), MESSAGE_COST)
            while self._later_bytes > LATER_BYTES:
                oldest = self._later.pop(next(iter(self._later)))
                self._later_bytes -= max(len(oldest.payload), MESSAGE_COST)

    def ended(self, topic: str, writer: bytes) -> None:
        """Forget the state of a writer that is gone."""
        self._replace_later(topic, writer, b"")

    def verifiable(self, topic: str) -> list[Sample]:
        """Return the states of a topic that were refused for a secret that is known now, to verify again."""
        if not self._later or self.secret is None:
            return []
        known = {key.id for key in self.secret.current()}
        with self._lock:
            kept = [state for (where, _), state in self._later.items() if where == topic]
        return [one for one in kept if _HEAD.unpack_from(cdr.unpack_named(one.payload)[1])[1] in known]

    def proves_with(self) -> bytes:
        """Return the id of the secret that proves now; empty without one."""
        return self.secret.current()[0].id if self.secret is not None else b""

    def forget(self, participant: bytes) -> None:
        """Forget what was refused of a participant that has left."""
        with self._lock:
            self.refused.pop(participant, None)

    def refused_since(self, since_s: float) -> dict[bytes, dict[ProofFault, int]]:
        """Return what was refused of participants of which some was after a moment on the monotonic clock."""
        with self._lock:
            return {
                guid: dict(refused.counts)
                for guid, refused in self.refused.items()
                if refused.last_s >= since_s
            }

    def difference(self) -> str:
        """Say what this process and those whose messages it refused have in place of the same secret.

        Empty if it has refused nothing.
        """
        reasons = {reason for each in self.refused_since(-math.inf).values() for reason in each}
        reasons -= NO_SECRET_HELPS
        if not reasons:
            return ""
        if self.secret is None:
            return f"it has no secret of the domain ({VARIABLE}, or {ELEMENT} of a configuration)"
        path = self.secret.path
        if reasons == {ProofFault.OTHER}:
            return f"their first secret is not in {path}, which it has"
        if reasons == {ProofFault.MISSING}:
            return f"they have no secret ({ELEMENT}), and it has that of {path}"
        return f"they do not prove that they know the secret in {path}"

    # Messages of a type of OpenSplice have their proof in them.

    def place(self) -> bytes:
        """Return the placeholder that a message has until it is proved; empty without a secret."""
        return PLACE if self.secret is not None else b""

    def filled(self, topic: str, writer: bytes, message: bytes) -> bytes:
        """Return a message with its proof in its place; without a secret, or a place, as it is."""
        at = message.find(PLACE) if self.secret is not None else -1
        if at < 0:
            return message
        rest = message[:at] + message[at + SIZE :]
        return message[:at] + self.prove(topic, writer, b"%d" % at, rest) + message[at + SIZE :]

    def is_proved(self, topic: str, writer: bytes, message: bytes, proof: bytes) -> bool:
        """Tell whether a message with this `proof` proves its sender. One that does not is counted."""
        if self.secret is None:
            if proof:
                self.refuse(writer, ProofFault.UNASKED)
            return not proof
        reason: ProofFault | None = ProofFault.MISSING
        at = message.find(proof) if len(proof) == SIZE else -1
        if at >= 0:
            rest = memoryview(message[:at] + message[at + SIZE :])
            reason = self._judge(topic, writer, b"%d" % at, proof, rest, is_state=False)
        if reason is not None:
            self.refuse(writer, reason)
        return reason is None

    def _judge(
        self, topic: str, writer: bytes, sender: bytes, proof: bytes, payload: memoryview, *, is_state: bool
    ) -> ProofFault | None:
        assert self.secret is not None
        if len(proof) < SIZE or not proof.startswith(_MAGIC):
            return ProofFault.MISSING
        _, key_id, serial = _HEAD.unpack_from(proof)
        key = next((each.key for each in self.secret.current() if each.id == key_id), None)
        if key is None:
            return ProofFault.OTHER
        last = self._serials.get(writer, 0)
        if serial < last or (serial == last and not is_state):
            return ProofFault.AGAIN
        if not self._may_cost(_participant_of(writer), len(payload)):
            return ProofFault.WRONG
        proved = _proof(key, topic, writer, sender, serial, payload)
        if not hmac.compare_digest(proved, proof[_HEAD.size :]):
            return ProofFault.WRONG
        with self._lock:
            _remember(self._serials, writer, serial)
            _remember(self._known, _participant_of(writer), None)
        return None

    def _may_cost(self, participant: bytes, size: int) -> bool:
        """Tell whether a message may be hashed: of those that only waste time, not much is."""
        refused = self.refused.get(participant)
        if refused is None or ProofFault.WRONG not in refused.counts or participant in self._known:
            return True
        second = int(time.monotonic())
        if refused.second != second:
            refused.second, refused.wasted = second, 0
        refused.wasted += max(size, MESSAGE_COST)
        return refused.wasted <= WASTE_BYTES

    def refuse(self, writer: bytes, reason: ProofFault) -> None:
        """Count a message of a writer, or of a participant, that is refused."""
        participant = _participant_of(writer)
        with self._lock:
            refused = self.refused.get(participant)
            if refused is None:
                refused = Refused()
                _remember(self.refused, participant, refused)
            refused.counts[reason] = refused.counts.get(reason, 0) + 1
            refused.last_s = time.monotonic()


def _remember(into: dict[bytes, T], key: bytes, value: T) -> None:
    """Note what is newest; beyond the limit, the oldest is forgotten."""
    into.pop(key, None)
    into[key] = value
    if len(into) > MAX_REMEMBERED:
        del into[next(iter(into))]


def _participant_of(writer: bytes) -> bytes:
    """Return the GUID of the participant of a writer; see `engine.dds.abi.participant_of`."""
    return writer[:12] + b"\0\0\x01\xc1"


def _proof(
    key: bytes, topic: str, writer: bytes, sender: bytes, serial: int, payload: bytes | memoryview
) -> bytes:
    name = topic.encode()
    proof = hashlib.blake2b(key=key, digest_size=_PROOF_BYTES, person=b"ospltool proof")
    proof.update(_PROVED.pack(len(name), len(sender), serial) + name + writer + sender)
    proof.update(payload)  # without the GIL, if it is large
    return proof.digest()
