"""The types of our own topics, which are read instead of made at each start."""

from __future__ import annotations

import subprocess
import sys

import pytest

from docs import own_types
from engine.dds.topics import DESCRIPTIONS, description_of, our_descriptions

MAKES_TYPES = "cyclonedds.idl._xt_builder"


def test_the_file_is_what_the_classes_say() -> None:
    assert DESCRIPTIONS.read_text("ascii") == own_types.text(), "run: python -m docs.own_types"


@pytest.mark.parametrize("class_", own_types.CLASSES)
def test_the_type_of_a_class_is_found(class_: type) -> None:
    made = description_of(class_)
    assert our_descriptions()[made.name] == made


@pytest.mark.dds
def test_the_check_at_every_start_makes_no_type() -> None:
    program = (
        "import sys; from engine.dds import wheel; wheel.import_used_parts_only();"
        " import engine.node.process; from engine.dds.selfcheck import check_layouts; check_layouts();"
        f" print({MAKES_TYPES!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
