"""A real node starts on what was imported or put in place, and gives it to those who come late."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("cyclonedds", reason="a node needs the extra `dds`")
pytest.importorskip("duckdb", reason="comparing needs the extra `sql`")

from cyclonedds.core import InstanceState, Policy, Qos, ReadCondition, SampleState, ViewState
from cyclonedds.domain import DomainParticipant
from cyclonedds.sub import DataReader, Subscriber
from cyclonedds.topic import Topic

from ospltool.cli import app
from tests.integration.applications import qos_of
from tests.integration.configurations import Settings, Space
from tests.integration.conftest import own_domain
from tests.integration.lab import Lab
from tests.stores.item_types import Item
from tests.stores.making import BASE_NS, Held, Message, Version, write_kv, write_xml

pytestmark = pytest.mark.dds

PATIENCE_S = 30.0
SETTINGS = Settings(spaces=(Space(name="defaultNamespace"),))
WRITES = tuple(
    Message(number, text=f"text {number}", value=number / 4, time_ns=BASE_NS + number) for number in range(40)
)
LATER = tuple(Message(number, text="put in place", time_ns=BASE_NS + 900 + number) for number in range(9))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    domain, tag = own_domain()
    made = Lab(tmp_path, domain, tag)
    made.configure("n1", SETTINGS)
    yield made
    made.close()


def store(*arguments: object) -> int:
    return app.main(["store", *map(str, arguments)])


def late_reader(lab: Lab, count: int) -> dict[int, tuple[Item, int]]:
    """What an application gets that comes only now: items by id, with their source timestamps."""
    participant = DomainParticipant(lab.domain)
    subscriber = Subscriber(participant, Qos(Policy.Partition(["stock"])))
    reader = DataReader(subscriber, Topic(participant, "Items", Item, qos=qos_of({})), qos=qos_of({}))
    anything = ReadCondition(reader, ViewState.Any | InstanceState.Any | SampleState.NotRead)
    found: dict[int, tuple[Item, int]] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        for sample in reader.take_iter(condition=anything, timeout=200_000_000):
            if isinstance(sample, Item):
                found[sample.id] = sample, sample.sample_info.source_timestamp
    return found


@pytest.mark.parametrize("write", [write_kv, write_xml])
def test_a_node_starts_on_an_imported_store_and_serves_late_readers(
    write: Callable[..., Path], lab: Lab, tmp_path: Path
) -> None:
    source = write(tmp_path / "source", Version((Held(WRITES, partition="stock"),)))
    place = lab.home("n1") / "store"
    assert store("import", source, place) == 0
    lab.start("n1")
    lab.seen.wait_for("n1 is complete", lambda: lab.seen.are_complete("n1"))
    lab.seen.wait_for("it holds what was imported", lambda: lab.seen.samples("n1") == len(WRITES))
    assert late_reader(lab, len(WRITES)) == {
        one.id: (Item(one.flag, one.id, one.value, one.text), one.time_ns) for one in WRITES
    }
    assert store("diff", source, place) == 0, "of the running node"
    lab.stop("n1")
    assert store("diff", source, place) == 0


def test_a_node_starts_on_the_set_that_an_operator_put_in_place(lab: Lab, tmp_path: Path) -> None:
    first = write_kv(tmp_path / "first", Version((Held(WRITES, partition="stock"),)))
    other = write_kv(tmp_path / "other", Version((Held(LATER, partition="stock"),)))
    place = lab.home("n1") / "store"
    assert store("import", first, place) == 0
    lab.start("n1")
    lab.seen.wait_for("n1 is complete", lambda: lab.seen.are_complete("n1"))
    assert store("replace", other, place) == 2, "the node runs"
    lab.stop("n1")
    assert store("replace", other, place) == 0
    lab.start("n1")
    lab.seen.wait_for("n1 is complete", lambda: lab.seen.are_complete("n1"))
    lab.seen.wait_for("it holds the other set", lambda: lab.seen.samples("n1") == len(LATER))
    assert {item.text for item, _ in late_reader(lab, len(LATER)).values()} == {"put in place"}
    lab.stop("n1")
    assert store("diff", other, place) == 0
