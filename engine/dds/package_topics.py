"""Topics with the type support of the package cyclonedds, as applications of the client library have them.

What the self-check looks at is private to the package: the function that makes such a topic, the attributes
of a type that it reads, and where a sample has its bytes (`abi.SERDATA`).
"""

from __future__ import annotations

import functools
import types
from typing import Final

from cyclonedds import _clayer

from engine.dataset.groups import TypeDescription
from engine.dds import abi
from engine.dds.errors import DdsError, check

_REMEMBERED_TYPES: Final = 4096


class _OpaqueType:
    """A substitute for a Python type class: Cyclone's type support reads only these attributes.

    Cyclone DDS compares types by calling into Python, unless it gets the same object; `_opaque_type`
    therefore makes one object for each description.
    """

    def __init__(self, description: TypeDescription) -> None:
        self._description = description
        self.__idl__ = types.SimpleNamespace(
            idl_transformed_typename=description.name,
            data_type_props=abi.KEYED if description.keyed else 0,
            supported_versions=abi.BOTH_REPRESENTATIONS,
            _xt_bytedata=(description.information, description.mapping),
            populate=lambda: None,
            fill_type_data=lambda: None,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OpaqueType) and other._description == self._description

    def __hash__(self) -> int:
        return hash(self._description)


@functools.lru_cache(maxsize=_REMEMBERED_TYPES)
def _opaque_type(description: TypeDescription) -> _OpaqueType:
    return _OpaqueType(description)


def create(participant: int, topic_name: str, description: TypeDescription) -> int:
    """Make a topic; return the entity.

    Args:
        participant: the entity in whose domain it is.
        topic_name: the topic's name.
        description: its type.

    Raises:
        DdsError: Cyclone DDS refuses the type, for example a recursive one.
    """
    action = f"create the topic '{topic_name}' of type '{description.name}'"
    try:
        entity = _clayer.ddspy_topic_create(participant, topic_name, _opaque_type(description), None, None)
    except (RuntimeError, TypeError, ValueError) as error:
        raise DdsError(-1, f"{action} ({error})") from error
    topic: int = check(entity, action)
    return topic
