"""Differences between two JSON values, small enough to record many of them each second.

A patch is either a list, which stands for the value itself (`[value]`) or for its absence (`[]`), or an
object, which has the patches of those members of an object or array that changed.
"""

from __future__ import annotations

import marshal
from typing import Any


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
            position = int(index) if index.isascii() and index.isdigit() else -1
            if not 0 <= position < len(result):
                raise PatchFault(f"a patch for member {index!r} of {len(result)}")
            result[position] = patched(result[position], part)
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
            result[key] = patched(result.get(key), part)
    return result
