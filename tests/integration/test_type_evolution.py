"""Two appendable versions of a type under one topic: a late reader of either gets the newest values."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.integration.configurations import Settings
from tests.integration.programs import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.lab import Lab

pytestmark = pytest.mark.dds


class Evolving(Program):
    """An application with one of the two versions."""

    module = "tests.integration.evolving_types"


@contextlib.contextmanager
def application(lab: Lab, role: str, version: str, **options: object) -> Iterator[Program]:
    program = Evolving(role, {"domain": lab.domain, "version": version, **options}, lab.environ)
    try:
        yield program
    finally:
        program.end()


def write(lab: Lab, version: str, values: dict[str, int], time_ns: int, readers: int) -> None:
    options = {"values": values, "time": time_ns, "readers": readers}
    with application(lab, "writer", version, **options) as writer:
        writer.answer("done")


@pytest.mark.parametrize("reads", ["old", "new"])
def test_a_late_reader_of_either_version_gets_the_newest_values(lab: Lab, reads: str) -> None:
    """As a live one does: Cyclone DDS lets both versions match each other."""
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    with application(lab, "reader", reads) as live:
        live.answer("ready")
        write(lab, "old", {"1": 10, "2": 20}, 1_000, 2)
        write(lab, "new", {"1": 11, "3": 31}, 2_000, 3)
        newest = {"1": 11, "2": 20, "3": 31}
        live.expect(lambda line: line.get("latest") == newest)
    lab.seen.wait_for("all is stored", lambda: lab.seen.stored("n1") == 4)
    with application(lab, "reader", reads) as late:
        late.answer("ready")
        late.expect(lambda line: line.get("latest") == newest, 20)
