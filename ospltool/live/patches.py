"""What changed between two states, as a patch that is small enough to record many of them each second.

A patch is a list, which stands for the value itself (`[value]`) or its absence (`[]`), or an object, which
has the patches of those members of an object or array that changed. `patched` applies it to a plain JSON
value, and `changed` to the value that was made of one, which shares what did not change.
"""

from __future__ import annotations

import dataclasses
import functools
import marshal
import operator
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final

from engine.core import plain
from engine.runtime.monitor import FellowView
from ospltool.live.late_fellows import LateFellows

Patcher = Callable[[Any, Any], Any]
"""Returns a value of one type with a patch applied, or raises."""

_NAMES: Final = [str(number) for number in range(1_000)]
_POSITIONS: Final = {name: number for number, name in enumerate(_NAMES)}


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
    try:
        return _patched(old, patch)
    except PatchFault:
        raise
    except Exception as error:  # of any class: a recording may contain anything
        raise PatchFault(f"a patch that does not fit: {plain.words_of(error)}") from error


def _patched(old: Any, patch: Any) -> Any:
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
            position = _position(index, len(result))
            result[position] = _patched(result[position], part)
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
            result[key] = _patched(result.get(key), part)
    return result


def _position(index: str, length: int) -> int:
    position = int(index) if index.isascii() and index.isdigit() else -1
    if not 0 <= position < length:
        raise PatchFault(f"a patch for member {index!r} of {length}")
    return position


def changed(value: Any, patch: dict[str, Any]) -> Any:
    """Return a dataclass instance as `plain` makes it of its plain form with `patch` applied.

    Nearly all of a large state stays the same from one patch to the next, and is not made again.

    Raises:
        PatchFault: the patch was made for another value, or is one that only `patched` can apply.
        PlainFault: what it puts in does not fit.
    """
    kind: Any = type(value)
    try:
        return _patcher(kind)(value, patch)
    except (PatchFault, plain.PlainFault):
        raise
    except Exception as error:  # likewise
        kind = type(value).__name__
        raise PatchFault(f"a patch that does not fit {kind}: {plain.words_of(error)}") from error


@functools.cache
def _patcher(wanted: Any) -> Patcher:
    """Return what applies patches to values of a type, which is looked at once."""
    if dataclasses.is_dataclass(wanted):
        return _patcher_of_dataclass(typing.cast("type", wanted))
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is tuple and arguments[1:] == (...,):
        return _patcher_of_tuple(arguments[0])
    if origin is dict:
        return _patcher_of_dict(arguments[1])
    return functools.partial(_whole, wanted)


def _whole(wanted: Any, _: Any, patch: Any) -> Any:
    """Return the value that a patch puts in; others are left to `patched`."""
    if type(patch) is list and len(patch) == 1:
        return plain.from_plain(wanted, patch[0])
    raise PatchFault(f"a patch for the members of {wanted}")


def _patcher_of_dataclass(cls: type) -> Patcher:
    names = [field.name for field in dataclasses.fields(cls)]
    numbers = {name: number for number, name in enumerate(names)}
    values_of = operator.attrgetter(*names)

    @functools.cache
    def member(name: str) -> tuple[int, Patcher, plain.Builder] | None:
        if name not in numbers:
            return None
        hint = plain.hints(cls)[name]
        return numbers[name], _patcher(hint), plain.builder(hint)

    def patch_it(old: Any, patch: Any) -> Any:
        if type(patch) is not dict:
            return _whole(cls, old, patch)
        values = list(values_of(old))
        for name, part in patch.items():
            known = member(name)
            if known is None:  # a newer version has more; what is in it is not known
                if type(part) is not dict and part != []:
                    patched(None, part)
                continue
            number, patcher, build = known
            if part is None:
                continue
            if type(part) is list:
                (value,) = part  # none stands for a default, which `patched` leaves to `plain`
                values[number] = build(value)
            else:
                values[number] = patcher(values[number], part)
        return cls(*values)

    return patch_it


