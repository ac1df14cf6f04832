"""Copies on the two sides of a split network: they are copies of one set only while they agree."""

from __future__ import annotations

from ospltool.health import export
from ospltool.health.health import Health
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.views import name_space
from ospltool.views.cells import UNICODE, Span, Tone, plain
from ospltool.views.overview import Overview
from ospltool.views.view import View
from tests import fake
from tests.fake import SECOND_NS, START_NS
from tests.health.test_incidents import Ward, apart, healed


def split() -> Ward:
    """n3 is cut off from n1 and n2, and each side has samples that the other lacks."""
    ward = Ward()
    ward.start()
    ward.scenario.write("n1", 1, 2, 3)
    ward.run(2)
    apart(ward.scenario)
    ward.run(3)
    ward.scenario.write("n1", 4, 5)
    ward.scenario.write("n3", 100, 101, 102)
    ward.run(6)
    return ward


def test_copies_that_differ_are_not_counted_as_copies_of_each_other() -> None:
    ward = split()
    (copies,) = ward.health.redundancies
    assert copies.text == "2 + 1 of 3 copies, sets differ, 2 of 2 on disk"
    assert (copies.left, copies.lacks) == (0, 1)
    said = "redundancy left 0: the last copy of one side"
    assert said in ward.health.verdict.text
    told = export.redundancy(ward.health, copies)
    assert (told["copies"], told["left"], told["held_by"], told["sides"]) == (2, 0, ["n1", "n2"], [["n3"]])
    (found,) = ward.health.open  # one cause, one incident
    assert "2 + 1 of 3 copies, sets differ" in found.effect


def test_the_matrix_marks_the_sets_that_differ() -> None:
    ward = split()
    overview = Overview(View(ward.health, ward.watched.now_ns, UNICODE), 120)
    cells = [plain(overview.cell(row, overview.fixed)) for row in range(3)]
    assert all(UNICODE.conflict in cell for cell in cells), cells
    stars = [span.tone for row in range(3) for span in overview.cell(row, overview.fixed) if "★" in span.text]
    assert stars == [Tone.FAULT, Tone.FAULT]
    lines = name_space.master_lines(View(ward.health, ward.watched.now_ns, UNICODE), "ns1")
    assert [line[0] for line in lines] == [Span(" ★ ", Tone.FAULT)] * 2


def test_copies_count_together_while_they_agree_and_after_the_merge() -> None:
    ward = Ward()
    ward.start()
    ward.scenario.write("n1", 1, 2, 3)
    ward.run(2)
    apart(ward.scenario)
    ward.run(6)
    (copies,) = ward.health.redundancies
    assert (copies.text, copies.left) == ("3 of 3 copies, 3 on disk", 2)
    assert "n2 and n3 are masters, their sets are equal, 3 of 3 copies" in ward.health.open[0].effect
    ward.scenario.write("n3", 100)
    ward.run(3)
    assert ward.health.redundancies[0].left == 0
    assert "n2 and n3 are masters, their sets drift apart" in ward.health.open[0].effect
    healed(ward.scenario)
    ward.run(10)
    assert ward.health.redundancies[0].text == "3 of 3 copies, 3 on disk"


def test_sets_of_two_masters_count_apart_as_soon_as_one_digest_is_another() -> None:
    """Nothing else changes, so what is kept from the last look must not be taken for new."""
    model = SystemModel()
    health = Health(model)
    counted = []
    for second, digest in enumerate(("9f3c", "9f3c", "77aa", "9f3c")):
        now_ns = START_NS + second * SECOND_NS
        shown = (
            fake.snapshot(1, fake.name_space("Orders", 1), time_ns=now_ns),
            fake.snapshot(2, fake.name_space("Orders", 2, digest=digest), time_ns=now_ns),
        )
        model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in shown)), now_ns)
        for _ in health.examine(now_ns):
            pass
        (copies,) = health.redundancies
        counted.append((len(copies.held), len(copies.sides)))
    assert counted == [(2, 0), (2, 0), (1, 1), (2, 0)]
