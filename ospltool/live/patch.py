"""Differences between two JSON values, small enough to record many of them each second.

A patch is either a list, which stands for the value itself (`[value]`) or for its absence (`[]`), or an
object, which has the patches of those members of an object or array that changed.
"""

from __future__ import annotations

from typing import Any


class PatchFault(ValueError):
    """A patch that does not fit the value it is applied to."""


def difference(old: Any, new: Any) -> Any:
    """Return the patch that turns `old` into `new`; None if they are equal."""
    if type(old) is type(new):
        if old == new:
            return None
        if isinstance(old, dict):
            changed = {
                key: [value] if key not in old else difference(old[key], value)
                for key, value in new.items()
                if key not in old or old[key] != value
            }
            return changed | {key: [] for key in old if key not in new}
        if isinstance(old, list) and len(old) == len(new):
            pairs = enumerate(zip(old, new, strict=True))
            return {
                str(index): difference(a, b) for index, (a, b) in pairs if a != b or type(a) is not type(b)
            }
    return [new]


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
