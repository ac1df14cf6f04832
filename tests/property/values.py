"""Arbitrary values of the annotated types that travel: messages, views, descriptions."""

from __future__ import annotations

import enum
import types
import typing
from typing import Any

from hypothesis import strategies as st

from engine.dataset.lifespans import WriterLifespan

_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=5),
    bytes: st.binary(max_size=5),
    bool: st.booleans(),
    int: st.integers() | st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3),
    float: st.floats(-float(1 << 128), float(1 << 128)),
    type(None): st.none(),
}
_LIFESPANS = st.builds(WriterLifespan, st.binary(min_size=16, max_size=16), st.integers(0, 2**63 - 1))
_BOUNDED: dict[str, st.SearchStrategy[Any]] = {
    "addresses": st.lists(st.ip_addresses().map(str), max_size=2).map(tuple),
    "history_depth": st.integers(min_value=0),
    "lifespans": st.lists(_LIFESPANS, max_size=2).map(tuple),
}


def values(wanted: Any) -> st.SearchStrategy[Any]:
    """Values of a type: scalars, enums, unions, tuples, dicts, named tuples and dataclasses of such."""
    if wanted in _SCALARS:
        return _SCALARS[wanted]
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*(values(each) for each in inner))
    if origin is tuple and inner[-1] is not ...:
        return st.tuples(*map(values, inner))
    if origin is tuple:
        return st.lists(values(inner[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(values(str), values(inner[1]), max_size=2)
    if issubclass(wanted, enum.Enum):
        return st.sampled_from(wanted)
    hints = typing.get_type_hints(wanted)
    names = wanted.__struct_fields__ if hasattr(wanted, "__struct_fields__") else wanted._fields
    return st.builds(wanted, **{n: _BOUNDED[n] if n in _BOUNDED else values(hints[n]) for n in names})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
"""What a JSON reader may hand out, NaN and infinity included."""
