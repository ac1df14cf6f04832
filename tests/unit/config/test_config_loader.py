from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from engine.config import ConfigError, Configuration, ProblemKind, interpret, load, parse
from engine.config.fleet import load_fleet
from engine.config.settings import Expiry, FailureAction, StoreMode, Verbosity
from engine.core.name_spaces import Alignee, Durability, Element, MergeRule, MergeType

SAMPLES = Path(__file__).parents[3] / "samples" / "three-nodes"
NAME_SPACES = """<NameSpaces><NameSpace name="all"><Partition>*</Partition></NameSpace>
<Policy nameSpace="*" durability="Durable" aligner="true" alignee="Initial"/></NameSpaces>"""


def file_with(service: str = NAME_SPACES, domain: str = "", rest: str = "", name: str = "durability") -> str:
    return (
        f"<OpenSplice><Domain><Name>d</Name>{domain}</Domain>\n"
        f'<DurabilityService name="{name}">\n{service}</DurabilityService>{rest}</OpenSplice>'
    )


def read(text: str, environ: dict[str, str] | None = None, **arguments: str) -> Configuration:
    interpreted = interpret(parse(text.encode(), "f.xml", environ or {}), **arguments)
    assert not interpreted.problems, interpreted.problems
    return interpreted.configuration


def check_problem(
    text: str, kind: ProblemKind, words: str, place: str = "", environ: dict[str, str] | None = None
) -> None:
    """Exactly one problem, whose underlined text is `place`."""
    document = parse(text.encode(), "f.xml", environ or {})
    (problem,) = interpret(document).problems
    assert (problem.kind, bool(re.search(words, f"{problem.message} {problem.hint}"))) == (kind, True), (
        problem
    )
    assert problem.span is not None
    assert place in document.source.text(problem.span)
    assert (problem.line, problem.column) == document.source.position(problem.span.start)


def test_defaults_are_those_of_the_documentation() -> None:
    configuration = read(file_with())
    assert configuration.domain.role == "DefaultRole"
    assert configuration.network.heartbeat == Expiry(10.0, 0.2)
    assert configuration.network.heartbeat.period_s == 2.0
    assert configuration.network.initial_discovery_period_s == 3.0
    assert configuration.alignment.combine_initial_s == 0.5
    assert configuration.alignment.combine_operational_s == 0.01
    assert configuration.domain.service_terminate_period_s == 10.0
    assert configuration.entity_names.partition == "durabilityPartition"
    assert configuration.persistent is None
    assert configuration.client_durability is None
    assert configuration.tracing.output_file is None
    assert configuration.tracing.verbosity is Verbosity.INFO
    assert configuration.wait_for_attachment is None
    assert configuration.name_spaces.policies[0].master_priority == 255
    assert all(s.origin.is_default for s in configuration.settings if "Tracing" in s.path)


