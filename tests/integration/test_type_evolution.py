"""Two appendable versions of a type under one topic: a late reader of either gets the newest values."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

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


def write(lab: Lab, version: str, values: dict[str, int | None], time_ns: int, readers: int) -> None:
    with application(lab, "writer", version, readers=readers) as writer:
        tell(writer, values, time_ns)


def tell(writer: Program, values: dict[str, int | None], time_ns: int) -> None:
    """Let a writer write values, and dispose the instances without one."""
    writer.tell(values=values, time=time_ns)
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


@pytest.mark.parametrize("several", ["versions", "partitions"])
def test_late_readers_by_reception_get_the_last_state_over_both(lab: Lab, several: str) -> None:
    """The order of source time holds over both, so that neither is stale and no dispose is lost."""
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    written: list[tuple[str, dict[str, int | None]]] = [
        ("old", {"1": 10, "2": 20, "3": 30}),
        ("new", {"1": 11, "2": 21, "3": None, "4": 41, "5": 51}),
        ("old", {"1": 12, "4": None, "5": 52}),
        ("new", {"5": 53}),
    ]
    ends = {"1": 12, "2": 21, "3": None, "4": None, "5": 53}
    with contextlib.ExitStack() as writers:
        options: dict[str, Any] = {"by_reception": True, "readers": 1}
        places = ["stock"] if several == "versions" else ["stock", "stock2"]
        newer = "new" if several == "versions" else "old"
        by_name = {
            name: writers.enter_context(application(lab, "writer", version, partitions=[place], **options))
            for name, version, place in (("old", "old", places[0]), ("new", newer, places[-1]))
        }
        for time_ns, (name, values) in enumerate(written, 1_000):
            tell(by_name[name], values, time_ns)
        lab.seen.wait_for("all is stored", lambda: lab.seen.stored("n1") == 10)
        with contextlib.ExitStack() as readers:
            late = [
                readers.enter_context(
                    application(lab, "reader", version, partitions=places, by_reception=True)
                )
                for version in ("old", newer, "old", newer)
            ]
            for reader in late:
                reader.expect(lambda line: len(line.get("states", ())) == 5)
            lab.wait_delivered(4)
            writers.close()
            for reader in late:
                reader.expect(lambda line: shown(line) == ends)


def shown(line: dict[str, Any]) -> dict[str, int | None]:
    """What a reader has of each instance after all writers ended; None for a disposed one."""
    named = {"without writers", "disposed"}
    states = {number: state for number, state in line.get("states", {}).items() if state in named}
    return {
        number: line["latest"][number] if state == "without writers" else None
        for number, state in states.items()
    }
