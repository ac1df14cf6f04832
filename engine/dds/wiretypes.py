"""The types of our own topics. Every one carries bytes; `engine.dds.cdr` packs and unpacks them.

The field types are evaluated when the module loads: the wheel cannot resolve them as text.
"""

# The base class comes without types; its class keyword cannot be checked.
# mypy: disable-error-code="misc,call-arg"

from dataclasses import dataclass

from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import final, key
from cyclonedds.idl.types import int32, sequence, uint8


@dataclass
@final
class State(IdlStruct, typename="ospltool.State"):
    """What a sender says of itself now: one instance for each sender."""

    sender: str
    key("sender")
    payload: sequence[uint8]


@dataclass
@final
class Message(IdlStruct, typename="ospltool.Message"):
    """One message of a sender; no instances."""

    sender: str
    payload: sequence[uint8]


@dataclass
@final
class Batch(IdlStruct, typename="ospltool.Batch"):
    """One batch of an alignment stream; no instances."""

    payload: sequence[uint8]


@dataclass
@final
class SelfCheck(IdlStruct, typename="ospltool.SelfCheck"):
    """What the check of memory layouts writes."""

    number: int32
    key("number")
    text: str