EVERYTHING = file_with(
    service="""<ClientDurability><EntityNames><Publisher>cp</Publisher></EntityNames></ClientDurability>
        <Watchdog deadlockDetection="TRUE"><Scheduling>
          <Priority priority_kind="absolute">7</Priority><Class>realtime</Class></Scheduling></Watchdog>
        <Network latency_budget="0.5" transport_priority="3">
          <Heartbeat transport_priority="9"><ExpiryTime update_factor="0.5">4</ExpiryTime></Heartbeat>
          <InitialDiscoveryPeriod>0.1</InitialDiscoveryPeriod>
          <Alignment latency_budget="0.25"><TimeAlignment>False</TimeAlignment>
            <RequestCombinePeriod><Initial>1</Initial><Operational>2</Operational></RequestCombinePeriod>
            <Partition Name="p" alignment_priority="4"/><TimeToWaitForAligner>0.0</TimeToWaitForAligner>
          </Alignment>
          <WaitForAttachment maxWaitCount="5"><ServiceName>ddsi2</ServiceName><ServiceName>x</ServiceName>
          </WaitForAttachment></Network>
        <MasterElection><WaitTime>1.5</WaitTime></MasterElection>
        <Persistent><StoreDirectory>/d</StoreDirectory><StoreSessionTime>1</StoreSessionTime>
          <StoreMode>kv</StoreMode><KeyValueStore type="SQLITEMT"><StorageParameters>a;b</StorageParameters>
          <Compression algorithm="zlib"/></KeyValueStore><StoreOptimizeInterval>12</StoreOptimizeInterval>
        </Persistent>
        <NameSpaces><NameSpace name="n"><Partition>p</Partition><PartitionTopic>a.b.c</PartitionTopic>
          <Partition/></NameSpace>
        <Policy nameSpace="n" durability="volatile" aligner="False" alignee="on_request"
          delayedAlignment="true" equalityCheck="TRUE" masterPriority="0x10"><Merge type="catchup" scope="A"/>
          <Merge type="Replace" scope="*"/></Policy></NameSpaces>
        <EntityNames><Partition>dp</Partition></EntityNames>
        <Tracing synchronous="true"><OutputFile/><Timestamps absolute="false">FALSE</Timestamps>
          <Verbosity>finer</Verbosity></Tracing>""",
    domain="""<Id>7</Id><Role>R</Role><Service name="s" enabled="false"><Command>x</Command>
          <FailureAction>kill</FailureAction></Service><BuiltinTopics enabled="false"/>
          <DurablePolicies><Policy obtain="o.*" cache="false"/></DurablePolicies>
          <Filters><Filter content="a=1"><PartitionTopic>p.t</PartitionTopic></Filter></Filters>""",
    rest="""<DDSI2Service name="s"><General>
          <NetworkInterfaceAddress>off</NetworkInterfaceAddress></General></DDSI2Service>
          <DDSI2EService name="t"><General><NetworkInterfaceAddress>10.0.0.1</NetworkInterfaceAddress>
          <AllowMulticast>SPDP</AllowMulticast></General><Discovery><Peers><Peer Address="a"/><Group>
          <Peer Address="b"/></Group></Peers></Discovery></DDSI2EService>""",
)


def test_every_part_of_the_service_is_read() -> None:
    text = EVERYTHING
    c = read(text)
    assert (c.domain.id, c.domain.role, c.domain.builtin_topics) == (7, "R", False)
    service = c.domain.service("s")
    assert service is not None
    assert (service.enabled, service.failure_action) == (False, FailureAction.KILL)
    assert c.client_durability is not None
    assert (c.client_durability.publisher, c.client_durability.partition) == ("cp", "dp")
    assert c.watchdog.deadlock_detection
    assert (c.watchdog.scheduling.priority, c.watchdog.scheduling.is_absolute) == (7, True)
    assert c.network.heartbeat == Expiry(4.0, 0.5)
    assert (c.network.heartbeat_priority, c.alignment.transport_priority) == (9, 3)
    assert (c.alignment.combine_initial_s, c.alignment.combine_operational_s) == (1.0, 2.0)
    assert (c.alignment.time_alignment, c.alignment.wait_for_aligner_s) == (False, 0.0)
    assert c.wait_for_attachment is not None
    assert (c.wait_for_attachment.max_wait_count, c.wait_for_attachment.service_names) == (5, ("ddsi2", "x"))
    assert c.master_election_wait_s == 1.5
    assert c.persistent is not None
    assert (c.persistent.mode, c.persistent.optimize_interval) == (StoreMode.KV, 12)
    (name_space,) = c.name_spaces.name_spaces
    assert name_space.elements == (Element("", "*"), Element("a.b", "c"), Element("p", "*"))
    (policy,) = c.name_spaces.policies
    assert (policy.durability, policy.aligner, policy.alignee) == (
        Durability.VOLATILE,
        False,
        Alignee.ON_REQUEST,
    )
    assert (policy.delayed_alignment, policy.equality_check, policy.master_priority) == (True, True, 16)
    assert policy.merges == (MergeRule(MergeType.CATCHUP, "A"), MergeRule(MergeType.REPLACE, "*"))
    assert (c.tracing.output_file, c.tracing.verbosity) == ("durability.log", Verbosity.FINER)
    assert (c.tracing.synchronous, c.tracing.has_timestamps, c.tracing.absolute_timestamps) == (
        True,
        False,
        False,
    )
    assert (c.ddsi.network_interface, c.ddsi.allow_multicast, c.ddsi.peers) == (
        "10.0.0.1",
        "spdp",
        ("a", "b"),
    )
    assert c.durable_policies[0].obtain == "o.*"
    assert c.filters[0].partition_topics == ("p.t",)


