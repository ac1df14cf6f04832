"""The end of a writer, with and without autodispose, at late joiners of both kinds, and on the disks.

Eventual consistency, "Visible effects of a disconnect": autodispose disposes its instances, which are purged
after service_cleanup_delay once they are unregistered, too. Without it the data outlives its writer.
"""

from __future__ import annotations

import collections
import time
from typing import Final, NamedTuple

import pytest

from ospltool.client import DurabilityClient, DurableReader
from tests.client.places import ClientLab
from tests.integration.application_types import Reading
from tests.integration.programs import Program
from tests.tables import table_rows

pytestmark = pytest.mark.dds

COUNT: Final = 20
HOUR_NS: Final = 3_600_000_000_000
PURGED_S: Final = 40.0
"""A lost writer has ended after 10 s without any node having it; its data is purged at once."""


class Case(NamedTuple):
    """A topic with one writer, and what a late joiner sees after its end."""

    autodispose: bool
    cleanup_ns: int
    is_killed: bool
    state: str
    is_purged: bool = False


CASES: Final = {
    "EndsKept": Case(True, HOUR_NS, False, "disposed"),
    "DiesKept": Case(True, HOUR_NS, True, "disposed"),
    "EndsPurged": Case(True, 0, False, "disposed", is_purged=True),
    "DiesPurged": Case(True, 0, True, "disposed", is_purged=True),
    "DiesLater": Case(True, 11_000_000_000, True, "disposed", is_purged=True),
    "EndsStays": Case(False, 0, False, "no writers"),
    "DiesStays": Case(False, 0, True, "no writers"),
}
ROWS: Final = {
    "is deleted, or its process ends in order": ("EndsKept", "EndsPurged", "EndsStays"),
    "is killed, or cut off from all nodes": ("DiesKept", "DiesPurged", "DiesLater", "DiesStays"),
    "ends while no node runs": ("DiesApart",),
    "comes back before its end counts": (),
    "comes back afterwards": (),
}
"""The topics here that try each row of the page; `tests/simulation/test_writer_ends.py` tries the returns."""
APART: Final = Case(True, 0, True, "disposed", is_purged=True)


def test_each_row_of_the_page_is_tried() -> None:
    rows = table_rows("durability-qos.md", "Cleaning up")
    assert [row["The writer"] for row in rows] == list(ROWS)
    assert {topic for topics in ROWS.values() for topic in topics} == {*CASES, "DiesApart"}


def start_writer(lab: ClientLab, topic: str, case: Case) -> Program:
    return lab.program(
        "writer",
        topic=topic,
        autodispose=case.autodispose,
        cleanup_ns=case.cleanup_ns,
        readers=2,
        steps=[{"count": COUNT, "time": time.time_ns()}],
    )


def ordinary(lab: ClientLab, topic: str, case: Case) -> dict[str, int]:
    """The states that an ordinary reader sees that comes now."""
    before = len(lab.deliveries())
    reader = lab.reader(topic=topic, autodispose=case.autodispose, cleanup_ns=case.cleanup_ns)
    lab.wait_delivered(before + 1)
    if not case.is_purged:
        reader.wait(0, **{case.state.replace(" ", "_"): COUNT})
    states: dict[str, int] = reader.tally()["states"]
    assert reader.program.end() == 0
    return states


def durable(client: DurabilityClient, topic: str) -> dict[str, int]:
    """The same at a reader of the client library."""
    with DurableReader(client, topic, Reading, ("stock",)) as reader:
        reader.wait_for_historical_data(20)
        keys = {sample.key for sample in reader.take()}
        found = collections.Counter(str(reader.instance_state(key)) for key in keys)
    return {
        state.removeprefix("NOT_ALIVE_").replace("_", " ").lower(): count for state, count in found.items()
    }


def check_late_joiners(lab: ClientLab, cases: dict[str, Case]) -> None:
    """Nobody who comes now sees an instance in another state than its writer's end has left it in."""
    with DurabilityClient(lab.domain, uri=lab.uri) as client:
        for topic, case in cases.items():
            for kind, states in (
                ("ordinary", ordinary(lab, topic, case)),
                ("durable", durable(client, topic)),
            ):
                expected = [{case.state: COUNT}] + [{}] * case.is_purged
                assert states in expected, (topic, kind, states)


def on_disk(lab: ClientLab, name: str) -> dict[str, int]:
    return {topic: len(digests) for (_, topic), digests in lab.on_disk(name).items()}


def are_purged(lab: ClientLab, name: str, cases: dict[str, Case]) -> bool:
    held = on_disk(lab, name)
    return not any(held.get(topic) for topic, case in cases.items() if case.is_purged)


def test_the_end_of_a_writer_is_what_its_autodispose_says_for_whoever_comes_later(lab: ClientLab) -> None:
    names = lab.start_two()
    writers = {topic: start_writer(lab, topic, case) for topic, case in CASES.items()}
    for writer in writers.values():
        writer.answer("done")
    lab.seen.wait_for(
        "it is stored", lambda: all(lab.seen.stored(name) == COUNT * len(CASES) for name in names)
    )
    for topic, writer in writers.items():
        if CASES[topic].is_killed:
            writer.kill()
        else:
            assert writer.end() == 0
    reader = lab.reader(topic="DiesStays", cleanup_ns=0)
    reader.wait(COUNT, no_writers=COUNT)  # the leases of those that were killed are over
    check_late_joiners(lab, CASES)
    lab.seen.wait_for("two lost writers count as ended", lambda: len(lab.trace("n1", "writer.ended")) >= 2)
    check_late_joiners(lab, {"DiesLater": CASES["DiesLater"]._replace(is_purged=False)})
    lab.seen.wait_for(
        "what may go is purged",
        lambda: all(are_purged(lab, name, CASES) for name in names),
        timeout_s=PURGED_S,
    )
    check_late_joiners(lab, CASES)

    # A system that starts again, and nobody tells it of the writers; one more dies while all nodes are down.
    writers["DiesApart"] = start_writer(lab, "DiesApart", APART)
    writers["DiesApart"].answer("done")
    lab.seen.wait_for("it is stored", lambda: all(on_disk(lab, n).get("DiesApart") == COUNT for n in names))
    lab.kill(*names)
    writers["DiesApart"].kill()
    lab.start_again(*names)
    cases = {**CASES, "DiesApart": APART}
    check_late_joiners(lab, cases)
    lab.seen.wait_for(
        "that is purged, too",
        lambda: all(are_purged(lab, name, cases) for name in names),
        timeout_s=PURGED_S,
    )
    check_late_joiners(lab, cases)
    assert on_disk(lab, "n1") == on_disk(lab, "n2")
