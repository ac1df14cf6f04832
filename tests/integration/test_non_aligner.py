"""A set that only a non-aligner holds: its host's readers get it, nobody else does, and it is named."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from engine.dds.uri import cyclone_uri
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from tests.health.looking import incidents
from tests.integration.configurations import Settings, Space
from tests.integration.conftest import own_domain
from tests.integration.lab import LEASE_S, Lab
from tests.integration.network import network_of
from tests.integration.watching import Watch

pytestmark = [pytest.mark.dds, pytest.mark.netns]
HOUR_NS = 3_600_000_000_000


def said(view: Watch, *names: str) -> list[str]:
    """The incidents of a console that has seen these nodes like this for an hour."""
    model, now_ns = SystemModel(), time.time_ns()
    shown = [node for name in names if (node := view.node(name)) is not None]
    for heard_ns in (now_ns - HOUR_NS, now_ns):
        model.apply(Update(snapshots=tuple(ReceivedSnapshot(node, heard_ns) for node in shown)), heard_ns)
    return [sign for one in incidents(model, now_ns) for sign in (*one.signs, one.next, one.why)]


def test_what_only_a_non_aligner_holds_is_given_to_its_own_host_and_named(tmp_path: Path) -> None:
    network = network_of(("a", "b"))
    try:
        domain, tag = own_domain()
        uri = cyclone_uri(
            interfaces=["e0"],
            multicast="false",
            peers=network.addresses.values(),
            max_auto_participant_index=20,
            lease_s=LEASE_S,
            spdp_interval_ms=500,
            tag=tag,
            environment={},
        )
        lab = Lab(tmp_path, domain, tag, uri, watched=False)
        try:
            check(lab, {"n1": network.on("a"), "n2": network.on("b")})
        finally:
            lab.close()
    finally:
        network.close()


def check(lab: Lab, prefixes: dict[str, tuple[str, ...]]) -> None:
    lab.prefixes = dict(prefixes)
    lab.configure("n1", Settings())
    lab.configure("n2", Settings(spaces=(Space(aligner=False),)))
    view = lab.watch_from("n1")
    lab.start("n2")
    view.wait_for("n2 is there", lambda: view.node("n2") is not None)
    lab.write({"count": 5, "time": 1_000}, prefix=prefixes["n2"])
    view.wait_for("n2 alone has it", lambda: view.samples("n2") == 5)
    lab.start("n1")

    def are_complete() -> bool:
        spaces = [view.space("n1"), view.space("n2")]
        return all(space is not None and space.complete and space.confirmed for space in spaces)

    view.wait_for("both are complete", are_complete)
    view.wait_for("they know each other", lambda: view.fellows("n1", "approved") == {"n2"})
    assert [(view.samples(name), view.master(name)) for name in ("n1", "n2")] == [(0, "n1"), (5, "n1")]
    beside, elsewhere = lab.reader(prefix=prefixes["n2"]), lab.reader(prefix=prefixes["n1"])
    beside.wait(5)
    lab.write({"first": 9, "count": 1, "time": 2_000}, prefix=prefixes["n1"], readers=4)
    elsewhere.wait(1)
    beside.wait(6)
    assert elsewhere.tally()["instances"] == 1, "a non-aligner gives nothing away"
    view.wait_for("both have the new one", lambda: (view.samples("n1"), view.samples("n2")) == (1, 6))

    def is_told() -> bool:
        return any("stock on n2 differs from its master n1" in text for text in said(view, "n1", "n2"))

    view.wait_for("it is told once alignment had its time", is_told)
    texts = said(view, "n1", "n2")
    assert any("(6 samples, n1 has 1)" in text for text in texts), texts

    # What the operator can do: let it be an aligner for one start.
    lab.stop("n2")
    lab.configure("n2", dataclasses.replace(Settings(), discovery_s=2.0).with_priority(50))
    lab.start("n2")
    view.wait_for("all is given to n1", lambda: view.samples("n1") == view.samples("n2") == 6)
