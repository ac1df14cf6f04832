"""What of a file has no effect on a node, where it stands, and why."""

from __future__ import annotations

import re

import pytest

from engine.config import interpret, parse
from engine.config.fates import Fate, fate_of, without_effect
from engine.config.schema import documented

FILE = """<OpenSplice>
 <Domain><Name>d</Name>{domain}
  <Service name="other"><Command>x</Command><Locking>true</Locking></Service>
  <Service name="durability"><Command>durability</Command>{service}</Service>
 </Domain>
 <DurabilityService name="durability">{durability}
  <NameSpaces><NameSpace name="n"><Partition>p</Partition></NameSpace>
   <Policy nameSpace="n" durability="Durable" aligner="true" alignee="Initial"/></NameSpaces>
 </DurabilityService>
</OpenSplice>"""


def read(domain: str = "", service: str = "", durability: str = "") -> bytes:
    return FILE.format(domain=domain, service=service, durability=durability).encode()


CASES = {
    "nothing": (read(), []),
    "one of a whole element": (
        read("<Database>\n<Size>1</Size><Threshold>2</Threshold></Database>"),
        [("Domain/Database", 2)],
    ),
    "only what concerns the service itself": (
        read(service="\n<Locking>true</Locking>"),
        [("Domain/Service/Locking", 5)],
    ),
    "a value that asks for no more than the node does": (read(service="<Locking> FALSE</Locking>"), []),
    "any value": (read("<Description>of people</Description>"), []),
    "the value of another place": (
        read("<Daemon><Heartbeat><ExpiryTime update_factor='0.2'>10</ExpiryTime></Heartbeat></Daemon>"),
        [],
    ),
    "not the value of another place": (
        read("<Daemon><Heartbeat><ExpiryTime update_factor='0.3'>10</ExpiryTime></Heartbeat></Daemon>"),
        [("Domain/Daemon/Heartbeat/ExpiryTime@update_factor", 2)],
    ),
    "an attribute": (
        read(
            durability="<Persistent><StoreDirectory>s</StoreDirectory>\n"
            "<KeyValueStore type='leveldb'/></Persistent>"
        ),
        [("DurabilityService/Persistent/KeyValueStore@type", 7)],
    ),
    "an element in an element that works": (
        read("<Daemon><Tracing>\n<Verbosity>INFO</Verbosity></Tracing></Daemon>"),
        [("Domain/Daemon", 2)],
    ),
}


@pytest.mark.parametrize(("data", "expected"), CASES.values(), ids=CASES)
def test_what_has_no_effect_is_found_once_with_its_place(
    data: bytes, expected: list[tuple[str, int]]
) -> None:
    document = parse(data, "f.xml", {})
    root = document.root
    found = without_effect(root.find("Domain"), root.find("DurabilityService"), "durability")
    assert [(each.path, each.thing.position.line) for each in found] == expected
    interpreted = interpret(document)
    assert [(each.path.removeprefix("//OpenSplice/").replace("[@", "@").rstrip("]"), each.origin.line)
            for each in interpreted.configuration.ignored] == expected  # fmt: skip
    assert interpreted.problems == ()


QUIET = {
    "latency_budget": '<Network latency_budget="0.5"/>',
    "latency_budget of heartbeats": '<Network><Heartbeat latency_budget="0.5"/></Network>',
    "latency_budget of alignment": '<Network><Alignment latency_budget="0.5"/></Network>',
    "TimeAlignment": "<Network><Alignment><TimeAlignment>false</TimeAlignment></Alignment></Network>",
    "WaitForAttachment": '<Network><WaitForAttachment maxWaitCount="5"><ServiceName>x</ServiceName>'
    "</WaitForAttachment></Network>",
}


@pytest.mark.parametrize("durability", QUIET.values(), ids=QUIET)
def test_what_every_file_has_is_marked_without_a_warning_at_each_start(durability: str) -> None:
    document = parse(read(durability=durability), "f.xml", {})
    root = document.root
    (found,) = without_effect(root.find("Domain"), root.find("DurabilityService"), "durability")
    assert not found.warns
    configuration = interpret(document).configuration
    assert configuration.ignored == ()
    marked = {each.path for each in configuration.settings if each.ignored}
    assert marked >= {documented(path) for path, _ in found.values}
    assert {each.ignored for each in configuration.settings} == {"", found.entry.reason}