def test_settings_know_their_origin_and_their_raw_text() -> None:
    configuration = read(file_with(domain="<Role>${R:-x}</Role>"), role="y")
    role = configuration.setting("//OpenSplice/Domain/Role")
    assert role is not None
    assert (role.value, str(role.origin)) == ("y", "role override")
    configuration = read(file_with(domain="\n<Role>${R:-x}</Role>"))
    role = configuration.setting("//OpenSplice/Domain/Role")
    assert role is not None
    assert (role.value, role.raw, str(role.origin)) == ("x", "${R:-x}", "f.xml:2:7")


def test_the_first_of_repeated_elements_counts_and_is_reported() -> None:
    check_problem(
        file_with(domain="<Role>a</Role><Role>b</Role>"), ProblemKind.REPEATED_ELEMENT, "only once", "Role"
    )
    document = parse(file_with(domain="<Role>a</Role><Role>b</Role>").encode(), "f.xml", {})
    assert interpret(document).configuration.domain.role == "a"


@pytest.mark.parametrize(
    ("text", "kind", "words", "place"),
    [
        (file_with(NAME_SPACES + "<Presistent/>"), ProblemKind.UNKNOWN_ELEMENT, "mean Persistent", "Presist"),
        (file_with(NAME_SPACES + "<tracing/>"), ProblemKind.UNKNOWN_ELEMENT, "mean Tracing", "tracing"),
        (
            file_with(NAME_SPACES + "<Verbosity/>"),
            ProblemKind.UNKNOWN_ELEMENT,
            r"belongs in .*/Tracing$",
            "Verb",
        ),
        (file_with(NAME_SPACES.replace("alignee", "aligneee")), ProblemKind.UNKNOWN_ATTRIBUTE, "", ""),
        (
            file_with(NAME_SPACES.replace('alignee="Initial"', "")),
            ProblemKind.MISSING_ATTRIBUTE,
            "alignee",
            "Poli",
        ),
        (file_with(NAME_SPACES.replace('"true"', '"yes"')), ProblemKind.BAD_VALUE, "true or false", "yes"),
        (file_with(NAME_SPACES.replace("Initial", "Eager")), ProblemKind.BAD_VALUE, "none of", "Eager"),
        (
            file_with(NAME_SPACES.replace('"Initial"', '"Initial" masterPriority="300"')),
            ProblemKind.OUT_OF_RANGE,
            "between 0 and 255",
            "300",
        ),
        (file_with(domain="<Id>231</Id>"), ProblemKind.OUT_OF_RANGE, "230", "231"),
        (file_with(domain="<Id>x</Id>"), ProblemKind.BAD_VALUE, "whole number", "x"),
        (file_with(domain="<Id/>"), ProblemKind.EMPTY_VALUE, "default, 0", "<Id/>"),
        (file_with(domain="<Id>${UNSET}</Id>"), ProblemKind.BAD_VALUE, r"from '\$\{UNSET\}'", "${UNSET}"),
        (file_with(domain="<Id>${V:?say which}</Id>"), ProblemKind.EXPANSION, "say which", "${V:?say which}"),
        (file_with(NAME_SPACES + "words"), ProblemKind.STRAY_TEXT, "words", "words"),
        (file_with(""), ProblemKind.MISSING_ELEMENT, "NameSpaces", "DurabilityService"),
        (file_with(name="other"), ProblemKind.SERVICE, "'other'", "DurabilityService"),
        (
            file_with("<NameSpaces><NameSpace name='a'><Partition>a</Partition></NameSpace></NameSpaces>"),
            ProblemKind.NO_POLICY,
            "'a'",
            "NameSpace",
        ),
        (
            file_with(NAME_SPACES.replace("<Partition>*</Partition>", "")),
            ProblemKind.EMPTY_NAME_SPACE,
            "all",
            "Name",
        ),
        (
            file_with(NAME_SPACES + "<Persistent><StoreDirectory/></Persistent>"),
            ProblemKind.EMPTY_VALUE,
            "stored",
            "Store",
        ),
    ],
)
def test_what_no_node_should_start_on_is_a_problem_with_a_place(
    text: str, kind: ProblemKind, words: str, place: str
) -> None:
    if kind is ProblemKind.UNKNOWN_ATTRIBUTE:
        kinds = {problem.kind for problem in interpret(parse(text.encode(), "f.xml", {})).problems}
        assert kinds == {ProblemKind.UNKNOWN_ATTRIBUTE, ProblemKind.MISSING_ATTRIBUTE}
        return
    check_problem(text, kind, words, place)


