"""The configuration of persistence services, and the rules about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config.persistence import load
from engine.config.problems import ConfigError
from engine.persistence.core.provider_selection import SynchronizationSettings
from ospltool.check.inputs import gather
from ospltool.check.registry import RuleInput
from ospltool.check.rule_book import all_rules
from ospltool.check.runner import Choice, examine, run

SAMPLE = Path(__file__).parents[2] / "samples" / "redundant-persistence" / "service.xml"
PERIOD = "${SELECTION_PERIOD:-5000}"
STABLE = "<stable_provider_period_count>2"
BOUND = "<max_remote_provider_change_period_count>6"
OLD = "<synchronize_durable_subscription>"
DEPTH = "<depth>1</depth>"
READER = """<datareader_qos>
        <destination_order><kind>BY_SOURCE_TIMESTAMP_DESTINATIONORDER_QOS</kind></destination_order>"""
GROUP = '<persistence_group name="all" filter="*">'
PARTICIPANT = "<participant><domain_id>{}</domain_id></participant>"
SYNCHRONIZED = "<synchronize_durable_subscription>true"
SECOND = "<element><role_name>logger</role_name><topic_name>Observation</topic_name></element>"
TWO = '<dds><persistence_service name="b"/><persistence_service name="c"/></dds>'


def check_case(path: Path, old: str, new: str) -> list[tuple[str, str]]:
    """(code, what is underlined) of every finding in the sample with a piece replaced."""
    text = SAMPLE.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new))
    report = run((examine(each) for each in gather([str(path)], {})), Choice())
    found = []
    for each in report.diagnostics:
        assert each.place.source is not None
        assert each.place.span is not None
        assert each.message.isprintable()
        found.append((each.code, each.place.source.text(each.place.span)))
    return found


CASES = [
    (PERIOD, "1000", []),
    (PERIOD, "0", [("DUR810", "0")]),
    (PERIOD, "5 s", [("DUR810", "5 s")]),
    (PERIOD, "4294967296", [("DUR810", "4294967296")]),
    (PERIOD, "${X:?period}", [("DUR810", "${X:?period}")]),
    (PERIOD, "", [("DUR810", "remote_provider_selection_period")]),
    (PERIOD, "200", [("DUR814", "200")]),
    (STABLE, "<stable_provider_period_count>6", []),
    (STABLE, "<stable_provider_period_count>7", [("DUR811", "6")]),
    (BOUND, "<max_remote_provider_change_period_count>-1", [("DUR810", "-1")]),
    ("<enable>true</enable>", "<enable>maybe</enable>", [("DUR810", "maybe")]),
    ("<enable>true</enable>", "<enable>true</enable><enable>true</enable>", [("DUR810", "true")]),
    (OLD, "<synchronize_data>true</synchronize_data>" + OLD, [("DUR812", "true")]),
    (OLD, "<synchronize_data>false</synchronize_data>" + OLD, []),
    (OLD, "<sync/>" + OLD, [("DUR810", "sync")]),
    (' name="redundant"', "", [("DUR810", "persistence_service")]),
    (DEPTH, "<depth>5</depth>", [("DUR813", GROUP), ("DUR818", "history")]),
    ("KEEP_LAST_HISTORY_QOS", "DDS_KEEP_LAST_HISTORY_QOS", []),
    (
        "KEEP_LAST_HISTORY_QOS",
        "KEEP_FIRST",
        [("DUR813", GROUP), ("DUR818", "history"), ("DUR810", "KEEP_FIRST")],
    ),
    (
        "KEEP_LAST_HISTORY_QOS",
        "KEEP_ALL_HISTORY_QOS",
        [("DUR813", GROUP), ("DUR818", "history")],
    ),
    (READER, "<datareader_qos>", [("DUR813", GROUP)]),
    ("<quorum>1", "<quorum>0", [("DUR810", "0")]),
    ("<quorum>1</quorum>", "", []),
    ("<quorum>1</quorum>", "<retries/>", [("DUR810", "retries")]),
    ("<role_name>logger</role_name>", "", [("DUR810", "element")]),
    (">logger<", "> <", [("DUR810", "role_name")]),
    (">logger<", f">{256 * 'x'}<", [("DUR810", 256 * "x")]),
    ("<element>", SECOND + "<element>", [("DUR810", "element")]),
    ("<durable_subscriptions>", "<participant/><durable_subscriptions>", []),
    ('filter="*"', 'filter="Track,Obs?"', [("DUR815", "<element>")]),
    ('filter="*"', 'filter="Track, Obs*"', []),
    ("<synchronization>", "<filesystem><x/></filesystem><synchronization>", [("DUR817", "x")]),
    ("<synchronization>", "<administration/><synchronization>", [("DUR817", "administration")]),
    ("<synchronization>", "<annotation><documentation>a</documentation></annotation><synchronization>", []),
    (GROUP, '<persistence_group name="all"><filter>Obs*</filter><filter>Track</filter>', []),
    (GROUP, '<persistence_group name="all"><filter>A*</filter>', [("DUR815", "<element>")]),
    (GROUP, f"{GROUP}<filter>Obs*</filter>", [("DUR810", "Obs*")]),
    (
        GROUP,
        '<persistence_group name="all"><filter> </filter>',
        [("DUR815", "<element>"), ("DUR810", "filter")],
    ),
    (GROUP, f"{GROUP}<deny_filter>A*</deny_filter>", [("DUR818", "deny_filter")]),
    (GROUP, f"{GROUP}<content_filter/>", [("DUR818", "content_filter")]),
    ('filter="*"', 'filter="[NO]*,Observation"', [("DUR818", "persistence_group")]),
    (
        "<synchronization>",
        "<participant><domain_id>231</domain_id></participant><synchronization>",
        [("DUR810", "231")],
    ),
    (
        "<synchronization>",
        f"{PARTICIPANT.format(1)}{PARTICIPANT.format(2)}<synchronization>",
        [("DUR810", "2")],
    ),
    (
        "<synchronization>",
        f'{PARTICIPANT.format(1)}<participant domain_id="2"/><synchronization>',
        [("DUR810", "participant")],
    ),
    (
        "</persistence_service>",
        '</persistence_service><persistence_service name="redundant"/>',
        [("DUR810", "persistence_service"), ("DUR818", "persistence_service")],
    ),
    (' filter="*"', ' filter="*" single_publisher="true"', [("DUR817", "single_publisher")]),
    (READER, READER + "<latency_budget/>", [("DUR817", "latency_budget")]),
    (SYNCHRONIZED, SYNCHRONIZED.replace("true", "false"), [("DUR816", "false")]),
]


@pytest.mark.parametrize(("old", "new", "expected"), CASES)
def test_what_is_wrong_is_found_at_its_place(
    tmp_path: Path, old: str, new: str, expected: list[tuple[str, str]]
) -> None:
    assert check_case(tmp_path / "f.xml", old, new) == expected


def test_every_rule_about_persistence_services_has_its_case() -> None:
    codes = {code for code, each in all_rules().items() if each.takes is RuleInput.PERSISTENCE}
    assert codes == {code for _, _, expected in CASES for code, _ in expected}


def test_the_sample_means_what_it_says() -> None:
    service = load(str(SAMPLE), {"SELECTION_PERIOD": "2000"})
    assert service.synchronization == SynchronizationSettings(
        enable=True,
        period_ms=2_000,
        stable_periods=2,
        max_change_periods=6,
        synchronize_durable_subscriptions=True,
    )
    (each,) = service.subscriptions
    assert (each.name, each.topic, each.quorum) == ("logger", "Observation", 1)
    assert [group.converges for group in service.groups] == [True]


def test_what_is_inside_a_participant_counts_as_well(tmp_path: Path) -> None:
    path = tmp_path / "f.xml"
    text = SAMPLE.read_text("utf-8").replace("</synchronization>", "</synchronization><participant>")
    path.write_text(text.replace("</persistence_service>", "</participant></persistence_service>"))
    service = load(str(path), {})
    assert (len(service.groups), len(service.subscriptions)) == (1, 1)


RTI = """<dds>
  <persistence_service name="Srv1">
    <filesystem><directory>/var/lib/p</directory></filesystem>
    <participant name="defaultParticipant">
      <domain_id>94</domain_id>
      <persistence_group name="PerTopicGroup"><filter>A*</filter></persistence_group>
    </participant>
  </persistence_service>
  <persistence_service name="Srv2">
    <persistent_storage><filesystem><directory>q</directory></filesystem></persistent_storage>
    <participant domain_id="95"><persistence_group name="g" filter="B*"/></participant>
  </persistence_service>
