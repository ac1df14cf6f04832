"""The type that the sample publisher and subscriber share. The nodes do not know it.

Annotations are real here: cyclonedds reads them, so there is no `from __future__ import annotations`.
"""

from dataclasses import dataclass

import cyclonedds.idl.annotations as annotate
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import int32, int64

TOPIC = "Observation"
PARTITIONS = ("ships", "weather")


@dataclass
@annotate.keylist(["station"])
class Observation(IdlStruct, typename="harbour.Observation"):  # type: ignore[misc, call-arg]  # no types
    """What a station saw; `time_ns` repeats the source timestamp so that a subscriber can compare."""

    station: int32
    value: int32
    time_ns: int64
    remark: str
