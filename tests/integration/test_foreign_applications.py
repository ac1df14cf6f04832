"""Applications on Fast DDS 2.9, another implementation of DDS, beside nodes on Cyclone DDS.

`make foreign` fetches Debian's library, unpacks it (nothing is installed), compiles `foreign.cpp`, and runs
this.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from engine.dds.uri import cyclone_uri
from tests.integration.configurations import Settings, Space
from tests.integration.conftest import own_domain
from tests.integration.lab import Lab
from tests.integration.programs import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DIRECTORY: Final = os.environ.get("OSPLTOOL_FOREIGN", "")
NODES: Final = ("n1", "n2")

pytestmark = [
    pytest.mark.dds,
    pytest.mark.skipif(not DIRECTORY, reason="`make foreign` runs it: it needs Debian's libfastrtps 2.9"),
]


class Foreign(Program):
    """An application on Fast DDS."""

    def _command(self, role: str, options: dict[str, Any]) -> list[str]:
        facts = str(options["domain"]), options["key"], options["file"], str(len(NODES))
        return [f"{DIRECTORY}/foreign", role, *facts]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab without a domain tag, which Fast DDS does not have."""
    domain, _ = own_domain()
    uri = cyclone_uri(tag="", multicast="false", peers=("localhost",), spdp_interval_ms=200, environment={})
    made = Lab(tmp_path, domain, "", uri)
    yield made
    made.close()


@pytest.fixture
def started(lab: Lab) -> Lab:
    lab.start_complete(*NODES, settings=Settings(spaces=(Space(elements=("*",)),)))
    return lab


def foreign(lab: Lab, role: str, key: str = "keyless") -> Program:
    (library,) = Path(DIRECTORY).rglob("libfastrtps.so.2.9")
    options = {"domain": lab.domain, "key": key, "file": str(lab.directory / f"{role}.db")}
    program = Foreign(role, options, {"LD_LIBRARY_PATH": str(library.parent)})
    lab.adopt(program)
    program.answer("ready")
    return program


def native(lab: Lab, role: str) -> Program:
    program = lab.program(role, topic="Bare", durability=2, keyed=False, count=1, readers=len(NODES))
    program.answer("guid" if role == "untyped" else "ready")
    return program


def foreign_writer(lab: Lab) -> Program:
    """One that has written 0."""
    writer = foreign(lab, "writer")
    writer.tell()
    assert writer.answer("wrote") == 0
    return writer


def numbers(reader: Program) -> list[int]:
    reader.tell()
    got: list[int] = reader.answer("numbers")
    return got


def check_late_reader(lab: Lab, start: Callable[[], Program], wanted: list[int]) -> None:
    """It gets just this, once."""
    reader = start()
    lab.seen.wait_for("the late reader has all", lambda: numbers(reader) == wanted)
    lab.wait_delivered()
    assert numbers(reader) == wanted
    reader.end()


@pytest.mark.parametrize(
    "writes", [foreign_writer, lambda lab: native(lab, "untyped")], ids=["Fast DDS", "Cyclone DDS"]
)
def test_late_readers_of_both_get_what_either_wrote(started: Lab, writes: Callable[[Lab], Program]) -> None:
    """From every node, after the writer has ended."""
    writer = writes(started)
    seen = started.seen
    seen.wait_for("both hold it", lambda: all(seen.samples(name) == 1 for name in NODES))
    assert writer.end() == 0
    for served_by in NODES:
        check_late_reader(started, lambda: foreign(started, "reader"), [0])
        check_late_reader(started, lambda: native(started, "untyped_reader"), [0])
        if served_by == "n1":
            started.kill("n1")


def test_a_writer_of_a_type_with_a_key_is_named(started: Lab) -> None:
    """Fast DDS announces no type information of a plain type, so its instances cannot be told apart."""
    foreign(started, "writer", "keyed")

    def unkept() -> list[tuple[str, str]]:
        shown = started.seen.node("n1")
        return [(one.topic, one.why) for one in shown.unkept] if shown else []

    started.seen.wait_for("it is told", lambda: unkept() == [("Bare", "untyped-keyed")])
