"""The cause of a lost node: nothing that the evidence excludes, and nothing that becomes untrue."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from engine.runtime import monitor
from ospltool.diagnostics.model import Severity
from ospltool.health.health import Health
from ospltool.health.incidents import Incident
from ospltool.health.news import IncidentNews
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id

HERE, THERE, FAR = "10.77.0.1", "10.77.0.2", "10.77.0.3"
KILLED = "killed, crashed, or stopped by SIGSTOP: no end was announced"
LEASE_S = 3
"""Seconds after which the participant of a node that is not heard leaves."""


class Ward:
    """Nodes on hosts that all have one name, watched from `HERE`, each told once a second.

    Args:
        addresses: of each node, by its number; empty without any.
        here: addresses of the watch.
    """

    def __init__(self, addresses: Mapping[int, str], here: tuple[str, ...] = (HERE,)) -> None:
        self.addresses = addresses
        self.model = SystemModel()
        self.health = Health(self.model, here=here)
        self.second = 0
        self.heard_s = dict.fromkeys(addresses, 0)
        self.restarted_s: dict[int, int] = {}
        self.last_s: dict[int, int] = {}
        self.waiting: tuple[int, ...] = ()
        self.run(5, *addresses)

    def run(
        self,
        seconds: int,
        *heard: int,
        hearing: Mapping[int, tuple[int, ...]] | None = None,
        master: int | None = None,
    ) -> None:
        """Hear these nodes; each of them has the heard ones and those in `hearing` as fellows.

        All follow the master; without one they follow the first of them.
        """
        for _ in range(seconds):
            self.second += 1
            now_ns = START_NS + self.second * S
            snapshots = []
            for one in heard:
                self.heard_s[one] = self.second
                fellows = {*heard, *(hearing or {}).get(one, ())} - {one}
                snapshots.append(
                    fake.snapshot(
                        one,
                        fake.name_space("Orders", master or heard[0]),
                        host="box",
                        addresses=(self.addresses[one],) * bool(self.addresses[one]),
                        time_ns=now_ns,
                        fellows=tuple(
                            fake.fellow(
                                n,
                                START_NS + self.last_s.get(n, self.second) * S,
                                communication=self.communication(one, n),
                            )
                            for n in sorted(fellows)
                        ),
                        started_ns=START_NS + self.restarted_s.get(one, -600) * S,
                        pid=4000 + one + self.restarted_s.get(one, 0),
                    )
                )
            gone = tuple(
                FeedNotice(NoticeKind.NODE_LOST, now_ns, "", node_id(one))
                for one, heard_s in self.heard_s.items()
                if self.second - heard_s == LEASE_S
            )
            received = tuple(ReceivedSnapshot(one, now_ns) for one in snapshots)
            self.model.apply(Update(received, notices=gone), now_ns)
            self.health.update(now_ns)

    def communication(self, node: int, fellow: int) -> str:
        """What a node says of a fellow; the waiting ones have not met those that the watch does not hear."""
        return "waiting" if node in self.waiting and self.heard_s[fellow] < self.second - 1 else "approved"

    def of(self, who: str) -> Incident:
        (found,) = [one for one in self.health.open if one.who == who]
        return found


def test_a_host_that_shares_its_name_with_others_is_told_by_its_address() -> None:
    ward = Ward({1: HERE, 2: THERE, 3: FAR})
    ward.run(5, 1, 3)
    found = ward.of("n2")
    assert found.code.id == "DUL-NODE-GONE"
    assert found.why == (
        f"cause unknown: link to {THERE} cut, host down, or process killed or stopped; "
        "no other node there is heard"
    )
    assert not found.is_cause_known


def test_a_host_that_answers_has_no_cut_link() -> None:
    ward = Ward({1: HERE, 2: THERE, 3: THERE, 4: THERE})
    ward.run(5, 1, 3, 4)
    found = ward.of("n2")
    assert found.why == (
        "killed, crashed, or stopped by SIGSTOP: no end was announced; "
        f"its host {THERE} answered: n3 and n4 were heard there at 01:03:28 UTC"
    )
    assert found.is_cause_known
    ward.run(8, 1)
    assert ward.of("n2").why == found.why, "what was seen then stays true when those who showed it are gone"


def test_nodes_of_one_host_that_are_lost_together_were_not_killed_one_by_one() -> None:
    ward = Ward({1: HERE, 2: THERE, 3: THERE})
    ward.run(5, 1)
    for name, names in (("n2", "n2 and n3"), ("n3", "n3 and n2")):
        assert ward.of(name).why == (
            f"cause unknown: link to {THERE} cut, or host down; {names} were lost together"
        )


def test_no_link_to_the_host_of_the_watch_is_cut() -> None:
    ward = Ward({1: HERE, 2: THERE})
    ward.run(5, 2)
    assert ward.of("n1").why == (
        "killed, crashed, or stopped by SIGSTOP: no end was announced; its host is that of this watch"
    )


def test_a_node_that_others_hear_is_not_gone_but_out_of_reach() -> None:
    ward = Ward({1: HERE, 2: THERE, 3: FAR})
    ward.run(6, 1, 3, hearing={3: (2,)})
    found = ward.of("n2")
    assert (found.code.id, found.what) == ("DUL-NODE-SILENT", "n2 is out of reach of this watch")
    assert found.why == "the network between it and this watch is cut: n3 heard it at 01:03:31 UTC"
    assert "watch from its host" in found.next


@pytest.mark.parametrize(
    ("hearing", "told"), [((1,), "n1 is master"), ((), "no master")], ids=["heard", "gone"]
)
def test_a_master_that_only_its_fellows_hear_is_still_master(hearing: tuple[int, ...], told: str) -> None:
    ward = Ward({1: HERE, 2: THERE, 3: FAR})
    ward.run(6, 2, 3, hearing={2: hearing, 3: hearing}, master=1)
    assert told in ward.of("n1").effect


@pytest.mark.parametrize(
    ("here", "told"),
    [
        (HERE, f"n1 and n2: {KILLED}; its host is that of this watch"),
        (FAR, "cause unknown: the network of this watch is cut or changed, or every node was killed at once"),
    ],
)
def test_nodes_that_were_heard_had_been_started_and_were_in_reach(here: str, told: str) -> None:
    ward = Ward({1: HERE, 2: HERE}, (here,))
    ward.run(9)
    assert ward.of("domain").why == told


def test_what_is_not_known_of_an_older_node_is_not_told() -> None:
    """A node may have no addresses, and hosts may share a name."""
    ward = Ward({1: "", 2: "", 3: ""})
    ward.run(5, 1, 3)
    why = ward.of("n2").why
    assert why.startswith("cause unknown: link to its host cut, host down, or process killed or stopped")
    assert why.endswith("the node tells no address")


def test_a_snapshot_without_addresses_is_read() -> None:
    document = json.loads(monitor.encode(fake.snapshot(1, addresses=(THERE,))))
    assert document["data"]["addresses"] == [THERE]
    del document["data"]["addresses"]
    read = monitor.decode(json.dumps(document).encode())
    assert isinstance(read, monitor.NodeSnapshot)
    assert read.addresses == ()


@pytest.mark.parametrize(("width", "shown"), [(80, "process killed"), (120, "process killed or stopped")])
def test_all_causes_that_are_left_are_on_the_overview(width: int, shown: str) -> None:
    from ospltool.views import incidents
    from ospltool.views.cells import UNICODE, plain
    from ospltool.views.view import View

    ward = Ward({1: HERE, 2: THERE, 3: FAR})
    ward.run(5, 1, 3)
    view = View(ward.health, START_NS + ward.second * S, UNICODE)
    why = plain(incidents.explanation(view, ward.of("n2"), width)[0])
    assert all(cause in why for cause in (f"link to {THERE} cut", "host down", shown)), why


def test_a_loss_soon_after_another_one_has_a_cause_of_its_own() -> None:
    """First the process was killed; then its host is not reached any more."""
    ward = Ward({1: HERE, 2: FAR, 3: FAR})
    ward.run(5, 1, 3)
    assert ward.of("n2").why.startswith(KILLED)
    ward.run(4, 1, 2, 3)
    assert not ward.health.open
    ward.run(5, 1)
    assert ward.of("n2").times == 2
    assert ward.of("n2").why.startswith(f"cause unknown: link to {FAR} cut")


def test_the_next_step_about_a_host_that_may_be_cut_off_names_it_and_its_link_first() -> None:
    ward = Ward({1: HERE, 2: THERE, 3: FAR})
    ward.run(5, 1, 3)
    assert ward.of("n2").next.startswith(
        f"Look at the host box first, and at the link to it: `ping {THERE}` from here and "
    )
    ward = Ward({1: HERE, 2: THERE, 3: THERE, 4: THERE})
    ward.run(5, 1, 3, 4)
    assert "Run `ospltool status` on its host" in ward.of("n2").next, "that host answers"


def cut_off(ward: Ward, seconds: int) -> None:
    """Only the watch has lost n2."""
    ward.run(seconds, 1, 3, hearing={1: (2,), 3: (2,)})


def test_a_node_that_is_killed_behind_a_cut_link_is_gone_from_then_on() -> None:
    ward = Ward({1: HERE, 2: THERE, 3: FAR})
    news = IncidentNews(5.0)
    cut_off(ward, 10)
    news.changes(ward.health, 0.0)
    cut = ward.of("n2")
    assert (cut.code.id, cut.since_ns) == ("DUL-NODE-SILENT", START_NS + 5 * S)
    ward.run(3, 1, 3)
    gone = ward.of("n2")
    assert (gone.code.id, gone.what, gone.since_ns) == ("DUL-NODE-GONE", "n2 is gone", START_NS + 15 * S)
    assert (gone.times, gone.severity) == (1, Severity.ERROR)
    assert gone.why == (
        f"cause unknown: link to {THERE} cut, host down, or process killed or stopped; "
        "n1 and n3 lost it, too, and heard it last at 01:03:35 UTC"
    )
    (before,) = ward.health.closed
    assert (before.key, before.until_ns) == (cut.key, gone.since_ns)
    assert before.what == "n2 is out of reach of this watch, then gone"
    told = [(how, one.code.id) for how, one in news.changes(ward.health, 1.0)]
    assert told == [("began", "DUL-NODE-GONE"), ("joined", "DUL-NODE-SILENT")]
    ward.run(9, 1, 3)
    assert ward.of("n2").key == gone.key
    ward.restarted_s[2] = ward.second
    ward.run(1, 1, 2, 3)
    back = ward.of("n2")
    assert (back.key, back.code.id, back.since_ns) == (gone.key, "DUL-NODE-RESTARTED", gone.since_ns)


def test_fellows_that_hear_a_node_again_are_not_said_to_have_lost_it_too() -> None:
    ward = Ward({1: HERE, 2: THERE, 3: FAR})
    ward.run(6, 1, 3)
    before = ward.of("n2")
    ward.run(1, 1, 3, hearing={1: (2,), 3: (2,)})
    assert (ward.of("n2").why, ward.of("n2").since_ns) == (before.why, before.since_ns)


def test_a_death_soon_after_a_cut_link_is_no_return_of_that() -> None:
    ward = Ward({1: HERE, 2: THERE, 3: FAR})
    cut_off(ward, 10)
    ward.run(5, 1, 2, 3)
    assert not ward.health.open
    ward.run(5, 1, 3)
    assert (ward.of("n2").code.id, ward.of("n2").times) == ("DUL-NODE-GONE", 1)
    ward.run(5, 1, 2, 3)
    ward.run(5, 1, 3)
    assert ward.of("n2").times == 2


def test_a_node_that_is_killed_behind_a_cut_link_was_killed_if_its_host_answers() -> None:
    ward = Ward({1: HERE, 2: HERE, 3: FAR})
    cut_off(ward, 10)
    ward.run(3, 1, 3)
    assert ward.of("n2").why == f"{KILLED}; its host is that of this watch"


@pytest.mark.parametrize("addresses", [{1: HERE, 2: THERE, 3: FAR}, {1: FAR, 2: THERE, 3: FAR}])
def test_a_node_that_is_killed_behind_a_cut_route_of_the_watch_is_gone_from_then_on(
    addresses: Mapping[int, str],
) -> None:
    """A fellow on the host of the watch loses the node with the route; that tells nothing of its death."""
    ward = Ward(addresses)
    now_ns = START_NS + ward.second * S
    ward.model.apply(Update(notices=(FeedNotice(NoticeKind.ROUTE_LOST, now_ns, THERE),)), now_ns)
    ward.run(10, 1, 3, hearing={3: (2,)} if addresses[1] == HERE else {1: (2,), 3: (2,)})
    cut = ward.of("n2")
    assert (cut.code.id, cut.why.partition(" on ")[0]) == ("DUL-NODE-SILENT", f"no route leads to {THERE}")
    ward.run(2, 1, 3)
    gone = ward.of("n2")
    assert (gone.code.id, gone.what, gone.since_ns) == ("DUL-NODE-GONE", "n2 is gone", START_NS + 15 * S)
    assert gone.why.startswith("cause unknown: ")
    assert gone.why.endswith("lost it, too, and heard it last at 01:03:35 UTC")
    assert "n2 is out of reach of this watch, then gone" in [one.what for one in ward.health.closed]
    ward.model.apply(Update(notices=(FeedNotice(NoticeKind.ROUTE_FOUND, now_ns, ""),)), now_ns)
    ward.run(9, 1, 3)
    assert ward.of("n2").key == gone.key
    ward.restarted_s[2] = ward.second
    ward.run(1, 1, 2, 3)
    back = ward.of("n2")
    assert (back.key, back.code.id, "no route" in back.why) == (gone.key, "DUL-NODE-RESTARTED", False)


def test_a_route_that_was_lost_long_before_a_node_has_nothing_to_do_with_its_loss() -> None:
    """What comes from a host needs no route to it, so the watch went on hearing the node."""
    ward = Ward({1: HERE, 2: THERE, 3: FAR})
    now_ns = START_NS + ward.second * S
    ward.model.apply(Update(notices=(FeedNotice(NoticeKind.ROUTE_LOST, now_ns, THERE),)), now_ns)
    ward.run(8, 1, 2, 3)
    ward.last_s[2] = ward.second
    for hearing in (2, 2, 2, 0, 0):  # its fellows keep it until its heartbeat has expired
        ward.run(1, 1, 3, hearing={1: (hearing,), 3: (hearing,)} if hearing else {})
        assert "no route" not in "".join(one.why for one in ward.health.every)
    (found,) = ward.health.every
    assert (found.code.id, found.since_ns) == ("DUL-NODE-GONE", START_NS + 13 * S)


def test_two_nodes_that_do_not_hear_each_other_are_told_although_the_watch_hears_only_one_of_them() -> None:
    ward = Ward({1: HERE, 2: THERE, 3: FAR})
    ward.run(9, 1, 3, hearing={1: (2,)})
    assert ward.of("n2").what == "n2 is out of reach of this watch"
    mesh = ward.of("n2 and n3")
    assert (mesh.code.id, mesh.what) == ("DUL-PARTIAL-MESH", "n3 does not hear n2, which n1 hears")
    ward.waiting = (3,)
    ward.run(1, 1, 3, hearing={1: (2,), 3: (2,)})
    assert ward.of("n2 and n3").what == mesh.what, "they are about to meet"
    ward.run(4, 1, 2, 3)
    assert ward.health.open == []
    ward.run(4, 1, 3)
    assert [one.who for one in ward.health.open] == ["n2"], "nobody hears it"
