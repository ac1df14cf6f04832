"""A decoder and encoder for plain CDR of final types: XCDR1 and XCDR2, both byte orders."""

from __future__ import annotations

import struct
from typing import Final

from engine.core.untrusted import words_of
from ospltool.stores.types import (
    CHAR,
    Array,
    Enumeration,
    KeyPath,
    Primitive,
    Sequence,
    Structure,
    Text,
    Type,
    Undecodable,
    Union,
    Value,
)

# Chosen: a damaged length would otherwise make a list of billions.
MAX_ELEMENTS: Final = 16_777_216
"""Elements of one sequence; more is taken for damage."""
# As OpenSplice's own descriptions (`MAX_TYPE_DEPTH`); types of applications nest a few levels.
MAX_DEPTH: Final = 64
"""Types within types; more is taken for damage, before Python runs out of frames."""

HEADER_XCDR1_LITTLE: Final = b"\x00\x01\x00\x00"
HEADER_XCDR2_LITTLE: Final = b"\x00\x07\x00\x00"


class ValueReader:
    """Reads values out of bytes.

    Args:
        data: the bytes.
        at: where the first value begins.
        order: `<` or `>`, as in module struct.
        largest: the largest alignment: 8 in XCDR1, 4 in XCDR2.
        origin: the place from which alignment counts.
    """

    def __init__(self, data: bytes, at: int = 0, order: str = "<", largest: int = 8, origin: int = 0) -> None:
        self._data = data
        self.at = at
        self._order = order
        self._largest = largest
        self._origin = origin

    def value(self, type_: Type, depth: int = 0) -> Value:
        """Decode the next value.

        Raises:
            Undecodable: the bytes end too early, or are not a value of the type.
        """
        if depth > MAX_DEPTH:
            raise Undecodable(f"types are nested deeper than {MAX_DEPTH}")
        if isinstance(type_, Primitive):
            return self.primitive(type_)
        if isinstance(type_, Text):
            return self.text()
        if isinstance(type_, Structure):
            return {member.name: self.value(member.type, depth + 1) for member in type_.members}
        if isinstance(type_, Enumeration):
            return self._label(type_)
        if isinstance(type_, Union):
            return self._union(type_, depth)
        return self._collection(type_, depth)

    def align(self, size: int) -> None:
        """Skip to the alignment of a primitive of this size."""
        self.at += -(self.at - self._origin) % min(size, self._largest)

    def primitive(self, type_: Primitive) -> bool | int | float | str:
        """Decode the next primitive."""
        self.align(type_.size)
        raw = self.next_bytes(type_.size)
        if type_ is CHAR:
            return raw.decode("latin-1")
        value: bool | int | float = struct.unpack(f"{self._order}{type_.code}", raw)[0]
        return value

    def number(self) -> int:
        """Decode the next unsigned 32-bit number."""
        self.align(4)
        (value,) = struct.unpack(f"{self._order}I", self.next_bytes(4))
        return int(value)

    def next_bytes(self, size: int) -> bytes:
        """Return the next `size` bytes, and go on behind them."""
        found = self._data[self.at : self.at + size]
        if len(found) < size:
            raise Undecodable(f"{size} bytes are missing at {self.at} of {len(self._data)}")
        self.at += size
        return found

    def text(self) -> str:
        """Decode the next string; bytes that are not UTF-8 become single characters, so nothing is lost."""
        length = self.number()
        if not length:
            return ""  # OpenSplice writes a null string so
        raw = self.next_bytes(length)
        if raw[-1]:
            raise Undecodable(f"the string that ends at {self.at} does not end with a null byte")
        return raw[:-1].decode("utf-8", "surrogateescape")

    def _label(self, type_: Enumeration) -> str:
        self.align(4)
        (value,) = struct.unpack(f"{self._order}i", self.next_bytes(4))
        for label, number in type_.labels:
            if number == value:
                return label
        raise Undecodable(f"{value} is no value of {type_.name}, at {self.at - 4}")

    def _union(self, type_: Union, depth: int) -> Value:
        switch = self.value(type_.switch, depth + 1)
        case = type_.case_of(switch_number(type_, switch))
        value: dict[str, Value] = {"switch": switch}
        if case is not None:
            value[case.name] = self.value(case.type, depth + 1)
        return value

    def _collection(self, type_: Sequence | Array, depth: int) -> Value:
        if self._largest == 4 and not isinstance(type_.element, Primitive):
            self.number()  # XCDR2: the size in bytes stands before collections of what is not primitive
        count = type_.size if isinstance(type_, Array) else self.number()
        if count > MAX_ELEMENTS:
            raise Undecodable(f"{count} elements are announced at {self.at}")
        if type_.element is CHAR or not isinstance(type_.element, Primitive):
            return [self.value(type_.element, depth + 1) for _ in range(count)]
        if count:
            self.align(type_.element.size)
        raw = self.next_bytes(count * type_.element.size)
        return list(struct.unpack(f"{self._order}{count}{type_.element.code}", raw))