def _patcher_of_tuple(inner: Any) -> Patcher:
    patcher, whole = _patcher(inner), functools.partial(_whole, tuple[inner, ...])
    together = _changes_of_one_number(inner) if dataclasses.is_dataclass(inner) else None

    def patch_it(old: Any, patch: Any) -> Any:
        if type(patch) is not dict:
            return whole(old, patch)
        if together is not None and len(patch) > 1:
            found = together(old, patch)
            if found is not None:
                return found
        items = list(old)
        for index, part in patch.items():
            position = _POSITIONS.get(index, -1)
            if not 0 <= position < len(items):
                position = _position(index, len(items))
            items[position] = patcher(items[position], part)
        return tuple(items)

    return patch_it


def _changes_of_one_number(cls: Any) -> Patcher:
    """Return what applies a patch that has the same number of many members, and returns None for another.

    A node reports a heartbeat of every fellow each time, and nothing else of them: with 200 nodes, these
    are nearly all that changes.
    """
    numbers = {field.name for field in dataclasses.fields(cls) if plain.hints(cls)[field.name] is int}
    copier = functools.cache(functools.partial(_copier, cls))
    late = _HEARTBEAT if cls is FellowView else ""

    def patch_them(old: Any, patch: Any) -> Any:
        parts = list(patch.values())
        if set(map(type, parts)) != {dict} or set(map(len, parts)) != {1}:
            return None
        (name,) = parts[0]
        try:
            values = [value for (value,) in [part[name] for part in parts]]
            is_of_all = list(patch) == _NAMES[: len(old)]  # nearly always, and in this order
            positions = [] if is_of_all else [_POSITIONS[index] for index in patch]
            if positions and max(positions) >= len(old):
                return None
        except (LookupError, ValueError, TypeError):
            return None
        if name not in numbers or set(map(type, values)) != {int}:
            return None
        if not -plain.LARGEST <= min(values) <= max(values) <= plain.LARGEST:
            return None
        if name == late:
            return LateFellows(old, _heartbeats(old, positions, values), copier(name))
        if is_of_all:
            return tuple(map(copier(name), old, values))
        found, copied = list(old), copier(name)
        for position, value in zip(positions, values, strict=True):
            found[position] = copied(found[position], value)
        return tuple(found)

    return patch_them


_HEARTBEAT: Final = "last_heartbeat_ns"


def _heartbeats(old: Sequence[FellowView], positions: Sequence[int], values: list[int]) -> list[int]:
    """Return the heartbeats of fellows, with new ones at these positions; without any, all are new."""
    if not positions:
        return values
    found = list(old.heartbeats_ns if isinstance(old, LateFellows) else map(_HEARTBEAT_OF, old))
    for position, value in zip(positions, values, strict=True):
        found[position] = value
    return found


_HEARTBEAT_OF: Final = operator.attrgetter(_HEARTBEAT)


def _copier(cls: Any, changed_name: str) -> Callable[[Any, Any], Any]:
    """Return what copies an instance of a frozen class with slots, with another value of one field.

    A call of the class sets each field by a function, since it is frozen; that is most of the time for a
    snapshot. Here the fields are set in an instance of a class that is the same but for that, and then it
    becomes one of `cls`. Nothing that a class does when an instance is made is done: it is a copy.
    """
    names = [field.name for field in dataclasses.fields(cls)]
    opened = type(cls.__name__, (), {"__slots__": tuple(names)})
    lines = [f" made.{name} = {'value' if name == changed_name else f'old.{name}'}" for name in names]
    body = "\n".join(["def copied(old, value):", " made = new(opened)", *lines])
    scope: dict[str, Any] = {"opened": opened, "new": object.__new__, "cls": cls}
    exec(f"{body}\n made.__class__ = cls\n return made", scope)  # noqa: S102  # of names of fields alone
    copied: Callable[[Any, Any], Any] = scope["copied"]
    return copied


def _patcher_of_dict(inner: Any) -> Patcher:
    patcher, whole = _patcher(inner), functools.partial(_whole, dict[str, inner])
    build = plain.builder(inner)

    def patch_it(old: Any, patch: Any) -> Any:
        if type(patch) is not dict:
            return whole(old, patch)
        found = dict(old)
        for key, part in patch.items():
            if type(part) is not list:
                found[key] = patcher(found[key], part)
            elif part:
                (value,) = part
                plain.builder(str)(key)
                found[key] = build(value)
            else:
                found.pop(key, None)
        return found

    return patch_it
