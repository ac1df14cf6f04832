"""Two nodes on copies of one store, or with one name, as after cloning a machine."""

from __future__ import annotations

import json
import shutil

import pytest

from engine.supervisor.policy import EXIT_CONFIGURATION
from tests.integration.clinic import Clinic, watched
from tests.integration.configurations import Settings
from tests.integration.lab import END_S, Lab

pytestmark = pytest.mark.dds

NAMES = ("n1", "n2")
SAMPLES = 20


def test_of_two_nodes_on_copies_of_one_store_the_later_one_ends(lab: Lab) -> None:
    for name, priority in (("n1", 200), ("n2", 100)):
        lab.configure(name, Settings().with_priority(priority))
    lab.start("n1")
    lab.write({"count": SAMPLES, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == SAMPLES)
    lab.stop("n1")
    shutil.copytree(lab.home("n1") / "store", lab.home("n2") / "store")

    for end in (lab.stop, lab.kill, lab.stop):  # not its own copy, however fast it comes back
        lab.start("n1")
        lab.seen.wait_for("it is complete", lambda: lab.seen.are_complete("n1"))
        end("n1")
    lab.start("n1")
    lab.seen.wait_for("it is complete", lambda: lab.seen.are_complete("n1"))
    assert not lab.trace("n1", "identity.shared")

    assert lab.launch("n2").wait(END_S) == EXIT_CONFIGURATION, "another start would find the same"
    assert "Node n1 on 127.0.0.1 has the id of this node" in lab.errors("n2")
    assert "node n1 on 127.0.0.1 is running with the id of this node" in lab.output("n2")
    lab.write({"first": SAMPLES, "count": SAMPLES, "time": 2_000})
    lab.seen.wait_for("the other goes on", lambda: lab.seen.stored("n1") == 2 * SAMPLES)

    shutil.rmtree(lab.home("n2") / "store")  # as the page of the code says
    lab.start("n2")
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete(*NAMES))
    lab.seen.wait_for("both have it", lambda: all(lab.seen.stored(name) == 2 * SAMPLES for name in NAMES))
    assert len(lab.trace("n1", "identity.shared")) <= 1, "it may hear the other one before that ends"


def test_two_nodes_of_one_name_are_told_and_so_is_the_loss_of_either(lab: Lab) -> None:
    lab.start_three()
    copy = lab.configure("copy", Settings().with_priority(10))
    copy.write_text(copy.read_text("utf-8").replace("<Name>copy</Name>", "<Name>n3</Name>"), "utf-8")
    with watched(Clinic(lab, ("n1", "n2", "n3"), copies=3)) as clinic:
        lab.start("copy")
        clinic.check("DUL-NAME-SHARED", "n3")
        lab.stop("copy")
        clinic.check_well()
        lab.start("copy")
        clinic.check("DUL-NAME-SHARED", "n3")
        lab.kill("n3")
        clinic.check("DUL-NODE-GONE", "n3")
        lab.start("n3")
        clinic.check("DUL-NAME-SHARED", "n3")
        lab.stop("copy")
        clinic.check_well()


def test_a_copy_of_a_living_store_ends_and_the_node_that_it_is_of_is_not_blamed(lab: Lab) -> None:
    lab.start_three()
    written = 0
    lab.configure("copy", Settings().with_priority(10))
    with watched(Clinic(lab, (*NAMES, "n3"), copies=3)) as clinic:
        for is_older in (False, True):
            lab.write({"first": written, "count": SAMPLES, "time": 1_000 + written}, readers=3)
            written += SAMPLES
            lab.seen.wait_for("all store it", lambda: lab.seen.stored("n1") == written)  # noqa: B023  # called before the next round
            shutil.rmtree(lab.home("copy") / "store", ignore_errors=True)
            shutil.copytree(lab.home("n1") / "store", lab.home("copy") / "store")
            if is_older:
                lab.write({"first": written, "count": SAMPLES, "time": 1_000 + written}, readers=3)
                written += SAMPLES
                lab.seen.wait_for("all store it", lambda: lab.seen.stored("n1") == written)  # noqa: B023  # called before the next round
            code, _ = lab.ospltool("copy", "start")
            assert code == EXIT_CONFIGURATION
            assert "is running with the id of this node" in lab.status("copy")["reason"]
            (told,) = json.loads(lab.ospltool("copy", "health", "--json")[1])["data"]
            for incident in told["incidents"]:
                assert incident["code"] != "DUL-STORE-RESTORED", incident
                assert "Start it again" not in incident["next"], incident
            lab.ospltool("copy", "stop")
        lab.seen.wait_for("all are complete", lambda: lab.seen.are_complete(*NAMES, "n3"))
        assert not clinic.times("DUL-STORE-RESTORED")
    assert lab.trace("n1", "identity.outlived")
    assert not lab.trace("n1", "lifecycle.outdated")
    lab.write({"first": written, "count": SAMPLES, "time": 1_000 + written}, readers=3)
    for name in (*NAMES, "n3"):
        lab.seen.wait_for("all have it", lambda: lab.seen.stored(name) == written + SAMPLES)  # noqa: B023  # called before the next round
