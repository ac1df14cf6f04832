"""What one participant sends counts for no node but the one that it has announced."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.adversary.strangers import ID, Attacker
from tests.integration.configurations import Settings
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds


def check_ports(lab: Lab, *names: str) -> None:
    """Nodes listen where the rules of a firewall let others in."""
    first = 7400 + 250 * lab.domain
    found = subprocess.run(["ss", "-Hlunp"], capture_output=True, text=True, check=True).stdout
    for name in names:
        lines = [line for line in found.splitlines() if f"pid={lab.pid(name)}," in line]
        ports = {int(line.split()[3].rpartition(":")[2]) for line in lines}
        well_known = sorted(port for port in ports if first <= port < first + 250)
        assert len(well_known) >= 2, lines
        assert well_known[-2] % 2 == first % 2
        assert well_known[-1] == well_known[-2] + 1
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split())
        assert all(low <= port <= high for port in ports - {*well_known})


@pytest.mark.skipif(shutil.which("ss") is None, reason="ss of iproute2 lists the ports")
def test_nobody_gives_samples_in_the_name_of_a_node(lab: Lab) -> None:
    names = ("n1", "n2")
    lab.start_complete(*names, settings=Settings(discovery_s=0.5))
    lab.write({"count": 10, "time": 1_000}, readers=2)
    lab.seen.wait_for("all is stored", lambda: all(lab.seen.stored(name) == 10 for name in names))
    ids = [shown.id for name in names if (shown := lab.seen.node(name))]
    space = lab.seen.space("n1")
    assert space is not None
    counter, start = space.merge_id.split("/")
    lineage = [int(counter), next(one for one in ids if one.startswith(start))]
    check_ports(lab, *names)
    store, first = str(lab.home("n1") / "store"), ids[0]
    for role in ("node", "client"):
        attacker = Attacker(lab, role=role)
        aligners = [ids[1], ID]
        assert attacker.attack("gifts", store=store, lineage=lineage, aligners=aligners, to=first) == 2
        assert attacker.attack("false views", nodes=["ab" * 16, *ids]) == 3
        lab.seen.wait_for("a view comes", lambda: lab.seen.node("n1"))
        attacker.end()
    lab.write({"first": 10, "count": 10, "time": 2_000}, readers=2)
    lab.seen.wait_for("it goes on", lambda: all(lab.seen.stored(name) >= 20 for name in names))
    assert lab.seen.node("fooled") is None
    assert lab.stop(*names) == [0, 0]
    for name in names:
        assert [len(digests) for digests in lab.on_disk(name).values()] == [20]
    causes = [one["cause"] for one in lab.trace("n1", "message.malformed")]
    assert any("sends a stream of" in cause for cause in causes), causes
    causes = [one["cause"] for one in lab.trace("n1", "proof.refused")]
    assert any("in the name of a node that it is not" in cause for cause in causes), causes