class ValueWriter:
    """Writes values little-endian. `largest` is 8 for XCDR1, 4 for XCDR2."""

    def __init__(self, largest: int = 8) -> None:
        self._out = bytearray()
        self._largest = largest

    def bytes(self) -> bytes:
        """Return the encoded bytes."""
        return bytes(self._out)

    def value(self, type_: Type, value: Value) -> None:
        """Encode a value.

        Raises:
            Undecodable: it is not a value of the type.
        """
        try:
            self._value(type_, value)
        except (struct.error, TypeError, KeyError, AttributeError, ValueError) as error:
            if isinstance(error, Undecodable):
                raise
            raise Undecodable(f"{value!r} is no value of its type: {words_of(error)}") from error

    def _value(self, type_: Type, value: Value) -> None:
        if isinstance(type_, Primitive):
            self._primitive(type_, value)
        elif isinstance(type_, Text):
            self._text(value)
        elif isinstance(type_, Structure):
            assert isinstance(value, dict)
            for member in type_.members:
                self._value(member.type, value[member.name])
        elif isinstance(type_, Enumeration):
            self._pack("i", 4, _number_of(type_, value))
        elif isinstance(type_, Union):
            self._union(type_, value)
        else:
            self._collection(type_, value)

    def _pack(self, code: str, size: int, value: object) -> None:
        self._out += bytes(-len(self._out) % min(size, self._largest))
        self._out += struct.pack(f"<{code}", value)

    def _primitive(self, type_: Primitive, value: Value) -> None:
        if type_ is CHAR:
            assert isinstance(value, str)
            self._out += value.encode("latin-1")
        else:
            self._pack(type_.code, type_.size, value)

    def _text(self, value: Value) -> None:
        assert isinstance(value, str)
        raw = value.encode("utf-8", "surrogateescape") + b"\0"
        self._pack("I", 4, len(raw))
        self._out += raw

    def _union(self, type_: Union, value: Value) -> None:
        assert isinstance(value, dict)
        switch = value["switch"]
        self._value(type_.switch, switch)
        case = type_.case_of(switch_number(type_, switch))
        if case is not None:
            self._value(case.type, value[case.name])

    def _collection(self, type_: Sequence | Array, value: Value) -> None:
        if not isinstance(value, list) or (isinstance(type_, Array) and len(value) != type_.size):
            raise Undecodable(f"{value!r} is no value of a sequence or array")
        header = 0
        if self._largest == 4 and not isinstance(type_.element, Primitive):
            self._pack("I", 4, 0)
            header = len(self._out)
        if isinstance(type_, Sequence):
            self._pack("I", 4, len(value))
        for item in value:
            self._value(type_.element, item)
        if header:
            struct.pack_into("<I", self._out, header - 4, len(self._out) - header)


def switch_number(type_: Union, switch: Value) -> int:
    """Return the discriminator of a union as a number."""
    if isinstance(type_.switch, Enumeration):
        return _number_of(type_.switch, switch)
    return ord(switch) if isinstance(switch, str) else int(switch)  # type: ignore[arg-type]  # a primitive


def _number_of(type_: Enumeration, label: Value) -> int:
    for known, number in type_.labels:
        if known == label:
            return number
    raise Undecodable(f"{label!r} is no label of {type_.name}")


def encode_payload(type_: Type, value: Value) -> bytes:
    """Encode a whole sample as a node captures it: XCDR1, little-endian, with its header."""
    encoder = ValueWriter()
    encoder.value(type_, value)
    return HEADER_XCDR1_LITTLE + encoder.bytes()


def encode_key(type_: Type, value: Value, paths: tuple[KeyPath, ...]) -> bytes:
    """Encode the key fields of a sample in the order of the type, as XCDR2, little-endian."""
    encoder = ValueWriter(largest=4)
    _encode_key(encoder, type_, value, paths)
    return encoder.bytes()


def _encode_key(encoder: ValueWriter, type_: Type, value: Value, paths: tuple[KeyPath, ...]) -> None:
    if not isinstance(type_, Structure) or not isinstance(value, dict):
        raise Undecodable("a key list goes into something that is no structure")
    for member in type_.members:
        inner = tuple(path[1:] for path in paths if path[0] == member.name)
        if () in inner:
            encoder.value(member.type, value[member.name])
        elif inner:
            _encode_key(encoder, member.type, value[member.name], inner)