def two_name_spaces(left: str, right: str, second: str = "b") -> str:
    return file_with(
        f"""<NameSpaces><NameSpace name="a">{left}</NameSpace><NameSpace name="{second}">{right}</NameSpace>
        <Policy nameSpace="*" durability="Durable" aligner="true" alignee="Initial"/></NameSpaces>"""
    )


@pytest.mark.parametrize(
    ("left", "right", "witness"),
    [
        ("<Partition>p*</Partition>", "<Partition>*q</Partition>", "pq"),
        ("<PartitionTopic>a.t</PartitionTopic>", "<Partition>a</Partition>", "a.t"),
        ("<Partition>s</Partition><Partition>t</Partition>", "<Partition>s</Partition>", "s."),
    ],
)
def test_overlapping_name_spaces_are_refused_with_a_witness(left: str, right: str, witness: str) -> None:
    text = two_name_spaces(left, right)
    check_problem(text, ProblemKind.OVERLAP, re.escape(witness), "NameSpace")


def test_disjoint_name_spaces_co_exist() -> None:
    configuration = read(two_name_spaces("<Partition>p1</Partition>", "<Partition>p2</Partition>"))
    assert [each.name for each in configuration.name_spaces.name_spaces] == ["a", "b"]


def test_one_name_for_two_name_spaces_is_refused() -> None:
    text = two_name_spaces("<Partition>p</Partition>", "<Partition>q</Partition>", second="a")
    check_problem(text, ProblemKind.DUPLICATE_NAME, "line 3", "NameSpace")


def test_a_blank_topic_is_refused_wherever_it_stands() -> None:
    text = two_name_spaces(
        "<Partition>p</Partition><PartitionTopic>q.</PartitionTopic>", "<Partition>r</Partition>"
    )
    check_problem(text, ProblemKind.BLANK_TOPIC, "blank topic", "q.")


def test_built_in_topics_are_set_apart() -> None:
    text = two_name_spaces("<Partition>__BUILT-IN PARTITION__</Partition>", "<Partition>*</Partition>")
    name_spaces = read(text).name_spaces
    assert [each.name for each in name_spaces.builtin] == ["a"]
    assert [each.name for each in name_spaces.name_spaces] == ["b"]


