"""What the schema does not know, where a node tolerates it: it is named, with place and remedy."""

from __future__ import annotations

import pathlib

import pytest

from engine.__main__ import tell_ignored
from engine.config import ConfigError, interpret, load, parse
from engine.tracing.reports import Reporter
from engine.tracing.tracer import Tracer

DDSI = "<DDSI2Service name='ddsi2'><General><NetworkInterfaceAddress>lo</NetworkInterfaceAddress>{}</General>"
FILE = """<OpenSplice>
 <Domain><Name>d</Name>{domain}</Domain>{top}
 <DurabilityService name="durability">
  <NameSpaces><NameSpace name="n"><Partition>p</Partition></NameSpace>
   <Policy nameSpace="n" durability="Durable" aligner="true" alignee="Initial"/></NameSpaces>
 </DurabilityService>
</OpenSplice>"""


def read(domain: str = "", top: str = "") -> bytes:
    return FILE.format(domain=domain, top=top).encode()


@pytest.mark.parametrize(
    ("data", "path", "line", "hint"),
    [
        (read("\n<Roel>r</Roel>"), "Domain/Roel", 3, "did you mean Role?"),
        (read("\n<Password>x</Password>"), "Domain/Password", 3, "did you mean DomainSecret?"),
        (read("\n<Number>7</Number>"), "Domain/Number", 3, "did you mean Id?"),
        (read("\n<leases/>"), "Domain/leases", 3, "did you mean Lease?"),
        (read("<SingleProces>true</SingleProces>"), "Domain/SingleProces", 2, "did you mean SingleProcess?"),
        (
            read("\n<Filter content='a &lt; 1'/>"),
            "Domain/Filter",
            3,
            "it belongs in //OpenSplice/Domain/Filters",
        ),
        (read("<Report appends='true'/>"), "Domain/Report[@appends]", 2, "did you mean append?"),
        (read("\nstray"), "Domain", 3, "takes elements, not text"),
        (read(top="\n<DurabilityServce/>"), "DurabilityServce", 3, "did you mean DurabilityService?"),
        (read(top="\n<Role>r</Role>"), "Role", 3, "it belongs in //OpenSplice/Domain"),
        (
            read(top=DDSI.format("<AllowMultcast>false</AllowMultcast>") + "</DDSI2Service>"),
            "DDSI2Service/General/AllowMultcast",
            2,
            "did you mean AllowMulticast?",
        ),
    ],
)
def test_a_misspelt_element_that_a_node_tolerates_is_named(
    data: bytes, path: str, line: int, hint: str
) -> None:
    found = interpret(parse(data, "f.xml", {}))
    assert found.problems == ()
    (ignored,) = found.configuration.ignored
    assert (ignored.path, ignored.origin.line) == (f"//OpenSplice/{path}", line)
    assert hint in ignored.reason
    assert ignored.is_unknown
    shown = [each.path for each in found.configuration.settings if each.ignored]
    assert shown == ([] if "stray" in data.decode() else [ignored.path])


@pytest.mark.parametrize(
    "top",
    [
        "<Description>text</Description>",
        "<TunerService name='cmsoap'><Server><PortNr>8000</PortNr></Server></TunerService>",
        "<RnRService name='rnr'><Unknown/></RnRService>",
    ],
)
def test_what_is_for_others_is_accepted_in_silence(top: str) -> None:
    found = interpret(parse(read(top=top), "f.xml", {}))
    assert (found.problems, found.configuration.ignored) == ((), ())


def test_a_misspelt_durability_service_is_pointed_at(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "f.xml"
    path.write_bytes(read().replace(b"DurabilityService", b"DurabilityServce"))
    with pytest.raises(ConfigError, match=r"f\.xml:3:3: .*did you mean DurabilityService\?"):
        load(str(path), {})


def test_a_misspelt_required_attribute_is_pointed_at() -> None:
    part = "<Filters><Filter {}='a = 1'><PartitionTopic>p.t</PartitionTopic></Filter></Filters>"
    (problem,) = interpret(parse(read(part.format("contents")), "f.xml", {})).problems
    wanted = "<Filter> lacks the required attribute 'content' (there is 'contents'; did you mean content?)"
    assert str(problem).endswith(wanted)
    (problem,) = interpret(parse(read(part.format("where")), "f.xml", {})).problems
    assert "did you mean" not in str(problem)


def test_a_node_reports_what_is_misspelt_as_a_warning(tmp_path: pathlib.Path) -> None:
    configuration = interpret(parse(read("<SingleProcess>true</SingleProcess>\n<Roel>r</Roel>"), "f.xml", {}))
    tracer = Tracer(lambda: 0, [])
    reporter = Reporter("ospltool", "1", {"OSPL_LOGPATH": str(tmp_path)}, lambda: 0)
    reporter.attach(tracer)
    tell_ignored(configuration.configuration, tracer)
    tracer.close()
    reporter.close()
    log = (tmp_path / "ospl-info.log").read_text("utf-8")
    assert log.count("WARNING") == 2
    assert "f.xml:2: //OpenSplice/Domain/SingleProcess has no effect on this node" in log
    wanted = (
        "f.xml:3: //OpenSplice/Domain/Roel has no effect: <Domain> has no element 'Roel' (did you mean Role?)"
    )
    assert wanted in log