</dds>
"""


def test_a_file_may_have_the_shape_of_rti(tmp_path: Path) -> None:
    path = tmp_path / "f.xml"
    path.write_text(RTI)
    one, two = (load(str(path), {}, name) for name in ("Srv1", "Srv2"))
    for service, filter_, domain, directory in ((one, "A*", 94, "/var/lib/p"), (two, "B*", 95, "q")):
        assert [group.filter for group in service.groups] == [filter_]
        assert (service.domain_id, service.directory) == (domain, directory)
        assert (service.refusals(), service.without_effect()) == ([], [])
    with pytest.raises(ConfigError, match=r"there are 'Srv1', 'Srv2' .*--service"):
        load(str(path), {})


def test_without_tags_nothing_is_synchronized(tmp_path: Path) -> None:
    path = tmp_path / "f.xml"
    path.write_text('<persistence_service name="a"/>')
    assert load(str(path), {}).synchronization == SynchronizationSettings()


def test_a_wrong_file_is_refused_with_every_place(tmp_path: Path) -> None:
    path = tmp_path / "f.xml"
    path.write_text(SAMPLE.read_text("utf-8").replace(PERIOD, "x").replace(STABLE, STABLE.replace("2", "9")))
    with pytest.raises(ConfigError) as refused:
        load(str(path), {})
    lines = path.read_text().splitlines()
    places = [(each.line, lines[each.line - 1][each.column - 1]) for each in refused.value.problems]
    assert [char for _, char in places] == ["x", "6"]


@pytest.mark.parametrize("text", ["<dds/>", TWO])
def test_there_must_be_one_service_of_the_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f.xml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"no persistence_service|several"):
        load(str(path), {}, name="")
    with pytest.raises(ConfigError, match="no "):
        load(str(path), {}, name="z")
