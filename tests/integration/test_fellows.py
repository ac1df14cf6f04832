from __future__ import annotations

import os
import signal
import time

import pytest

from engine.dds.participant import NodeParticipant
from tests.integration.configurations import Settings, Space
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds


def check_left(lab: Lab, gone: str, *others: str) -> None:
    """The others notice that a node is gone, agree on a master among themselves and stay complete."""

    def noticed() -> bool:
        fellows = [lab.seen.fellows(name, "approved") for name in others]
        return all(gone not in known for known in fellows) and lab.seen.are_complete(*others)

    lab.seen.wait_for(f"{gone} is gone for {others}", noticed)
    assert len({lab.seen.master(name) for name in others}) == 1


def test_a_fellow_lost_by_sigkill_is_noticed_and_the_others_go_on(lab: Lab) -> None:
    names = lab.start_three()
    lab.write({"count": 100, "time": 1_000})
    lab.seen.wait_for("all have it", lambda: {lab.seen.samples(name) for name in names} == {100})
    lab.kill("n3")
    check_left(lab, "n3", "n1", "n2")
    assert lab.seen.master("n2") == "n1"
    lab.write({"first": 100, "count": 100, "time": 2_000})
    lab.start("n3")
    lab.seen.wait_for(
        "n3 has what it missed", lambda: lab.seen.are_complete(*names) and lab.seen.samples("n3") == 200
    )
    assert all(lab.trace(name, "fellow.disconnected") for name in ("n1", "n2"))


def test_a_master_lost_by_sigkill_is_replaced_and_the_data_stay(lab: Lab) -> None:
    names = lab.start_three()
    lab.write({"count": 100, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(name) == 100 for name in names))
    assert lab.seen.master("n3") == "n1"
    lab.kill("n1")
    check_left(lab, "n1", "n2", "n3")
    assert lab.seen.master("n3") == "n2"
    reader = lab.reader()
    reader.wait(100)
    lab.write({"first": 100, "count": 50, "time": 2_000}, readers=2)

    returned_ns = time.time_ns()
    lab.start("n1")
    lab.seen.wait_for("n1 is master again", lambda: {lab.seen.master(name) for name in names} == {"n1"})
    lab.seen.wait_for("all are equal", lambda: lab.seen.are_complete(*names))
    assert {lab.seen.samples(name) for name in names} == {150}
    again = [name for name in names if lab.trace(name, "injection.started", since_ns=returned_ns)]
    assert again == [], "the returning master must not inject again"


@pytest.mark.parametrize("stopped", ["n3", "n1"], ids=["a slave", "the master"])
def test_a_fellow_that_stood_still_comes_back_and_has_what_it_missed(lab: Lab, stopped: str) -> None:
    names = lab.start_three()
    others = tuple(name for name in names if name != stopped)
    lab.write({"count": 100, "time": 1_000}, readers=3)
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(name) == 100 for name in names))
    lab.process(stopped).send_signal(signal.SIGSTOP)
    check_left(lab, stopped, *others)
    lab.write({"first": 100, "count": 100, "time": 2_000}, readers=2)
    lab.seen.wait_for("others have it", lambda: all(lab.seen.stored(name) == 200 for name in others))
    lab.process(stopped).send_signal(signal.SIGCONT)
    lab.seen.wait_for(
        "it is back and has all",
        lambda: lab.seen.are_complete(*names) and lab.seen.stored(stopped) == 200,
    )
    lab.seen.wait_for("n1 is master", lambda: {lab.seen.master(name) for name in names} == {"n1"})


def test_a_stopped_fellow_says_so_and_ends_in_order(lab: Lab) -> None:
    lab.start_three()
    lab.write({"count": 100, "time": 1_000})
    assert lab.stop("n3") == [0]
    check_left(lab, "n3", "n1", "n2")
    reasons = {found["reason"] for found in lab.trace("n1", "fellow.disconnected")}
    assert reasons == {"it is terminating"}


def test_fellows_with_overlapping_name_spaces_do_not_talk_and_both_definitions_are_reported(lab: Lab) -> None:
    lab.configure("n1", Settings((Space("stock", ("stock*",)),)))
    lab.configure("n2", Settings((Space("shelves", ("stock_*",)),)))
    lab.start("n1", "n2")

    def apart() -> bool:
        return (
            lab.seen.fellows("n1", "incompatible") == {"n2"}
            and lab.seen.fellows("n2", "incompatible") == {"n1"}
            and all(lab.seen.are_complete(name) for name in ("n1", "n2"))
        )

    lab.seen.wait_for("each is complete alone", apart)
    lab.write({"count": 5, "time": 1_000, "partitions": ["stock_a"]}, readers=2)
    lab.seen.wait_for("each keeps it", lambda: all(lab.seen.stored(name) == 5 for name in ("n1", "n2")))
    for name in ("n1", "n2"):
        shown = lab.seen.node(name)
        assert shown is not None
        for text in (lab.errors(name), shown.fellows[0].problem):
            for definition in ("stock", "shelves", "stock*", "stock_*"):
                assert definition in text
        assert not lab.trace(name, "align.request", "align.sending")


def test_node_waits_for_a_fellow_that_is_there_and_too_busy_to_be_heard(lab: Lab) -> None:
    """Its participant is discovered at once; its heartbeats come once its endpoints are matched."""
    settings = Settings()
    lab.configure("n1", settings)
    with NodeParticipant(lab.domain, lab.uri, "busy", os.urandom(16)):
        lab.start_complete("n1")
    (ended,) = lab.trace("n1", "lifecycle.discovery-ended")
    assert ended["reason"] == "the initial discovery period is over"
    assert float(ended["elapsed_ns"]) >= settings.discovery_s + settings.expiry_s
