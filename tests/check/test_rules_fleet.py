"""Every rule about a deployment: what breaks it, where it points, and what does not break it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from ospltool.check.registry import RuleInput
from ospltool.diagnostics.model import Report, Severity

TABLE = tomllib.loads(Path(__file__).with_name("rules_fleet.toml").read_text("utf-8"))
CASES = [(code, case["bad"], case["good"]) for code, cases in TABLE.items() for case in cases]


@pytest.mark.parametrize(("code", "bad", "good"), CASES, ids=[f"{c[0]}-{n}" for n, c in enumerate(CASES)])
def test_a_rule_compares_nodes_and_points_at_the_one_to_look_at(
    varied: Callable[..., str],
    checked_fleet: Callable[..., Report],
    code: str,
    bad: list[list[list[str]]],
    good: list[list[list[str]]],
) -> None:
    texts = [varied(*changes) for changes in bad]
    marked = [
        (at, text.partition("«")[2].partition("»")[0]) for at, text in enumerate(texts, 1) if "«" in text
    ]
    found = checked_fleet(
        *(text.replace("«", "").replace("»", "") for text in texts), codes=[code]
    ).diagnostics
    assert found, f"{code} does not find anything"
    ((node, underlined),) = marked
    place = found[0].place
    assert place.source is not None
    assert place.span is not None
    assert (place.path, place.source.text(place.span)) == (f"n{node}.xml", underlined)
    assert f"n{node}" in found[0].nodes
    assert all(each.message.isprintable() for each in found)
    assert not checked_fleet(*(varied(*changes) for changes in good), codes=[code]).diagnostics


def test_every_rule_about_deployments_has_its_cases(rule_codes: Callable[[RuleInput], list[str]]) -> None:
    assert set(rule_codes(RuleInput.FLEET)) == set(TABLE)


def test_a_conflict_points_at_both_files_and_names_a_witness(
    varied: Callable[..., str], checked_fleet: Callable[..., Report]
) -> None:
    other = varied(('name="ships"', 'name="b"'), ("ship*", "*.s?ips"), ('nameSpace="ships"', 'nameSpace="b"'))
    third = varied(
        ("ship*", "s?*.s?ips"), ('name="ships"', 'name="c"'), ('nameSpace="ships"', 'nameSpace="c"')
    )
    (found,) = checked_fleet(other, third, codes=["DUR231"]).diagnostics
    assert [place.path for place in (found.place, *found.related)] == ["n2.xml", "n1.xml"]
    assert "both contain 'sx.sxips.x'" in found.message
    assert found.severity is Severity.ERROR


def test_a_shared_store_is_an_error_only_where_the_machine_is_known_to_be_the_same(
    varied: Callable[..., str], checked_fleet: Callable[..., Report], clean: str
) -> None:
    unknown = varied(("127.0.0.1", "auto"))
    (same,) = checked_fleet(clean, clean, codes=["DUR742"]).diagnostics
    (maybe,) = checked_fleet(unknown, unknown, unknown, codes=["DUR742"]).diagnostics
    assert (same.severity, maybe.severity) == (Severity.ERROR, Severity.INFO)
    assert "n1, n2, n3" in maybe.message


def test_many_nodes_are_counted_in_a_message(
    varied: Callable[..., str], checked_fleet: Callable[..., Report], clean: str
) -> None:
    other = varied(("<Id>3", "<Id>4"))
    (found,) = checked_fleet(*[clean] * 9, other, codes=["DUR740"]).diagnostics
    assert "n1, n2, n3, n4, n5 and 4 more use 3" in found.message


def test_a_single_node_is_not_compared_with_itself(checked_fleet: Callable[..., Report], clean: str) -> None:
    assert checked_fleet(clean).diagnostics == ()


SECRETS = ("a" * 64, "b" * 64, "c" * 64)
FILES: dict[str, tuple[tuple[int, str], tuple[int, str], list[tuple[str, Severity]]]] = {
    "equal": ((0o600, SECRETS[0]), (0o600, SECRETS[0]), []),
    "equal, but one may be read by others": (
        (0o600, SECRETS[0]),
        (0o644, SECRETS[0]),
        [("DUR613", Severity.ERROR)],
    ),
    "other": ((0o600, SECRETS[0]), (0o600, SECRETS[1]), [("DUR749", Severity.ERROR)]),
    "while it is replaced": ((0o600, "\n".join(SECRETS[:2])), (0o600, "\n".join(SECRETS[1::-1])), []),
    "replaced too early": (
        (0o600, SECRETS[0]),
        (0o600, "\n".join(SECRETS[1::-1])),
        [("DUR749", Severity.ERROR)],
    ),
    "too short": ((0o600, SECRETS[0]), (0o600, "short"), [("DUR613", Severity.ERROR)]),
    "not here": ((0o600, SECRETS[0]), (0, ""), [("DUR613", Severity.WARNING)]),
}


@pytest.mark.parametrize("case", FILES)
def test_secrets_are_compared_by_their_contents(
    case: str, checked_fleet: Callable[..., Report], varied: Callable[..., str], tmp_path: Path
) -> None:
    *files, expected = FILES[case]
    texts = []
    for name, (mode, content) in zip(("one", "two"), files, strict=True):
        path = tmp_path / name
        if mode:
            path.write_text(content, encoding="ascii")
            path.chmod(mode)
        texts.append(varied(("<Daemon>", f"<DomainSecret>{path}</DomainSecret><Daemon>")))
    found = checked_fleet(*texts, codes=["DUR613", "DUR749"]).diagnostics
    assert [(each.code, each.severity) for each in found] == expected
