"""Settings of Cyclone DDS and QoS profiles: what the rules say, and what Cyclone DDS 11.0.1 says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.dds import trial
from ospltool.check import cyclone, profiles
from ospltool.check.cyclone import CycloneItem
from ospltool.check.inputs import DeploymentInput, NodeInput
from ospltool.check.registry import RuleInput
from ospltool.check.rule_book import all_rules
from ospltool.check.runner import Choice, examine, run
from ospltool.cli.app import main
from ospltool.diagnostics.model import Finding, Severity, Target
from tests.check.asking_cyclone import MARK, refusals

SETTINGS = """<CycloneDDS>
  <Domain Id="any">
    <General>
      <Interfaces><NetworkInterface name="lo"/></Interfaces>
      <AllowMulticast>spdp</AllowMulticast>
      <MaxMessageSize>14 kB</MaxMessageSize>
      <FragmentSize>8 kB</FragmentSize>
    </General>
    <Discovery>
      <LeaseDuration>10 s</LeaseDuration>
      <Tag>a</Tag>
    </Discovery>
    <Internal><HeartbeatInterval max="inf">100 ms</HeartbeatInterval></Internal>
  </Domain>
</CycloneDDS>
"""
PROFILES = """<dds>
  <qos_library name="l">
    <qos_profile name="p">
      <datawriter_qos>
        <durability><kind>TRANSIENT_LOCAL_DURABILITY_QOS</kind></durability>
        <history><kind>KEEP_LAST_HISTORY_QOS</kind><depth>5</depth></history>
        <lifespan><duration><sec>5</sec><nanosec>DURATION_INFINITE_NSEC</nanosec></duration></lifespan>
      </datawriter_qos>
      <publisher_qos><partition><name><element>a</element></name></partition></publisher_qos>
    </qos_profile>
  </qos_library>
