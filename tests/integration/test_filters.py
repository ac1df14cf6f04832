"""Domain/Filters: what a filter does not accept is neither kept nor delivered, wherever it comes from."""

from __future__ import annotations

import dataclasses

import pytest

from tests.integration.configurations import Settings
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

BELOW_FIVE = ("value < 5", "stock*.Reading")
SETTINGS = Settings(filters=(BELOW_FIVE, ("nothing = 1", "*.Plain")))


def steps(first: int) -> list[dict[str, int]]:
    """Ten instances with the values 0 to 9."""
    return [{"first": first + n, "value": n, "time": 1_000 + first + n} for n in range(10)]


def withheld(lab: Lab, name: str) -> int:
    shown = lab.seen.node(name)
    return shown.counters["withheld"] if shown is not None else 0


def check_refused_at_start(lab: Lab) -> None:
    """The store knows the type: a filter that does not fit it ends the node before it changes anything."""
    lab.configure("n1", Settings(filters=(("valeu < 5", "stock*.Reading"),)))
    assert lab.launch("n1").wait(20) == 2
    line = next(each for each in lab.output("n1").splitlines() if "valeu" in each)
    assert "group stock.Reading" in line
    assert "ospl.xml:" in line
    assert "column 1: the type has no field 'valeu'" in line
    (refused,) = lab.trace("n1", "lifecycle.bad-configuration")
    assert "the type has no field 'valeu'" in refused["cause"]
    assert len(lab.on_disk("n1")["stock", "Reading"]) == 10


def test_what_a_filter_does_not_accept_is_nowhere_on_its_node(lab: Lab) -> None:
    seen = lab.seen
    lab.configure("n1", Settings())
    lab.start("n1")
    seen.wait_for("n1 is complete", lambda: seen.are_complete("n1"))
    lab.write(*steps(0))
    seen.wait_for("it is stored", lambda: seen.stored("n1") == 10)
    lab.stop("n1")
    check_refused_at_start(lab)

    # What the store held before the filter came, what is captured, and a type that is known later.
    lab.configure("n1", SETTINGS)
    lab.start("n1")
    seen.wait_for("half is injected", lambda: seen.are_complete("n1") and seen.samples("n1") == 5)
    lab.write(*steps(10))
    lab.reader(types=["Plain"])  # the writer waits for one: the node makes no tap
    lab.write({"type": "Plain", "count": 3, "time": 1_000})
    seen.wait_for("all was looked at", lambda: withheld(lab, "n1") == 5)
    seen.wait_for("half is stored", lambda: seen.samples("n1") == seen.stored("n1") == 10)
    assert {each["group"] for each in lab.trace("n1", "filter.applies")} == {"stock.Reading"}
    assert {each["samples"] for each in lab.trace("n1", "filter.removed")} == {"5"}
    assert "take 5 stored samples of nameSpace 'stock' out of the store" in lab.information("n1")
    (lowered,) = lab.trace("n1", "namespace.filtered")
    assert (lowered["namespace"], lowered["place"].count(":")) == ("stock", 2)
    assert str(lab.home("n1") / "ospl.xml") in lowered["place"]
    (refused,) = lab.trace("n1", "filter.refused")
    assert refused["group"] == "stock.Plain"
    assert "the type has no field 'nothing'" in refused["cause"]
    assert "no field 'nothing'" in lab.errors("n1")
    late = lab.reader()
    late.wait(10)
    assert late.tally()["arrivals"] == 10

    # A node without a filter takes over, and keeps all; what n1 gets by alignment is filtered, too.
    lab.configure("n2", dataclasses.replace(Settings(), discovery_s=1.0).with_priority(2))
    lab.start("n2")
    seen.wait_for("n2 is master", lambda: {seen.master(each) for each in ("n1", "n2")} == {"n2"})
    lab.stop("n1")
    lab.write(*steps(20))
    lab.start("n1")
    seen.wait_for("n1 has half", lambda: (seen.samples("n1"), seen.samples("n2")) == (15, 20))
    lab.write(*steps(30), readers=2)
    seen.wait_for("both have theirs", lambda: (seen.samples("n1"), seen.samples("n2")) == (20, 30))
    seen.wait_for("it is stored", lambda: seen.stored("n1") == 20)
    assert seen.master("n1") == "n2"
    lab.stop("n1")
    assert len(lab.on_disk("n1")["stock", "Reading"]) == 20
    assert ("stock", "Plain") not in lab.on_disk("n1")
    assert lab.trace("n1", "align.reconciling") == []


def test_status_says_of_which_group_nothing_is_kept_because_its_filter_does_not_fit(lab: Lab) -> None:
    lab.configure("n1", Settings(filters=(("nothing < 5", "stock.Plain"),)))
    assert lab.ospltool("n1", "start")[0] == 0
    try:
        lab.seen.wait_for("n1 is complete", lambda: lab.seen.are_complete("n1"))
        lab.reader(types=["Plain"])  # the writer waits for one
        lab.write({"type": "Plain", "count": 3, "time": 1_000})
        said = "it keeps nothing of group stock.Plain: the content filter does not fit"
        lab.seen.wait_for("status says it", lambda: lab.status("n1")["refused"] == said)
        assert said in lab.ospltool("n1", "status")[1]
    finally:
        lab.ospltool("n1", "stop")