@pytest.mark.parametrize("mode", ["XML", "MMF"])
def test_settings_are_marked_once_whether_they_are_read_and_valid_or_not(mode: str) -> None:
    store = f"<Persistent><StoreDirectory>s</StoreDirectory><StoreMode>{mode}</StoreMode></Persistent>"
    configuration = interpret(parse(read("<SingleProcess>true</SingleProcess>", durability=store), "f", {}))
    marks = {
        each.path.rpartition("/")[2]: (each.value, bool(each.ignored))
        for each in configuration.configuration.settings
    }
    assert marks["StoreMode"] == (mode, True)
    assert sum("StoreMode" in each.path for each in configuration.configuration.settings) == 1
    assert marks["SingleProcess"] == ("true", True)
    assert marks["StoreDirectory"] == ("s", False)


FILTER = '<Filters><Filter content="{}">{}</Filter></Filters>'
TOPIC = "<PartitionTopic>p.T</PartitionTopic>"
IN_VAIN = {
    "an empty condition": (
        read(FILTER.format(" ", TOPIC)),
        "content PartitionTopic",
        "its condition is empty",
    ),
    "no topic": (read(FILTER.format("a=1", "")), "content", "it has no PartitionTopic"),
    "a filter above a priority": (
        read(FILTER.format("a=1", TOPIC)).replace(
            b' alignee="Initial"', b' alignee="Initial" masterPriority="9"'
        ),
        "masterPriority",
        "with a content filter the node ranks with 1 in name-space 'n'",
    ),
    "a filter of something else": (
        read(FILTER.format("a=1", "<PartitionTopic>q.T</PartitionTopic>")),
        "",
        "",
    ),
    "an impossible priority": (
        read(service="<Scheduling><Class>Realtime</Class><Priority>400</Priority></Scheduling>"),
        "Scheduling/Priority",
        "SCHED_FIFO has the priorities 1 to 99, not 400",
    ),
    "an impossible sum": (
        read(
            service="<Scheduling><Class>Realtime</Class><Priority>90</Priority></Scheduling>",
            durability="<Watchdog><Scheduling><Class>Default</Class><Priority>10</Priority></Scheduling></Watchdog>",
        ),
        "Watchdog/Scheduling/Priority",
        "SCHED_FIFO has the priorities 1 to 99, not 100",
    ),
}


@pytest.mark.parametrize(("data", "path", "reason"), IN_VAIN.values(), ids=IN_VAIN)
def test_what_does_nothing_because_of_something_else_is_marked(data: bytes, path: str, reason: str) -> None:
    interpreted = interpret(parse(data, "f.xml", {}))
    assert interpreted.problems == ()
    marked = [each for each in interpreted.configuration.settings if each.ignored]
    paths = path.split()
    assert [each.ignored for each in marked] == [reason] * len(paths)
    assert all(one in each.path and each.origin.line for one, each in zip(paths, marked, strict=True))
    assert interpreted.configuration.ignored == (), "the node has words of its own for it at its start"
    shown = {each.value for each in interpreted.configuration.settings if "PartitionTopic" in each.path}
    assert shown == set(re.findall("<PartitionTopic>(.*?)</", data.decode()))


def test_what_would_do_harm_is_refused_with_place_and_reason() -> None:
    (found,) = interpret(parse(read('\n<GIDKey groups="g"/>'), "f.xml", {})).problems
    assert str(found).startswith("f.xml:3:2: //OpenSplice/Domain/GIDKey is refused: it separates the data")


def test_the_most_specific_line_counts() -> None:
    entry = fate_of("Domain/Daemon/Heartbeat/ExpiryTime")
    assert entry is not None
    assert entry.path == "Domain/Daemon/Heartbeat/ExpiryTime"
    scheduling = fate_of("Domain/Daemon/Heartbeat/Scheduling/Priority@priority_kind")
    assert scheduling is not None
    assert (scheduling.path, scheduling.fate) == ("Domain/Daemon/Heartbeat", Fate.NOT_NEEDED)
    assert fate_of("Domain") is None


def test_a_topic_of_a_filter_that_an_earlier_one_has_is_said_and_marked() -> None:
    first = FILTER.format("a=1", "<PartitionTopic>p.*</PartitionTopic>")
    second = FILTER.format("a=2", "<PartitionTopic>p.T</PartitionTopic><PartitionTopic>q.T</PartitionTopic>")
    filters = (first + second).replace("</Filters><Filters>", "")
    configuration = interpret(parse(read(filters), "f.xml", {})).configuration
    (told,) = configuration.ignored
    assert (told.path, told.reason) == (
        "//OpenSplice/Domain/Filters/Filter/PartitionTopic",
        "an earlier Filter applies to all of it",
    )
    assert [each.value for each in configuration.settings if each.ignored] == ["p.T"]
    lines = read(filters).decode().split("\n")
    for each in configuration.settings:
        if each.path.endswith("PartitionTopic"):
            assert lines[each.origin.line - 1][each.origin.column - 1 :].startswith(str(each.value))