def test_the_deprecated_notation_gets_a_policy_of_its_own() -> None:
    service = """<NameSpaces>
      <NameSpace durabilityKind="Transient" alignmentKind="Lazy"><Partition>p</Partition></NameSpace>
      <NameSpace><Partition>q</Partition></NameSpace></NameSpaces>"""
    name_spaces = read(file_with(service)).name_spaces
    assert [each.name for each in name_spaces.name_spaces] == ["NoName1", "NoName0"]
    lazy, plain = name_spaces.policies
    assert (lazy.name_space, lazy.durability, lazy.alignee) == ("NoName1", Durability.TRANSIENT, Alignee.LAZY)
    assert not lazy.aligner
    assert (plain.alignee, plain.aligner) == (Alignee.INITIAL, True)


def test_unknown_elements_of_other_services_are_none_of_our_business() -> None:
    read(file_with(domain="<Novelty/>", rest='<TunerService name="t"><X/></TunerService><Other a="b"/>'))


def test_a_file_may_configure_several_services() -> None:
    other = f'<DurabilityService name="two"><Nonsense/>{NAME_SPACES}</DurabilityService>'
    assert read(file_with(rest=other)).service == "durability"
    twice = file_with(rest=f'<DurabilityService name="durability">{NAME_SPACES}</DurabilityService>')
    check_problem(twice, ProblemKind.SERVICE, "2 DurabilityService", "DurabilityService")


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.xml"
    path.write_text(file_with(NAME_SPACES.replace("true", "yes") + "<Oops/>", domain="<Id>x</Id>"))
    with pytest.raises(ConfigError) as caught:
        load(f"file://{path}", {})
    assert [problem.kind for problem in caught.value.problems] == [
        ProblemKind.BAD_VALUE,
        ProblemKind.BAD_VALUE,
        ProblemKind.UNKNOWN_ELEMENT,
    ]
    assert (caught.value.path, caught.value.line) == (str(path), 1)
    assert "\n" in str(caught.value)


def test_another_root_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        interpret(parse(b"<CycloneDDS/>", "f.xml", {}))
    assert caught.value.problems[0].kind is ProblemKind.ROOT


def test_messages_are_safe_for_a_terminal() -> None:
    document = parse(file_with(domain="<Id>\u009b31m\u202e</Id>").encode(), "f.xml", {})
    (problem,) = interpret(document).problems
    assert str(problem).isprintable()


def test_the_sample_fleet_loads() -> None:
    fleet = load_fleet(SAMPLES / "fleet.toml")
    priorities = {}
    for node in fleet.nodes:
        configuration = load(node.file, node.environ({"OSPLTOOL_DEMO_DIR": "/d"}), role=node.role)
        priorities[node.name] = configuration.name_spaces.policies[0].master_priority
        assert configuration.persistent is not None
        assert configuration.persistent.store_directory == f"/d/{node.name}/store"
    assert priorities == {"n1": 200, "n2": 100, "n3": 50}


@pytest.mark.parametrize(
    "service",
    [
        NAME_SPACES.replace("<Partition>*<", f"<Partition>{'x' * 257}<"),
        NAME_SPACES.replace('nameSpace="*"', f'nameSpace="{"?" * 257}"'),
        NAME_SPACES.replace('name="all"', f'name="{"n" * 257}"'),
        NAME_SPACES.replace(
            "</NameSpaces>",
            '<Policy nameSpace="*" durability="Durable" aligner="true" alignee="Lazy"/>' * 100
            + "</NameSpaces>",
        ),
        NAME_SPACES.replace("<Partition>*</Partition>", "<Partition>p</Partition>" * 2001),
        NAME_SPACES.replace("<Partition>*</Partition>", f"<Partition>{'*a' * 100}</Partition>" * 100),
    ],
)
def test_more_than_can_be_compared_is_refused_before_it_is_compared(service: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        interpret(parse(file_with(service).encode(), "f.xml", {}))
    assert caught.value.problems[0].kind is ProblemKind.TOO_LARGE
    assert time.process_time() - began < 2.0
