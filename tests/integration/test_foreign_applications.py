"""Applications on other implementations of DDS beside nodes, and the table of docs/interoperability.md.

`make foreign` installs them from the package index, each into an environment of its own, and runs this in a
network namespace, since some of them find others by multicast only.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from engine.dds.channel import PARTITION
from engine.dds.uri import cyclone_uri
from ospltool.live.samples import TopicReader
from tests.integration.configurations import Settings, Space
from tests.integration.conftest import own_domain
from tests.integration.lab import Lab
from tests.integration.programs import ROOT, Program

if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY: Final = os.environ.get("OSPLTOOL_FOREIGN", "")
NODES: Final = ("n1", "n2")
COUNT: Final = 3
PAGE: Final = ROOT / "docs" / "interoperability.md"
PATIENCE_S: Final = 20.0

pytestmark = [
    pytest.mark.dds,
    pytest.mark.skipif(not DIRECTORY, reason="`make foreign` runs it: it installs other implementations"),
]


class Peer(NamedTuple):
    """How to start an application of a row of the table."""

    environment: str
    """Directory of its environment."""
    facts: tuple[str, ...]
    """Its kind in `foreign_peer.py`, or key and type information of `foreign.cpp`."""
    topic: str = "Bare"
    keyed: bool | None = None
    """For a type that applications on Cyclone DDS have, too: whether it has a key."""


PEERS: Final = {
    "Fast DDS 3.2.3, no key": Peer("ros", ("keyless", "typed"), keyed=False),
    "Fast DDS 3.2.3, no key, no type information": Peer("ros", ("keyless", "bare"), keyed=False),
    "Fast DDS 3.2.3, key": Peer("ros", ("keyed", "typed"), keyed=True),
    "Fast DDS 3.2.3, key, no type information": Peer("ros", ("keyed", "bare"), keyed=True),
    "zerodds 1.0.0rc3, no key": Peer("zero", ("zerodds",)),
    "zerodds 1.0.0rc3, key": Peer("zero", ("zerodds-keyed",)),
    "dust-dds 0.16.0, no key": Peer("dust", ("dust-dds",)),
    "rclpy 9.1.2 (Fast DDS 3.2.3)": Peer("ros", ("rclpy",), topic="rt/bare"),
}


class Foreign(Program):
    """An application on another implementation."""

    def _command(self, role: str, options: dict[str, Any]) -> list[str]:
        peer: Peer = options["peer"]
        domain, readers = str(options["domain"]), str(options["readers"])
        home = Path(DIRECTORY, peer.environment)
        if peer.keyed is None:
            script = str(ROOT / "tests" / "integration" / "foreign_peer.py")
            return [str(home / "bin" / "python"), script, *peer.facts, role, domain, readers]
        return [str(home / "foreign"), role, domain, *peer.facts, options["file"], readers]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab with multicast and without a domain tag, which other implementations do not have."""
    domain, _ = own_domain()
    uri = cyclone_uri(tag="", multicast="true", spdp_interval_ms=200, environment={})
    made = Lab(tmp_path, domain, "", uri)
    yield made
    made.close()


def foreign(lab: Lab, peer: Peer, role: str, readers: int = 0) -> Program:
    home = Path(DIRECTORY, peer.environment)
    environ = {"ROS_DOMAIN_ID": str(lab.domain), "ROS_LOG_DIR": str(lab.directory)}
    if peer.keyed is not None:
        (private,) = home.rglob("ros_fastdds.libs")
        environ["LD_LIBRARY_PATH"] = f"{home / 'lib'}:{private}"
    options = {
        "domain": lab.domain,
        "peer": peer,
        "readers": readers,
        "file": str(lab.directory / f"{role}.db"),
    }
    program = Foreign(role, options, environ)
    lab.adopt(program)
    program.answer("ready")
    return program


def within(what: str, lab: Lab, condition: Any) -> bool:
    """Whether something comes true in time."""
    try:
        lab.seen.wait_for(what, condition, PATIENCE_S)
    except AssertionError:
        return False
    return True


def numbers(reader: Program) -> list[int]:
    reader.tell()
    got: list[int] = reader.answer("numbers")
    return got


def unkept(lab: Lab) -> set[str]:
    """Why the nodes do not keep the writer, as they report while it lives."""
    shown = [lab.seen.node(name) for name in NODES]
    return {one.why for node in shown if node for one in node.unkept}


def read_here(lab: Lab, topic: str) -> list[int]:
    """The numbers that a late reader on Cyclone DDS gets, as `ospltool cat` does."""
    reader = TopicReader(lab.domain, lab.environ["CYCLONEDDS_URI"], topic, (), PARTITION)
    try:
        got = [
            one.sample.payload for one in reader.samples(PATIENCE_S, follows=False) if one.sample.status & 4
        ]
    finally:
        reader.close()
    return [payload[-1] if len(payload) == 5 else payload[4] for payload in got]


def outcome(lab: Lab, name: str) -> dict[str, str]:
    """What becomes of the data of a writer of this row, and of one on Cyclone DDS for its readers."""
    peer, seen = PEERS[name], lab.seen
    latched = peer.facts == ("rclpy",)
    writer = foreign(lab, peer, "writer", 0 if latched else len(NODES))
    for _ in range(COUNT):
        writer.tell()

    def is_kept() -> bool:
        return all(seen.samples(node) for node in NODES)

    is_so = within("kept", lab, is_kept)
    why = ", ".join(sorted(unkept(lab)))
    if is_so:
        for number in range(COUNT):
            assert writer.answer("wrote") == number
        time.sleep(1.0)
    writer.end()
    row = {"Kept": "yes" if is_so else f"no: `{why}`" if why else "no"}
    late = foreign(lab, peer, "reader")
    wanted = [COUNT - 1]
    got = (
        within("a late reader has it", lab, lambda: numbers(late)[-1:] == wanted) if is_so else numbers(late)
    )
    row["Its late readers get it"] = "yes" if got else "no"
    late.end()
    here = read_here(lab, peer.topic) if is_so else []
    row["Late readers on Cyclone DDS get it"] = "yes" if here[-1:] == wanted else "no"
    return row


def documented() -> dict[str, dict[str, str]]:
    """The rows of the table."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines)
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows if row[0] in PEERS}


@pytest.mark.parametrize("name", PEERS)
def test_what_holds_beside_another_implementation_is_documented(lab: Lab, name: str) -> None:
    lab.start_complete(*NODES, settings=Settings(spaces=(Space(elements=("*",)),)))
    found = outcome(lab, name)
    row = documented().get(name, {})
    print(name, found)
    assert {column: row.get(column) for column in found} == found


@pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if peer.keyed is False])
def test_readers_get_what_an_application_on_cyclone_dds_wrote(lab: Lab, name: str) -> None:
    """Also where it announces its type, and after the writer has ended."""
    lab.start_complete(*NODES, settings=Settings(spaces=(Space(elements=("*",)),)))
    options: dict[str, Any] = {"topic": "Bare", "durability": 2, "keyed": False, "count": COUNT}
    writer = lab.program("untyped", readers=len(NODES), typed=True, **options)
    writer.answer("guid")
    lab.seen.wait_for("both hold it", lambda: all(lab.seen.samples(node) == 1 for node in NODES))
    assert writer.end() == 0
    late = foreign(lab, PEERS[name], "reader")
    lab.seen.wait_for("a late reader has it", lambda: numbers(late) == [COUNT - 1])
