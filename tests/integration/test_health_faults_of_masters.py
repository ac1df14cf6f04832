"""More faults on real nodes: of masters, and of what an incident says of them while they change.

`make faults` runs them, with those of `test_health_faults`.
"""

from __future__ import annotations

import os

import pytest

from ospltool.cli.health import SETTLED_S
from tests.integration.clinic import BUSY_S, Clinic, report, watched
from tests.integration.lab import Lab

pytestmark = [
    pytest.mark.dds,
    pytest.mark.skipif("OSPLTOOL_FAULTS" not in os.environ, reason="`make faults` runs it"),
]

NAMES = ("n1", "n2", "n3")
MOST_EFFECTS = 3
"""With the old master, without one, and with the new one."""


def test_the_new_master_is_told_of_a_loss_that_was_told_before_its_election(lab: Lab) -> None:
    lab.start_three()
    with watched(Clinic(lab, NAMES, copies=3)) as clinic:
        clinic.check_well()
        lab.kill("n1")
        clinic.check("DUL-NODE-GONE DUL-NODE-SILENT", "n1")
        effects = clinic.effects["n1"]
        took_s = clinic.wait("the new master is told", lambda: "n2 is master" in effects[-1], 15.0 + BUSY_S)
        clinic.listen(2 * SETTLED_S)
        assert "n2 is master, nothing lost" in effects[-1], effects
        assert len(effects) <= MOST_EFFECTS, effects
        lab.start("n1")
        report("the new master of a loss", took_s, clinic.check_well())
