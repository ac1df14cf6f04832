"""The types of ospltool's own topics. Each carries bytes, which `engine.dds.cdr` packs and unpacks.

The field types are evaluated when the module loads: the wheel cannot resolve them from text.
"""

# The base class comes without types; its class keyword cannot be checked.
# mypy: disable-error-code="misc,call-arg"

from dataclasses import dataclass

from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import final, key
from cyclonedds.idl.types import int32, sequence, uint8


@dataclass
@final
class SenderState(IdlStruct, typename="ospltool.State"):
    """The current state of a sender; one instance for each sender."""

    sender: str
    key("sender")
    payload: sequence[uint8]


@dataclass
@final
class Message(IdlStruct, typename="ospltool.Message"):
    """One message of a sender; without key."""

    sender: str
    payload: sequence[uint8]


@dataclass
@final
class Batch(IdlStruct, typename="ospltool.Batch"):
    """One batch of an alignment stream; without key."""

    payload: sequence[uint8]


@dataclass
@final
class SelfCheck(IdlStruct, typename="ospltool.SelfCheck"):
    """A sample of the check of memory layouts."""

    number: int32
    key("number")
    text: str
