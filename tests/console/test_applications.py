"""What becomes of what applications write and ask for, by topic and by process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.dataset.groups import DurabilityKind
from engine.runtime.monitor import DeliveryView, DeviationView, GroupView, UnkeptView
from ospltool.health.export import system
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.topics import Application, ApplicationEndpoint, InstanceValue
from ospltool.output import envelope
from ospltool.views.applications import applications, use_rows, uses
from ospltool.views.cells import UNICODE, Tone, plain
from ospltool.views.incidents import notables
from ospltool.views.overview import application_lines
from ospltool.views.topics import topics, value_rows
from ospltool.views.view import Filter, View
from tests import fake
from tests.fake import SECOND_NS, START_NS
from tests.health.looking import looked
from tests.json_documents import faults

IDS = {"writer": "a1" * 12 + "000001c1", "reader": "b2" * 12 + "000001c1"}
"""The participants of the two applications."""
WEATHER = Application.announced("weather", 17, "host-1", IDS["writer"])
DISPLAY = Application.announced("display", 18, "host-2", IDS["reader"])


def end(kind: str, durability: str = "PERSISTENT", **changes: Any) -> ApplicationEndpoint:
    owner = WEATHER if kind == "writer" else DISPLAY
    one = ApplicationEndpoint(
        IDS[kind][:24] + "00000103", IDS[kind], owner, kind == "writer", "Track",
        ("harbour",), "depot::Track", DurabilityKind[durability], True,
    )  # fmt: skip
    return one._replace(**changes)


def group(partition: str = "harbour") -> GroupView:
    return GroupView(
        "harbour", partition, "Track", "depot::Track", "PERSISTENT", 9, 3, 90, "ab", START_NS, 9, 0
    )


def delivery(state: str, **changes: Any) -> DeliveryView:
    told: dict[str, Any] = {"participant": f"{'00' * 16},{IDS['reader']}", "topic": "Track", "samples": 9}
    told |= {"partition": "harbour", "started_ns": START_NS, "finished_ns": 0, **changes}
    return DeliveryView(state=state, **told)


def view_of(endpoints: tuple[ApplicationEndpoint, ...] | None, text: str = "", **told: Any) -> View:
    model = SystemModel()
    space = fake.name_space("harbour", 1, count=9)
    heard = tuple(ReceivedSnapshot(fake.snapshot(n, space, **told), START_NS) for n in (1, 2))
    model.apply(Update(heard, endpoints=endpoints), START_NS)
    return View(looked(model, START_NS), START_NS, UNICODE, Filter.parse(text, ("state",)))


UNKEPT = UnkeptView(end("writer").guid, "Track", "harbour", "untyped", "no type information")
FATES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str, str]] = {
    "a durable writer": ("writer", {}, {"groups": (group(),)}, "kept", ""),
    "one of any partition": ("writer", {"partitions": ("h*",)}, {"groups": (group(),)}, "kept", ""),
    "one in the default partition": ("writer", {"partitions": ()}, {"groups": (group(""),)}, "kept", ""),
    "one elsewhere": ("writer", {"partitions": ("x",)}, {"groups": (group(),)}, "outside", "no node has"),
    "one that is refused": ("writer", {}, {"groups": (group(),), "unkept": (UNKEPT,)}, "not kept", "no type"),
    "a writer of live data": (
        "writer", {"durability": "TRANSIENT_LOCAL"}, {"groups": (group(),)}, "not durable", "",
    ),
    "a reader": ("reader", {}, {"deliveries": (delivery("done"),)}, "served", ""),
    "one that waits": (
        "reader", {}, {"deliveries": (delivery("waiting", problem="its type"),)}, "waiting", "its type",
    ),
    "one that fails at one of two nodes": (
        "reader", {}, {"deliveries": (delivery("failed", problem="left"), delivery("done"))}, "failed",
        "left",
    ),
    "one that sees another set": (
        "reader", {}, {
            "deliveries": (delivery("done"),),
            "deviations": (DeviationView(IDS["reader"], "Track", "harbour", {"owned": 2}),),
        }, "differs", "",
    ),
    "one of live data": (
        "reader", {"durability": "VOLATILE"}, {"groups": (group(),)}, "live only", "",
    ),
    "one of which no node says anything": ("reader", {}, {"groups": (group(),)}, "", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", FATES)
def test_each_reader_and_writer_has_a_state_and_a_reason(case: str) -> None:
    kind, changes, told, state, why = FATES[case]
    (one,) = uses(view_of((end(kind, **changes),), **told))
    assert (one.state, one.is_writer) == (state, kind == "writer")
    assert why in one.why
    assert one.is_lacking == (state in {"not kept", "waiting", "failed", "differs"})


def test_what_nodes_report_is_told_once_and_of_present_readers_only() -> None:
    gone = delivery("failed", participant="cd" * 16, is_gone=True)
    told: dict[str, Any] = {"unkept": (UNKEPT,), "deliveries": (delivery("done"), gone)}
    assert [one.state for one in uses(view_of((end("writer"), end("reader")), **told))] == [
        "not kept",
        "served",
    ]
    unknown = uses(view_of(None, **told))
    assert [(one.application.title, one.durability) for one in unknown[:1]] == [
        (f"participant {UNKEPT.writer[:24]}", "")
    ]
    assert {one.state for one in unknown} == {"not kept", "served"}


def test_who_lacks_something_comes_first_with_the_reason() -> None:
    endpoints = (
        end("writer"),
        end("writer", topic="A", guid="0" * 32),
        end("reader", participant="c3" * 16, application=DISPLAY._replace(key="other", host="host-0")),
        end("reader"),
    )
    view = view_of(endpoints, groups=(group(),), deliveries=(delivery("waiting", problem="its type"),))
    table = applications(view, 120)
    assert [(one.application.title, one.application.host) for _, one in table.items] == [
        ("display 18", "host-2"),
        ("display 18", "host-0"),
        ("weather 17", "host-1"),
    ]
    facts = table.facts(0)
    assert (facts["lacking"], facts["why"]) == (1, "Track: its type")
    assert [one.name for _, one in topics(view, 120).items] == ["Track", "A"]
    track = topics(view, 120).facts(0)
    assert [track[key] for key in ("nodes", "samples", "writers", "readers", "lacking")] == [2, 9, 1, 2, 1]
    shown = use_rows(view_of(endpoints, "state:kept", groups=(group(),)), uses(view), 120)
    assert [one.state for _, one in shown.items] == ["kept"]
    assert shown.hidden == 3


def test_what_is_known_of_applications_is_in_the_document_of_the_system() -> None:
    told = json.loads(envelope.document("system", system(view_of((end("writer"),)).health, START_NS)))
    assert faults(told) == []
    (one,) = told["data"]["endpoints"]
    assert (one["durability"], one["application"]["pid"]) == ("PERSISTENT", 17)


def test_the_overview_names_the_process_that_waits_or_is_not_kept() -> None:
    view = view_of(
        (end("writer"), end("reader")),
        deliveries=(delivery("waiting", problem="its type"),),
        unkept=(UNKEPT,),
    )
    lines = [plain(line).strip() for line in application_lines(view, 160)]
    assert lines[1] == "host-1 1 writer, 0 readers; host-2 0 writers, 1 reader"
    assert lines[3:] == [
        "○ reader of harbour.Track, served by n1, waiting, in display 18 on host-2: its type",
        "○ reader of harbour.Track, served by n2, waiting, in display 18 on host-2: its type",
        "▲ writer of harbour.Track not kept, in weather 17 on host-1: no type information",
    ]
    told = [plain(one.line) for one in notables(view, view.health.open)]
    assert any("late joiner of harbour.Track, served by n1, in display 18 on host-2" in one for one in told)


def test_a_value_that_has_just_changed_stands_out() -> None:
    def value(key: int, changed_ns: int = 0, *, is_alive: bool = True) -> InstanceValue:
        fields = {"id": key, "name": "\x1b[31m", "at": {"x": 1.5}} if is_alive else {"id": key}
        return InstanceValue(f"id={key}", fields, ("id",), is_alive, START_NS, 3, changed_ns)

    values = [value(1), value(2, START_NS - SECOND_NS), value(3, is_alive=False)]
    rows = value_rows(view_of(None), values, 120)
    (plain,), (fresh,), (gone,) = (rows.cell(row, 2) for row in range(3))
    assert plain == (r'name="\u001b[31m"  at={"x": 1.5}', Tone.PLAIN)
    assert (fresh.tone, gone) == (Tone.ACCENT, ("disposed", Tone.DIM))
    assert rows.keys == tuple(f"/id={number}" for number in (1, 2, 3))
