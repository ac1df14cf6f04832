"""Every rule about one file: what breaks it, where it points, and what does not break it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from ospltool.check.registry import RuleInput
from ospltool.diagnostics.model import Report, Severity, Target

CASES: list[tuple[str, list[tuple[str, str]], list[tuple[str, str]]]] = []
for code, cases in tomllib.loads(Path(__file__).with_name("rules_node.toml").read_text("utf-8")).items():
    for case in cases:
        if "old" in case:
            CASES.append((code, [(case["old"], case["bad"])], [(case["old"], case["good"])]))
        else:
            bad = [(old, new) for old, new in case["bad_changes"]]
            good = [(old, new) for old, new in case["good_changes"]]
            CASES.append((code, bad, good))


@pytest.mark.parametrize(("code", "bad", "good"), CASES, ids=[f"{c[0]}-{n}" for n, c in enumerate(CASES)])
def test_a_rule_points_at_what_is_bad_and_accepts_what_is_good(
    varied: Callable[..., str],
    check_case: Callable[..., None],
    code: str,
    bad: list[tuple[str, str]],
    good: list[tuple[str, str]],
) -> None:
    check_case(code, varied(*bad), varied(*good))


def test_a_file_without_durability_is_none_for_a_node(check_case: Callable[..., None], clean: str) -> None:
    start = clean.index("  <DurabilityService")
    check_case("DUR027", clean[:start].replace("<OpenSplice>", "<«OpenSplice»>") + "</OpenSplice>", clean)


def test_the_clean_configuration_has_no_finding_at_all(checked: Callable[..., Report], clean: str) -> None:
    assert checked(clean).diagnostics == ()


def test_what_nodes_do_not_need_is_no_finding_where_opensplice_reads_the_file_too(
    checked: Callable[..., Report], clean: str
) -> None:
    text = clean.replace("masterPriority", 'equalityCheck="false" masterPriority')
    assert checked(text, codes=["DUR129"]).diagnostics == ()
    found = checked(text, targets=frozenset({Target.OSPLTOOL})).diagnostics
    assert [(each.code, each.severity, each.message.split()[0]) for each in found] == [
        ("DUR129", Severity.INFO, "<WaitForAttachment>"),
        ("DUR313", Severity.INFO, "equalityCheck"),
    ]


def test_every_rule_about_one_file_has_its_cases(rule_codes: Callable[[RuleInput], list[str]]) -> None:
    assert set(rule_codes(RuleInput.NODE)) == {case[0] for case in CASES} | {"DUR027", "DUR715"}


@pytest.mark.parametrize(
    ("changes", "environ", "severity"),
    [
        ([], {}, Severity.WARNING),
        ([('"ddsi2"><Command', '"ddsi2" enabled="false"><Command')],
         {}, Severity.INFO),
        ([("DDSI2Service", "TunerService")], {}, Severity.INFO),
        ([("DDSI2Service", "TunerService")], {"CYCLONEDDS_URI": "<Tr/>"}, Severity.WARNING),
        ([("DDSI2Service", "NetworkService")], {}, Severity.WARNING),
        ([("DDSI2Service", "NetworkService"), ('"ddsi2"><C', '"other"><C')], {}, Severity.INFO),
    ],
)  # fmt: skip
def test_a_split_is_spoken_of_where_there_is_a_network(
    checked: Callable[..., Report],
    varied: Callable[..., str],
    changes: list[tuple[str, str]],
    environ: dict[str, str],
    severity: Severity,
) -> None:
    text = varied(('<Merge type="Merge" scope="*"/>', ""), *changes)
    (found,) = checked(text, codes=["DUR401"], environ=environ).diagnostics
    assert found.severity is severity
    assert ("after a split" in found.message) == (severity is Severity.WARNING)


@pytest.mark.parametrize(
    ("uri", "is_found"), [("<CycloneDDS><Domain>", True), ("<CycloneDDS><Domain/></CycloneDDS>", False)]
)
def test_settings_in_the_environment_that_end_too_early_are_found(
    checked: Callable[..., Report], clean: str, uri: str, is_found: bool
) -> None:
    found = checked(clean, environ={"CYCLONEDDS_URI": uri}).diagnostics
    assert [(each.code, "line 1, column 13" in each.message) for each in found] == [
        ("DUR715", True)
    ] * is_found
