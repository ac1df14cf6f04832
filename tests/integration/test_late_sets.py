"""A node that starts with a stored set of another lineage where the domain is complete already.

The table of policies, lineages and states is in `tests/simulation/test_opensplice_scenarios.py`.
"""

from __future__ import annotations

import contextlib
import json

import pytest

from ospltool.stores.copying import backups
from ospltool.stores.ours import OurStore
from tests.integration.configurations import Settings, Space
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds


def counts(lab: Lab) -> tuple[int | None, int | None]:
    """Samples in the sets of both nodes."""
    return lab.seen.samples("n1"), lab.seen.samples("n2")


@pytest.mark.parametrize(
    ("setting", "state", "expected"),
    [
        ("", "written", 5),
        ('delayedAlignment="false"', "empty", 0),
        ('delayedAlignment="true"', "empty", 3),
        ('delayedAlignment="true"', "written", 2),
    ],
)
def test_a_late_set_of_another_lineage_is_treated_as_delayed_alignment_says(
    lab: Lab, setting: str, state: str, expected: int
) -> None:
    space = Space(more=setting, merge=(("Ignore", "*"),))
    lab.start_complete("n1", settings=Settings(spaces=(space,)))
    lab.write({"count": 3, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == 3)
    lab.stop("n1")
    lab.start_complete("n2", settings=Settings(spaces=(space,)).with_priority(50))
    if state == "written":
        writer = lab.program("writer", steps=[{"first": 10, "count": 2, "time": 2_000}])
        writer.answer("done")
        lab.seen.wait_for("it has it", lambda: lab.seen.samples("n2") == 2)
    lab.start("n1")
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n1", "n2"))
    lab.seen.wait_for(f"both have {expected}", lambda: counts(lab) == (expected, expected))
    reader = lab.reader()
    if expected:
        reader.wait(expected)
    given_up = expected not in (3, 5)
    (health,) = json.loads(lab.ospltool("n1", "health", "--json")[1])["data"]
    told = [one for one in health["incidents"] if one["code"] == "DUL-SET-REPLACED"]
    lines = [line for line in lab.information("n1").splitlines() if "the former set is kept" in line]
    assert (len(told), len(lines), bool(lab.trace("n1", "store.backup"))) == (given_up, given_up, given_up)
    if not given_up:
        return
    assert "of another lineage, and delayedAlignment" in told[0]["why"]
    assert "of another lineage, and delayedAlignment" in lines[0]
    with contextlib.closing(OurStore(lab.home("n1") / "store")) as store:
        assert [(one.samples, one.name_space) for one in backups(store.facts)] == [(3, "stock")]
