"""Domain/Filters where a writer does not meet every node: what passes is kept everywhere all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.configurations import Settings
from tests.integration.hosts import HostsLab, hosts_lab
from tests.integration.watching import Watch

pytestmark = [pytest.mark.dds, pytest.mark.netns]

ALL = Settings()
BELOW_FIVE = Settings(filters=(("value < 5", "stock*.Reading"),))


def start(hosts: HostsLab, first: Settings, second: Settings, master: str) -> Watch:
    """Nodes on two hosts, as seen from the first one; both are complete when this returns."""
    lab = hosts.lab
    lab.configure("n1", first)
    lab.configure("n2", second)
    view = hosts.start_seen("n1", "n2")
    view.wait_for("it leads", lambda: {view.master(each) for each in ("n1", "n2")} == {master})
    return view


def write(hosts: HostsLab, first: int, **options: Any) -> None:
    """Ten instances with the values 0 to 9, from the host without a node."""
    steps = [{"first": first + n, "value": n, "time": 1_000 + first + n} for n in range(10)]
    hosts.lab.write(*steps, prefix=hosts.lab.prefixes["n3"], **options)


@pytest.mark.parametrize(
    ("first", "second", "master"),
    [
        pytest.param(BELOW_FIVE, ALL, "n2", id="the master keeps all"),
        pytest.param(BELOW_FIVE, ALL.with_priority(0), "n1", id="the master withholds a part"),
    ],
)
def test_a_node_gets_what_only_another_one_was_written(
    tmp_path: Path, first: Settings, second: Settings, master: str
) -> None:
    with hosts_lab(tmp_path, "abc", multicast="true") as hosts:
        network, view = hosts.network, start(hosts, first, second, master)
        network.part("a", "c")
        write(hosts, 0)
        view.wait_for("n1 has what passes", lambda: (view.samples("n1"), view.samples("n2")) == (5, 10))
        network.reunite("a", "c")
        network.part("b", "c")
        write(hosts, 10)
        view.wait_for("n2 has what n1 has", lambda: (view.samples("n1"), view.samples("n2")) == (10, 15))


def test_what_was_disposed_behind_the_back_of_a_node_that_filters_stays_gone(tmp_path: Path) -> None:
    """The master remembers a dispose until such a node has asked; otherwise its samples would come back."""
    with hosts_lab(tmp_path, "abc", multicast="true") as hosts:
        view = start(hosts, BELOW_FIVE, ALL, "n2")
        write(hosts, 0, readers=2, cleanup_ns=10**9)
        view.wait_for("both have theirs", lambda: (view.samples("n1"), view.samples("n2")) == (5, 10))
        hosts.network.part("a", "c")
        ends = [{"op": op, "first": n, "time": 5_000} for n in range(10) for op in ("dispose", "unregister")]
        hosts.lab.write(*ends, prefix=hosts.lab.prefixes["n3"], cleanup_ns=10**9)
        view.wait_for("n2 has forgotten them", lambda: view.samples("n2") == 0)
        view.wait_for("so has n1", lambda: view.samples("n1") == 0)
        hosts.network.reunite("a", "c")
        write(hosts, 20, readers=2, cleanup_ns=10**9)
        view.wait_for("both have the news", lambda: (view.samples("n1"), view.samples("n2")) == (5, 10))
