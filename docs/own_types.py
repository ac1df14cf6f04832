"""Make engine/dds/own_types.tsv from the classes of the node's own topics: `python -m docs.own_types`.

A test fails if the file differs from what this module makes.
"""

from __future__ import annotations

import base64
from typing import Final

from docs import client_durability
from engine.dds import own_types
from engine.dds.topics import DESCRIPTIONS, description_of

CLASSES: Final = (
    own_types.SenderState,
    own_types.Message,
    own_types.Batch,
    own_types.SelfCheck,
    client_durability.DurabilityStateRequest,
    client_durability.DurabilityState,
    client_durability.HistoricalDataRequest,
    client_durability.HistoricalData,
)


def text() -> str:
    """Return the text of the file: a line for each type, with its name and the parts of its description."""
    lines = []
    for class_ in CLASSES:
        made = description_of(class_)
        parts = [base64.b85encode(part).decode() for part in (made.information, made.mapping)]
        lines.append("\t".join([made.name, str(int(made.keyed)), *parts]))
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    DESCRIPTIONS.write_text(text(), encoding="ascii")