</dds>
"""
MULTICAST, TAG, LEASE = (
    "<AllowMulticast>spdp</AllowMulticast>",
    "<Tag>a</Tag>",
    "<LeaseDuration>10 s</LeaseDuration>",
)
ELEMENT = "<element>a</element>"
LIFESPAN = "<lifespan><duration><sec>5</sec><nanosec>DURATION_INFINITE_NSEC</nanosec></duration>"
CASES = [
    ("DUR750", MULTICAST, "<«AllowMulticasts»/>", "<allowmulticast>spdp</allowmulticast>"),
    ("DUR750", TAG, "<«P»>auto</P>", "<Pa>auto</Pa>"),
    ("DUR750", '<Domain Id="any">', '<Domain «Name»="any">', '<Domain id="any">'),
    ("DUR750", "<CycloneDDS>", '<CycloneDDS «version»="1">', '<CycloneDDS xmlns="https://cdds.io/config">'),
    ("DUR750", "  <Domain", "  <«Domian»/><Domain", "  <Domain"),
    ("DUR751", MULTICAST, MULTICAST.replace("spdp", "«spdp,foo»"), MULTICAST.replace("spdp", "asm,SPDP")),
    ("DUR751", MULTICAST, "<AllowMulticast>«spdp, asm»</AllowMulticast>", "<AllowMulticast/>"),
    ("DUR751", MULTICAST, "<DontRoute>«yes»</DontRoute>", "<DontRoute>TRUE</DontRoute>"),
    ("DUR751", "10 s", "«10 sec»", "10s"),
    ("DUR751", "10 s", "«2 hr»", "1 hr"),
    ("DUR751", "14 kB", "«14 kb»", "14KiB"),
    ("DUR751", "14 kB", "«2 GB»", "1 GB"),
    ("DUR751", TAG, "<ParticipantIndex>«-1»</ParticipantIndex>", "<ParticipantIndex>auto</ParticipantIndex>"),
    ("DUR751", TAG, "<Peers><«Peer»/></Peers>", '<Peers><Peer Address="a"/></Peers>'),
    ("DUR751", "<General>", "<General>«text»", "<General>"),
    ("DUR751", 'Id="any"', 'Id="«all»"', 'Id="7"'),
    ("DUR752", TAG, "<Tag>a</Tag><«Tag»>b</Tag>", "<Tag>a</Tag>"),
    (
        "DUR752",
        'max="inf">100 ms</HeartbeatInterval>',
        'max="inf"/><HeartbeatInterval «max»="1 s"/>',
        'max="inf"/><HeartbeatInterval min="1 ms"/>',
    ),
    ("DUR753", TAG, "</Discovery><«TCP»/><Discovery>", TAG),
    (
        "DUR753",
        "<Internal>",
        "<Internal><«UnicastResponseToSPDPMessages»>true</UnicastResponseToSPDPMessages>",
        "<Internal>",
    ),
    ("DUR753", MULTICAST, "<Transport>«tcp»</Transport>", "<Transport>udp</Transport>"),
    ("DUR754", TAG, "<«InitialLocatorPruneDelay»>inf</InitialLocatorPruneDelay>", TAG),
    ("DUR754", TAG, "<SPDPInterval>«default»</SPDPInterval>", "<SPDPInterval>1 s</SPDPInterval>"),
    ("DUR755", MULTICAST, "<«NetworkInterfaceAddress»>lo</NetworkInterfaceAddress>", MULTICAST),
    ("DUR755", "  <Domain", "  <«Tracing»/><Domain", "  <Domain"),
    ("DUR755", "<Internal>", "<«SharedMemory»><Enable>true</Enable></SharedMemory><Internal>", "<Internal>"),
    ("DUR756", LEASE, "<«Lease»>10 s</Lease>", LEASE),
    ("DUR757", "10 s", "«10»", "0"),
    ("DUR758", "</Domain>", '</Domain>«<Domain Id="7">»</Domain>', "</Domain>"),
    ("DUR759", 'name="lo"', 'name="«none7»"', 'address="127.0.0.1"'),
    ("DUR760", ">spdp<", ">«false»<", ">true<"),
    ("DUR760", 'name="lo"/>', 'name="lo" multicast="«false»"/>', 'name="lo"/>'),
    ("DUR760", 'name="lo"/>', 'name="lo" allow_multicast="«false»"/>',
     'name="lo" allow_multicast="false"/><NetworkInterface autodetermine="true"/>'),
    ("DUR761", "8 kB", "«16 kB»", "14 kB"),
    ("DUR762", "<Internal>", '<Internal><SocketRec min="«1 GB»"/>', '<Internal><SocketRec min="8 kB"/>'),
    ("DUR763", "<Internal>", "<Tracing><Out>«/none/7»</Out></Tracing><Internal>",
     "<Tracing><Out>/tmp/7</Out></Tracing><Internal>"),
    ("DUR766", 'name="lo"/>', 'name="«lo»" autodetermine="true"/>', 'name="lo"/>'),
    ("DUR768", "</Interfaces>", '<«PubSubMessageExchange» type="none7"/></Interfaces>', "</Interfaces>"),
    ("DUR770", "<history>", "<«histroy»/><history>", "<history>"),
    ("DUR770", "<history>", "<«partition»/><history>", "<history>"),
    ("DUR770", "<qos_library ", '<qos_library «color»="red" ', "<qos_library "),
    ("DUR770", "<depth>5</depth>", "<«deep»>5</deep>", "<depth>5</depth>"),
    ("DUR771", "KEEP_LAST_HISTORY_QOS", "«KEEP_LAST»", "KEEP_ALL_HISTORY_QOS"),
    ("DUR771", "<depth>5", "<depth>«five»", "<depth>-1"),
    ("DUR771", LIFESPAN, "<«lifespan»>", LIFESPAN.replace("5", "DURATION_INFINITE_SEC")),
    ("DUR771", ELEMENT, "«a»", ELEMENT),
    ("DUR771", 'name="p"', 'name="p" «base_name»="l::q"', 'name="q"'),
    ("DUR771", ' name="l"', "", ' name="m"'),
    ("DUR772", "TRANSIENT_LOCAL_DURABILITY_QOS", "«PERSISTENT_DURABILITY_QOS»", "VOLATILE_DURABILITY_QOS"),
    ("DUR772", "TRANSIENT_LOCAL_DURABILITY_QOS", "«TRANSIENT_DURABILITY_QOS»", "VOLATILE_DURABILITY_QOS"),
    ("DUR773", "<qos_library", '<«qos_profile» name="p"/><qos_library', "<qos_library"),
]  # fmt: skip
REFUSING = {"DUR750", "DUR751", "DUR752", "DUR753", "DUR770", "DUR771", "DUR772", "DUR773"}
"""Rules about what Cyclone DDS 11.0.1 refuses."""


def checked(text: str) -> tuple[Finding, ...]:
    """All findings of one file."""
    examined = examine(DeploymentInput((NodeInput("c.xml", {}, text=text.encode()),)))
    return run([examined], Choice()).diagnostics


@pytest.mark.parametrize(
    ("code", "old", "bad", "good"), CASES, ids=[f"{c[0]}-{n}" for n, c in enumerate(CASES)]
)
def test_a_rule_points_at_what_is_bad_and_accepts_what_is_good(
    code: str, old: str, bad: str, good: str
) -> None:
    clean = SETTINGS if all_rules()[code].takes is RuleInput.CYCLONE else PROFILES
    assert old in clean
    marked = bad.partition("«")[2].partition("»")[0]
    found = [
        each
        for each in checked(clean.replace(old, bad.replace("«", "").replace("»", ""), 1))
        if each.code == code
    ]
    assert found
    if marked:
        source, span = found[0].place.source, found[0].place.span
        assert source is not None
        assert span is not None
        assert source.text(span) == marked.partition("«")[0]
    assert not [each for each in checked(clean.replace(old, good, 1)) if each.code == code]
    assert all(each.message.isprintable() and not each.message.endswith(".") for each in found)


@pytest.mark.parametrize(("kind", "clean"), [("settings", SETTINGS), ("profiles", PROFILES)])
def test_what_rules_call_refused_is_refused_by_cyclone(kind: str, clean: str) -> None:
    takes = RuleInput.CYCLONE if kind == "settings" else RuleInput.PROFILES
    cases = [case for case in CASES if all_rules()[case[0]].takes is takes]
    plain = [
        clean.replace(old, each.replace("«", "").replace("»", ""), 1)
        for _, old, bad, good in cases
        for each in (bad, good)
    ]
    answers = refusals(kind, [each.replace("</CycloneDDS>", f"<{MARK}/></CycloneDDS>") for each in plain])
    for (code, _, bad, good), refused, accepted in zip(cases, answers[::2], answers[1::2], strict=True):
        assert bool(refused) == (code in REFUSING), (code, bad, refused)
        assert not accepted, (code, good)


@pytest.mark.parametrize(
    ("old", "new", "advice"),
    [
        ("<Tag>", "<MaxMessageSize>14 kB</MaxMessageSize><Tag>", "it belongs in General"),
        ("<Internal>", "<Internal><LeaseDurations/>", "did you mean LeaseDuration?"),
        ("<Internal>", "<Peers/><Internal>", "it belongs in Discovery"),
        ('name="lo"', 'name="lo" maxretries="1"', "it belongs in Internal/MultipleReceiveThreads"),
    ],
)  # fmt: skip
def test_an_unknown_setting_is_named_with_its_place_before_one_like_it(
    old: str, new: str, advice: str
) -> None:
    found = [each for each in checked(SETTINGS.replace(old, new, 1)) if each.code == "DUR750"]
    assert [each.advice for each in found] == [advice]


def test_clean_files_have_no_finding_and_cyclone_accepts_them() -> None:
    assert checked(SETTINGS) == ()
    assert checked(PROFILES) == ()
    marked = SETTINGS.replace("</CycloneDDS>", f"<{MARK}/></CycloneDDS>")
    assert refusals("settings", [marked]) == refusals("profiles", [PROFILES]) == [[]]


def test_every_rule_has_its_cases() -> None:
    inputs = (RuleInput.CYCLONE, RuleInput.PROFILES)
    every = {code for code, each in all_rules().items() if each.takes in inputs}
    assert {case[0] for case in CASES} == every - {"DUR764", "DUR765"}  # these are what Cyclone DDS says


def domains() -> Iterator[tuple[bool, str]]:
    """Settings with which Cyclone DDS makes no domain, or makes one."""
    lo = '<NetworkInterface name="lo"/>'
    lines = (Path(__file__).parent / "cyclone_domains.txt").read_text().splitlines()
    for mark, _, inner in (line.partition(" ") for line in lines if line[0] != "#"):
        given = inner.replace("$LO", lo).replace("$A", '<NetworkPartition Name="a" Address="239.255.0.4"/>')
        first = "" if "<Interfaces>" in inner else f"<General><Interfaces>{lo}</Interfaces></General>"
        yield mark == "-", f'<CycloneDDS><Domain Id="59">{first}{given}</Domain></CycloneDDS>'


def test_settings_with_which_cyclone_makes_no_domain_are_found_and_no_others() -> None:
    cases = list(domains())
    apart = []
    for (is_refused, text), said in zip(cases, refusals("domains", [text for _, text in cases]), strict=True):
        assert bool(said) == is_refused, (text, said)
        found = checked(text)
        ours = [each.code for each in found if each.severity is Severity.ERROR]
        ours += [each.code for each in found if each.code in ("DUR759", "DUR768")]
        if bool(ours) != is_refused:
            apart.append((text, ours, said))
    assert not apart


LO = '<General><Interfaces><NetworkInterface name="lo"/></Interfaces></General>'
WRITTEN = [
    ("++", "<CycloneDDS><Domain>%</Domain></CycloneDDS>"),
    ("++", '<cyclonedds><domain iD="ANY">%<DISCOVERY><tag>a</tag></DISCOVERY></domain></cyclonedds>'),
    ("++", '\n  <?xml version="1.0"?>\n<CycloneDDS><Domain>%</Domain></CycloneDDS>'),
    ("++", '<!-- a -- b --><?xml version="1.0"?><CycloneDDS><Domain>%</Domain></CycloneDDS><!-- c -->'),
    ("++", "<!DOCTYPE CycloneDDS>\n<CycloneDDS><Domain>%</Domain></CycloneDDS>"),
    (
        "++",
        '<?xml version="1.0"?><!DOCTYPE a SYSTEM\n"b"><!FOO a><CycloneDDS><Domain>%</Domain></CycloneDDS>',
    ),
    ("+", "<!DOCTYPE a []><CycloneDDS><!DOCTYPE b><Domain>%</Domain></CycloneDDS><!DOCTYPE c>"),
    ("--", '<!DOCTYPE a [<!ENTITY b "c">]><CycloneDDS><Domain>%</Domain></CycloneDDS>'),
    ("--", '<!DOCTYPE a SYSTEM "b>c"><CycloneDDS><Domain>%</Domain></CycloneDDS>'),
    ("-+", "<CycloneDDS><Domain>%<Discovery><Lea>9 s</Lea></Discovery></Domain></CycloneDDS>"),
    ("-+", "<CycloneDDS><Dom>%</Dom></CycloneDDS>"),
    ("-+", "<CycloneDDS><Domain>%<Internal><SocketRec mi='1 kB'/></Internal></Domain></CycloneDDS>"),
    ("-+", "<CycloneDDS><Domain>%<Discovery><Tag>a</></></Domain></>"),
    ("-+", "<CycloneDDS><Domain>%</Domain></CycloneDDS>\n<Tr><Out>/dev/null</Out></Tr>"),
    ("-+", "<CycloneDDS><Domain>%</Domain></CycloneDDS>,\n"),
    ("-+", "<Domain id='any'>%</><Disc><Tag>a</></>, <Disc><Tag>b</></>,"),
    ("-+", "%<Tracing/>"),
    ("--", "<CycloneDDS><Domain>%</domain></CycloneDDS>"),
    ("--", "<CycloneDDS><Domain>%</Domain></CycloneDDS>, /none/7.xml"),
    ("--", "<CycloneDDS><Domain>%</Domain></CycloneDDS><Foo/>"),
    ("--", "<Dom>%</Dom>"),
    ("--", "<CycloneDDS><Domain>%<Discovery><Tag>a</Tag><Tag>b</Tag></Discovery></Domain></CycloneDDS>"),
    ("-", "\ufeff<CycloneDDS><Domain>%</Domain></CycloneDDS>"),
]
"""Texts that Cyclone DDS takes (+) or not (-) as a file, and as the variable; % is the loopback interface."""


def test_files_and_the_variable_are_read_as_cyclone_reads_them(tmp_path: Path) -> None:
    marks, texts = zip(*((marks, text.replace("%", LO)) for marks, text in WRITTEN), strict=True)
    of_files, of_texts = refusals("files", texts), refusals("domains", texts)
    path = tmp_path / "c.xml"
    apart = []
    for written, text, in_file, in_text in zip(marks, texts, of_files, of_texts, strict=True):
        path.write_text(text)
        files = run([examine(DeploymentInput((NodeInput(str(path), {}),)))], Choice()).diagnostics
        for mark, said, found in zip(written, (in_file, in_text), (files, checked(text)), strict=False):
            assert bool(said) == (mark == "-"), (text, said)
            errors = [each for each in found if each.severity is Severity.ERROR]
            is_of_others = any(each.blocks != {Target.OSPLTOOL} and each.code != "DUR006" for each in errors)
            if bool(errors) != bool(said) or is_of_others:
                apart.append((text, said, found))
    assert not apart


@pytest.mark.parametrize(
    ("name", "text", "quote"),
    [
        ("a.sh", "source x.bash\nexport CYCLONEDDS_URI='%'\necho '<a>'\n", '"'),
        ("compose.yml", "environment:\n  - CYCLONEDDS_URI=%\n  - B=<c>\n", '"'),
        ("map.yaml", "data:\n  CYCLONEDDS_URI: >-\n    %\n  other: failed\n", '"'),
        ("a.service", 'Environment="CYCLONEDDS_URI=%"\n', "'"),
        ("Dockerfile", 'FROM a\nENV CYCLONEDDS_URI="%"\nRUN <<E\n', '\\"'),
    ],
)
def test_the_variable_in_a_script_is_read_as_cyclone_reads_it(
    name: str, text: str, quote: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name

    def check_lines(interface: str, *expected: str) -> None:
        given = LO.replace('"lo"', f"{quote}{interface}{quote}")
        path.write_text(text.replace("%", f"<CycloneDDS><Dom>{given}</></>".replace("General", "Gen")))
        main(["check", "--show", "info", "--format", "concise", str(path)])
        lines = capfd.readouterr().out.splitlines()
        line_number = text[: text.index("%")].count("\n") + 1
        starts = [line.removeprefix(f"{path}:{line_number}:").partition("] ")[0] for line in lines]
        assert [start.partition(": ")[2] for start in starts] == list(expected)

    check_lines("lo", "info[DUR756")
    check_lines("none7", "info[DUR756", "warning[DUR759")
    assert main(["explain", str(path)]) == 0
    assert "warning DUR759: this machine has no interface 'none7'" in capfd.readouterr().out


def test_what_a_shell_escapes_is_read_like_the_text_itself() -> None:
    text = "<CycloneDDS><Domain>%</Domain></CycloneDDS>".replace("%", LO)
    assert checked(text.replace('"', '\\"')) == ()
    (found,) = checked(text.replace('"lo"', '\\"none7\\"'))
    assert (found.code, found.place.line) == ("DUR759", 1)


def test_what_cyclone_refuses_first_is_found_before_what_follows_the_end(tmp_path: Path) -> None:
    path = tmp_path / "c.xml"
    path.write_text(f"<CycloneDDS><Domain>{LO}\n## mine\n</Domain></CycloneDDS>\n\nexport A=b\n")
    found = run([examine(DeploymentInput((NodeInput(str(path), {}),)))], Choice()).diagnostics
    assert [(each.code, each.place.line) for each in found] == [("DUR751", 2), ("DUR004", 5)]


def put(item: CycloneItem, value: str) -> str:
    """A file with one setting."""
    element, _, attribute = item.path.partition("@")
    *above, last = element.split("/") if element else ["", ""]
    needed = {
        each.path.rpartition("@")[2]: "a"
        for each in cyclone.table().attributes(element).values()
        if each.occurrence == "required"
    }
    if attribute:
        needed[attribute] = value
    given = "".join(f' {name}="{text}"' for name, text in needed.items())
    inner = f"<{last}{given}>{'' if attribute else value}</{last}>" if last else ""
    for name in reversed([each for each in above if each]):
        own = "".join(f' {each}="a"' for each, one in cyclone.table().attributes(
            "/".join(above[: above.index(name) + 1])).items() if one.occurrence == "required")  # fmt: skip
        inner = f"<{name}{own}>{inner}</{name}>"
    domain = given if not element else ""
    return f"<CycloneDDS><Domain{domain}>{inner}</Domain><{MARK}/></CycloneDDS>"


INTERFACE = "<General><Interfaces><NetworkInterface name='lo'/></Interfaces></General>"
LOG = "<Verbosity>fine</Verbosity>"
NETWORK = (
    "<Partitioning><NetworkPartitions><NetworkPartition Name='a' {}/></NetworkPartitions></Partitioning>"
)
BUFFER = "<SocketReceiveBufferSize min='«1 GB»'/>"
SPELLINGS = [
    ("DUR762", f"<Internal>{BUFFER}</Internal>"),
    ("DUR759", "<General><Interfaces><NetworkI NAME='«none7»'/></Interfaces></General>"),
    ("DUR763", f"<Tracing>{LOG}<OutputFile>«/none/7»</OutputFile></Tracing>"),
    ("DUR751", "<Discovery><SPDPMulticastAddress>«203.0.113.7»</SPDPMulticastAddress></Discovery>"),
    ("", "<General><Transport>«raweth»</Transport></General>"),
    ("DUR762", f"<Unsupported>{BUFFER}</Unsupported>"),
    ("DUR762", f"</Domain><DDSI2E><Internal>{BUFFER}</Internal></DDSI2E><Domain>"),
    ("DUR762", "</Domain><Internal><SocketReceiveBufferSize MIN='«1 GB»'/></Internal><Domain>"),
    ("DUR762", "<Internal><MinimumSocketR>«1 GB»</MinimumSocketR></Internal>"),
    ("DUR762", "<Internal><SocketSendBufferSize min='«1 GB»'/></Internal>"),
    ("DUR762", "<Internal><MinimumSocketSendBufferSize>«1 GB»</MinimumSocketSendBufferSize></Internal>"),
    (
        "DUR759",
        "<General><Interfaces><NetworkInterface name='lo' address='«203.0.113.7»'/></Interfaces></General>",
    ),
    ("DUR759", "</Domain><DDSI2E><General><NetworkInterfaceAddress>«none7»</></></><Domain>"),
    ("DUR759", NETWORK.format("Address='«203.0.113.7»'")),
    ("DUR759", "<Part><NetworkPart><NetworkPart name='a' addr='239.255.0.5,«203.0.113.7»'/></></>"),
    ("DUR759", NETWORK.format("Address='239.255.0.5' Interface='«none7»'")),
    ("DUR759", "<General><NetworkInterfaceAddress>«none7»</NetworkInterfaceAddress></General>"),
    ("DUR759", "<General><MulticastRecv>«203.0.113.7»</MulticastRecv></General>"),
    ("DUR763", f"<Tr>{LOG}<Out>«/tmp»</Out></Tr>"),
    ("DUR763", "</Domain><Tracing><Category>discovery</Category><OutputFile>«/none/7»</></><Domain>"),
    ("", "<Discovery><Tagg>x</Tagg></Discovery>\n<General>\n<«Foo»/></General>"),
]
"""Settings that Cyclone DDS refuses, with the rule that says so without it; one of each first."""


@pytest.mark.parametrize(("code", "marked"), SPELLINGS)
def test_what_cyclone_refuses_here_is_found_and_placed_however_it_is_written(code: str, marked: str) -> None:
    inner = marked if "NetworkI" in marked else INTERFACE + marked
    text = f'<CycloneDDS><Domain Id="93">{inner}</Domain></CycloneDDS>'
    wanted = marked.partition("«")[2].partition("»")[0]
    plain = text.replace("«", "").replace("»", "").encode()
    found = run(
        [examine(DeploymentInput((NodeInput("c.xml", {}, text=plain),)), tries=True)], Choice()
    ).diagnostics
    for each in [code, "DUR764"]:
        places = [one.place for one in found if one.code == each]
        shown = [one.source.text(one.span) for one in places if one.source and one.span]
        assert any(one.endswith(wanted) for one in shown) or not each, found
    assert not {"DUR750", "DUR751"} & {each.code for each in found} or "Foo" in marked or code == "DUR751"


def test_a_trial_harms_no_log_and_tells_what_is_only_remarked(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("of an application")
    files = f"<OutputFile>{log}</OutputFile><PacketCaptureFile>/none/7</PacketCaptureFile>"
    tracing = f"<Tracing>{LOG}{files}</Tracing>"
    text = f'<CycloneDDS><Domain Id="93">{INTERFACE}{tracing}</Domain></CycloneDDS>'.encode()
    given = DeploymentInput((NodeInput("c.xml", {}, text=text),))
    found = run([examine(given, tries=True)], Choice()).diagnostics
    assert [each.message for each in found if each.code == "DUR765"] == [
        "Cyclone DDS says: packet capture disabled: file /none/7 could not be opened for writing"
    ]
    assert "DUR764" not in {each.code for each in found}
    assert log.read_text() == "of an application"


def test_a_trial_that_does_not_end_in_time_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "TRIES_S", 0.001)
    text = f'<CycloneDDS><Domain Id="93">{INTERFACE}</Domain></CycloneDDS>'.encode()
    given = DeploymentInput((NodeInput("c.xml", {}, text=text),))
    found = run([examine(given, tries=True)], Choice()).diagnostics
    assert "is not known" in next(each.message for each in found if each.code == "DUR765")
    assert "DUR764" not in {each.code for each in found}


def test_the_settings_that_a_node_derives_are_tried(clean: str) -> None:
    text = clean.replace(">127.0.0.1<", ">203.0.113.7<").encode()
    given = DeploymentInput((NodeInput("n.xml", {}, text=text),))
    found = run([examine(given, tries=True)], Choice()).diagnostics
    (said,) = [each for each in found if each.code == "DUR764"]
    assert said.message == "Cyclone DDS says: 203.0.113.7: does not match an available interface"
    assert said.place.line == 16


TRIED = (
    *(
        "",
        "zzqq",
        "true",
        "FALSE",
        "1",
        "-1",
        "0",
        "+5",
        "007",
        "1.5",
        "99999999999999999999",
        "10 s",
        "10s",
        "1 ms",
    ),
    *(
        "2 hr",
        "1 day",
        "-1 s",
        "10 S",
        "10 B",
        "3 GiB",
        "1 KiB",
        "1 KB",
        "inf",
        "default",
        "auto",
        "none",
        "any",
    ),
    *("spdp,asm", "a,b", "2 s", "4294967295", "4294967296", "256", "121", "1e3 B", "5 parsecs", " true "),
)
LATER = {"address", "mask", "multicast", "pairs", "peers", "thread"}
"""Types of texts that Cyclone DDS looks at after it has read all settings."""
JUDGED_LATER = {
    *(("General/FragmentSize", value) for value in ("0", "0 B")),
    ("Internal/MonitorPort", "65536"),
    ("Partitioning/NetworkPartitions/NetworkPartition@Address", ""),
}
"""Values that Cyclone DDS reads, and then makes no domain with them, or divides by zero."""


def tried() -> Iterator[tuple[CycloneItem, str]]:
    """Every setting of Cyclone DDS 11 with its words, its bounds, numbers beyond them, and other values."""
    for item in cyclone.table().items.values():
        if item.versions not in ("", "11") or item.instead or item.type in LATER:
            continue
        bounds = [each for each in (item.low, item.high) if each is not None and item.type == "int"]
        near = [f"{bound + step:.0f}" for bound in bounds for step in (-1, 0, 1)]
        values = [*item.words, *near, *TRIED] if item.type != "element" else ["text"]
        yield from ((item, value) for value in values if item.type != "string" or value != " true ")


def test_the_table_agrees_with_cyclone_on_every_setting_and_value() -> None:
    cases = list(tried())
    assert len(cases) > 5_000
    answers = refusals("settings", [put(item, value) for item, value in cases])
    apart = []
    for (item, value), said in zip(cases, answers, strict=True):
        found = checked(put(item, value).replace(f"<{MARK}/>", ""))
        ours = [e.message for e in found if e.severity is Severity.ERROR and e.code != "DUR766"]  # read later
        if bool(ours) != bool(said) and not (
            (item.path, value) in JUDGED_LATER or (item.type == "int" and item.words and is_too_large(value))
        ):
            apart.append((item.path, value, ours, said))
    assert not apart


def is_too_large(value: str) -> bool:
    """Whether a number has more than 32 bits, so that Cyclone DDS may take it for another one."""
    return not -(1 << 31) <= int(value) < 1 << 31


def test_cyclone_refuses_what_the_table_says_it_does_not_have() -> None:
    gone = [item for item in cyclone.table().items.values() if item.versions in ("0.10", "build")]
    assert len(gone) > 15
    for item, said in zip(gone, refusals("settings", [put(item, "") for item in gone]), strict=True):
        assert "unknown element" in " ".join(said), item.path


def profile(entity: str, policy: str, inner: str) -> str:
    content = f"<{entity}><{policy}>{inner}</{policy}></{entity}>"
    return f'<dds><qos_library name="l"><qos_profile name="p">{content}</qos_profile></qos_library></dds>'


def whole(policy: str, changed: str = "", value: str = "") -> str:
    """A policy with all its members, one of them with another value."""
    found = ""
    for name, kind in profiles.POLICIES[policy].items():
        own = name.rstrip("!")
        usual = {"duration": "<sec>1</sec>", "texts": ELEMENT, "text": "QUJD"}.get(str(kind), "1")
        text = kind[0] if isinstance(kind, tuple) else usual
        if own == changed:
            text = f"<sec>{value}</sec>" if kind == "duration" else value
        found += f"<{own}>{text}</{own}>"
    return found


def test_the_policies_agree_with_cyclone_on_every_entity_and_value() -> None:
    texts = []
    for entity, allowed in profiles.ENTITIES.items():
        texts += [profile(entity, policy, whole(policy)) for policy in profiles.POLICIES]
        for policy in set(allowed) & set(profiles.POLICIES):
            texts.append(profile(entity, policy, ""))
            for name, kind in profiles.POLICIES[policy].items():
                values = [
                    "zzqq",
                    "-1",
                    "1.5",
                    "true",
                    "TRUE",
                    "LENGTH_UNLIMITED",
                    "DURATION_INFINITE_SEC",
                    "0x10",
                ]
                if isinstance(kind, tuple):
                    values += kind
                if kind != "text":
                    texts += [
                        profile(entity, policy, whole(policy, name.rstrip("!"), value)) for value in values
                    ]
    assert len(texts) > 700
    apart = []
    for text, said in zip(texts, refusals("profiles", texts), strict=True):
        ours = [each.message for each in checked(text) if each.severity is Severity.ERROR]
        if bool(ours) != bool(said):
            apart.append((text, ours, said))
    assert not apart


def test_exit_codes_and_formats_are_those_of_other_rules(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cyclonedds.xml"
    path.write_text(SETTINGS)
    assert main(["check", str(path)]) == 0
    path.write_text(SETTINGS.replace("10 s", "10 sec"))
    capfd.readouterr()
    assert main(["check", str(path), "--format", "json"]) == 1
    (found,) = json.loads(capfd.readouterr().out)["data"]["diagnostics"]
    start = found["range"]["start"]
    assert (found["code"], start["line"], start["column"]) == ("DUR751", 10, 22)
    assert main(["check", str(tmp_path), "--format", "sarif"]) == 1
    (result,) = json.loads(capfd.readouterr().out)["runs"][0]["results"]
    assert result["ruleId"] == "DUR751"


def test_a_directory_with_settings_of_cyclone_still_has_a_matrix(
    tmp_path: Path, clean: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cyclonedds.xml").write_text(SETTINGS)
    assert main(["check", "--matrix", str(tmp_path)]) == 2
    assert "no configuration of a node" in capfd.readouterr().err
    (tmp_path / "n1.xml").write_text(clean)
    assert main(["check", "--matrix", str(tmp_path)]) == 0
    assert "ships" in capfd.readouterr().out


def test_no_kind_of_durability_is_proposed_that_cyclone_dds_refuses() -> None:
    (found,) = checked(PROFILES.replace("TRANSIENT_LOCAL_DURABILITY_QOS", "TRANSIENTX_DURABILITY_QOS"))
    assert found.message.endswith(" is none of VOLATILE_DURABILITY_QOS, TRANSIENT_LOCAL_DURABILITY_QOS")
    assert found.advice == "did you mean TRANSIENT_LOCAL_DURABILITY_QOS?"
