"""Applications on Cyclone DDS 0.10.2, with and without type information, beside nodes on 11.

`make older` fetches Debian's library, unpacks it (nothing is installed), and runs these tests.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.integration.configurations import Settings, Space

if TYPE_CHECKING:
    from tests.integration.lab import Lab
    from tests.integration.programs import Program

DIRECTORY: Final = os.environ.get("OSPLTOOL_OLDER", "")
COUNT: Final = 20
NODES: Final = ("n1", "n2")
PERSISTENT: Final = 3

pytestmark = [
    pytest.mark.dds,
    pytest.mark.skipif(not DIRECTORY, reason="`make older` runs it: it needs Debian's libddsc 0.10.2"),
]


@pytest.fixture
def started(lab: Lab) -> Lab:
    lab.start_complete(*NODES, settings=Settings(spaces=(Space(elements=("*",)),)))
    return lab


def older(lab: Lab, role: str, **options: Any) -> Program:
    """A program on 0.10.2."""
    (library,) = Path(DIRECTORY).rglob("libddsc.so.0.10.2")
    found = {"LD_LIBRARY_PATH": str(library.parent)}
    return lab.program(
        role, environ=found, library=str(library), topic="Older", durability=PERSISTENT, **options
    )


def newer(lab: Lab, role: str, **options: Any) -> Program:
    """The same program on 11."""
    return lab.program(role, topic="Older", durability=PERSISTENT, **options)


def check_read(lab: Lab, reader: Program, wanted: list[int]) -> None:
    """The late reader gets just this, once."""
    reader.answer("ready")

    def numbers() -> list[int]:
        reader.tell()
        got: list[int] = reader.answer("numbers")
        return sorted(got)

    lab.seen.wait_for("the late reader has all", lambda: numbers() == wanted)
    lab.wait_delivered()
    assert numbers() == wanted
    reader.end()


def check_late_readers(lab: Lab, wanted: list[int], options: dict[str, Any]) -> None:
    """A reader of each version gets just this, once."""
    for start in SIDES.values():
        check_read(lab, start(lab, "untyped_reader", **options), wanted)


KINDS = {
    "keyed": {"keyed": True, "typed": True},
    "keyless": {"keyed": False, "typed": True},
    "keyless without type information": {"keyed": False, "typed": False},
}
SIDES = {"0.10": older, "11": newer}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("writes", SIDES)
def test_late_readers_of_both_versions_get_what_either_wrote(started: Lab, kind: str, writes: str) -> None:
    """From every node, after the writer has ended, and from the disk after all nodes were killed."""
    options = KINDS[kind]
    writer = SIDES[writes](started, "untyped", count=COUNT, readers=len(NODES), **options)
    shown = [node.id for name in NODES if (node := started.seen.node(name))]
    assert writer.answer("tags") == sorted(f"ospltool-node/1:{id_}" for id_ in shown)
    wanted = list(range(COUNT)) if options["keyed"] else [COUNT - 1]
    seen = started.seen
    seen.wait_for("both hold it", lambda: all(seen.stored(name) == len(wanted) for name in NODES))
    assert writer.end() == 0
    check_late_readers(started, wanted, options)
    started.kill("n1")
    check_late_readers(started, wanted, options)
    started.kill("n2")
    started.start("n2")
    seen.wait_for("n2 is complete again", lambda: seen.are_complete("n2"))
    check_late_readers(started, wanted, options)


def test_a_keyed_writer_without_type_information_is_told(started: Lab) -> None:
    program = older(started, "untyped", keyed=True, typed=False, count=COUNT)
    guid = program.answer("guid")

    def unkept() -> list[tuple[str, str]]:
        shown = started.seen.node("n1")
        return [(one.writer, one.why) for one in shown.unkept] if shown else []

    started.seen.wait_for("it is told", lambda: unkept() == [(guid, "untyped-keyed")])
