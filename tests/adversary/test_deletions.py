"""No deletion keeps later samples out, whoever sends it, and whatever the time on the sender."""

from __future__ import annotations

import json
import time

import pytest

from ospltool.client import DurabilityClient
from tests.adversary.strangers import Attacker
from tests.integration.clinic import Clinic, watched
from tests.integration.configurations import Settings
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

YEAR_S = 365 * 86_400
NAMES = ("n1", "n2", "n3")


def check_takes_in(lab: Lab, first: int, *names: str, total: int) -> None:
    """What is written now, with a right clock, is on the disks of these nodes."""
    lab.write({"first": first, "count": 500, "time": time.time_ns()})
    lab.seen.wait_for(
        f"{total} are stored", lambda: [lab.seen.stored(name) for name in names] == [total] * len(names)
    )


def test_a_node_a_year_ahead_and_a_stranger_delete(lab: Lab) -> None:
    lab.shifts_s["n2"] = YEAR_S
    for name in NAMES:
        lab.configure(name, Settings(clients=name == "n2"))  # the client finds the wrong clock only
    lab.start(*NAMES)
    lab.seen.wait_for("all are complete", lambda: lab.seen.are_complete(*NAMES))
    check_takes_in(lab, 0, *NAMES, total=500)
    with watched(Clinic(lab, NAMES, bare=True)) as clinic:
        assert Attacker(lab).attack("deletions", nodes=3) == 2

        def tellers() -> set[str]:
            return {one.who for one in clinic.open if one.code == "DUL-DELETION-REFUSED"}

        clinic.wait("all tell it", lambda: tellers() >= {*NAMES}, 30.0)
        nobody = Attacker(lab, role="client")  # it does not even say that it is a node
        assert nobody.attack("deletions", nodes=3) == 2

        def strangers() -> list[str]:
            return [one.who for one in clinic.open if one.code == "DUL-UNPROVED"]

        clinic.wait("health names it", lambda: any("client stranger" in one for one in strangers()), 30.0)
        assert len(strangers()) == 1
        nobody.end()
    check_takes_in(lab, 500, *NAMES, total=1000)

    before_ns = time.time_ns()
    with DurabilityClient(lab.domain, uri=lab.uri) as client:
        done = client.delete_historical_data("*", "*", until_ns=before_ns + YEAR_S * 10**9, timeout_s=20)
    assert before_ns - 10**9 <= done.until_ns <= time.time_ns() + 10**9, "the oldest clock counts"
    assert done.slow in ("n1", "n3")
    lab.seen.wait_for("it is deleted", lambda: not any(map(lab.seen.stored, NAMES)))
    check_takes_in(lab, 1000, *NAMES, total=500)
    assert not any(lab.trace(name, "delete.future") for name in NAMES)

    # Alone, the wrong clock is the oldest, and what it deletes is in the future of everybody else.
    lab.stop("n1")
    lab.stop("n3")
    with DurabilityClient(lab.domain, uri=lab.uri) as client:
        client.delete_historical_data("*", "*", until_ns=time.time_ns() + YEAR_S * 10**9, timeout_s=20)
    lab.seen.wait_for("it is deleted", lambda: not lab.seen.stored("n2"))
    lab.stop("n2")
    del lab.shifts_s["n2"]
    lab.start("n2")
    lab.seen.wait_for("it starts", lambda: lab.seen.are_complete("n2"))
    lab.seen.wait_for("it is given up", lambda: bool(lab.trace("n2", "delete.future")))
    check_takes_in(lab, 2000, "n2", total=500)

    # A node whose clock is behind limits what it is asked for itself, and says so, as all others do.
    lab.stop("n2")
    lab.shifts_s["n1"] = -YEAR_S
    lab.configure("n1", Settings(clients=True))
    lab.start("n1", "n3")
    lab.seen.wait_for("they are complete", lambda: lab.seen.are_complete("n1", "n3"))
    check_takes_in(lab, 3000, "n1", "n3", total=1000)
    code, out = lab.ospltool("n3", "history", "delete", "*", "*", "--yes", "--json")
    answer = json.loads(out)["data"]
    assert (code, answer["deleted"], answer["slow"]) == (1, False, "n1")
    assert lab.trace("n1", "delete.bounded")
    assert "DUL-DELETION-REFUSED" in lab.ospltool("n3", "health", "--json")[1]
    assert [lab.seen.stored(name) for name in ("n1", "n3")] == [1000, 1000]
