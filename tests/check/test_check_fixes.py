"""Fixes: they remove their finding, touch nothing else, and files are replaced as a whole."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import ByteRange, parse
from ospltool.check import fixes
from ospltool.check.fixes import FileChange, FixFault
from ospltool.check.inputs import DeploymentInput, NodeInput, gather
from ospltool.check.runner import Choice
from ospltool.diagnostics.model import Report

TABLE = tomllib.loads(Path(__file__).with_name("rules_node.toml").read_text("utf-8"))
CASES = [
    (code, [(old, new) for old, new in case.get("bad_changes", [[case.get("old"), case.get("bad")]])])
    for code, cases in TABLE.items()
    for case in cases
]


@pytest.mark.parametrize(("code", "changes"), CASES, ids=[f"{c[0]}-{n}" for n, c in enumerate(CASES)])
def test_a_fix_removes_its_finding_and_leaves_all_other_bytes(
    varied: Callable[..., str], checked: Callable[..., Report], code: str, changes: list[tuple[str, str]]
) -> None:
    text = varied(*changes).replace("«", "").replace("»", "")
    data = text.encode()
    for found in checked(text, codes=[code]).diagnostics:
        if found.fix is None:
            continue
        after = data
        for edit in sorted(found.fix.edits, key=lambda each: each.span, reverse=True):
            after = after[: edit.span.start] + edit.replacement + after[edit.span.end :]
        parse(after, "f.xml", {})
        assert after != data
        left = checked(after, codes=[code]).diagnostics
        assert len(left) < len(checked(text, codes=[code]).diagnostics), found.fix
        first = min(edit.span.start for edit in found.fix.edits)
        last = max(edit.span.end for edit in found.fix.edits)
        assert after.startswith(data[:first])
        assert after.endswith(data[last:])


@pytest.fixture
def fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[fixes.Outcome, str]]:
    """The outcome for one file, and the content that it has afterwards."""
    monkeypatch.chdir(tmp_path)

    def fix(text: str, *, unsafe: bool) -> tuple[fixes.Outcome, str]:
        path = tmp_path / "f.xml"
        path.write_bytes(text.encode())
        outcome = fixes.fix(gather(["f.xml"], {}), Choice(), unsafe=unsafe)
        fixes.write(outcome.changes, lambda name: Path(name).read_bytes())
        return outcome, path.read_bytes().decode()

    return fix


def test_only_safe_fixes_are_made_unless_all_are_asked_for(
    varied: Callable[..., str], fixed: Callable[..., tuple[fixes.Outcome, str]]
) -> None:
    text = varied(
        ('<NameSpace name="ships">', '<NameSpace name="ships" mergePolicy="merge">'),
        ('aligner="true"', 'aligner="yes"'),
    )
    outcome, after = fixed(text, unsafe=False)
    assert after == text.replace(' mergePolicy="merge"', "")
    assert outcome.fixed == 1
    assert [each.code for each in outcome.report.diagnostics] == ["DUR101"]
    outcome, after = fixed(text, unsafe=True)
    assert after == text.replace(' mergePolicy="merge"', "").replace('"yes"', '"true"')
    assert outcome.report.diagnostics == ()


def test_fixes_are_repeated_until_nothing_is_left(
    varied: Callable[..., str], fixed: Callable[..., tuple[fixes.Outcome, str]]
) -> None:
    text = varied(
        ("<Persistent>", "<persistent>"),
        ("</Persistent>", "</persistent>"),
        ("<StoreMode>KV", "<StoreMode>XLM"),
    )
    outcome, after = fixed(text, unsafe=True)
    assert "<Persistent>" in after
    assert "<StoreMode>XML<" in after
    assert [each.code for each in outcome.report.diagnostics] == ["DUR128", "DUR610"]


def test_line_ends_and_encoding_stay(
    varied: Callable[..., str], fixed: Callable[..., tuple[fixes.Outcome, str]]
) -> None:
    text = varied(("<NameSpaces>", "<!-- ü --><NameSpaces>"), ('aligner="true"', 'aligner="on"')).replace(
        "\n", "\r\n"
    )
    _, after = fixed(text, unsafe=True)
    assert after == text.replace('"on"', '"true"')


def test_an_element_goes_with_its_line(
    varied: Callable[..., str], fixed: Callable[..., tuple[fixes.Outcome, str]]
) -> None:
    line = '      <!-- ospl: ignore[DUR605] reason="not needed" -->\n'
    text = varied(("      <StoreDirectory>", f"{line}      <StoreDirectory>"))
    _, after = fixed(text, unsafe=False)
    assert after == text.replace(line, "")


def test_one_file_of_several_nodes_is_fixed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, varied: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.xml").write_text(varied(('aligner="true"', 'aligner="yes"')))
    nodes = tuple(NodeInput("f.xml", {}, name) for name in ("a", "b"))
    outcome = fixes.fix([DeploymentInput(nodes, is_fleet=True)], Choice(), unsafe=True)
    (change,) = outcome.changes
    assert change.after.count(b'aligner="true"') == 1
    assert outcome.fixed == 1


def test_a_diff_shows_the_change_and_is_safe_for_a_terminal() -> None:
    change = FileChange("f.xml", b"<a>\n\x1b1\n</a>\n", b"<a>\n2\n</a>\n")
    text = fixes.diff_of(change)
    assert text.splitlines()[:2] == ["--- a/f.xml", "+++ b/f.xml"]
    assert "+2\n" in text
    assert "\x1b" not in text


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "f.xml"
    path.write_text("new")
    with pytest.raises(FixFault, match="changed meanwhile"):
        fixes.write([FileChange(str(path), b"old", b"fixed")], lambda name: Path(name).read_bytes())
    assert path.read_text() == "new"


def test_mode_and_symbolic_links_stay(tmp_path: Path) -> None:
    target = tmp_path / "real.xml"
    target.write_text("old")
    target.chmod(0o640)
    link = tmp_path / "link.xml"
    link.symlink_to(target)
    fixes.write([FileChange(str(link), b"old", b"fixed")], lambda name: Path(name).read_bytes())
    assert link.is_symlink()
    assert target.read_text() == "fixed"
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.xml", "real.xml"]


def test_a_file_that_cannot_be_replaced_says_so(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "f.xml"
    with pytest.raises(FixFault, match="cannot be written"):
        fixes.write([FileChange(str(missing), b"x", b"y")], lambda _: b"x")


def test_spans_are_half_open() -> None:
    assert ByteRange(1, 2) < ByteRange(1, 3) < ByteRange(2, 2)


PRIORITY = 'aligner="true" alignee="Initial" masterPriority="100"'
NO_ALIGNER = 'aligner="false" alignee="Initial"'
PERHAPS = 'aligner="${A:-false}" alignee="Initial"'
SCHEDULING = (
    '<Watchdog><Scheduling><Priority priority_kind="Absolute">1</Priority>'
    "<Class>Default</Class></Scheduling></Watchdog>"
)
CHANNEL = (
    '<NetworkService name="n"><Channels><Channel name="c" reliable="true">'
    "<PortNr>3340</PortNr></Channel></Channels></NetworkService>"
)
MERGE = '<Merge type="Merge" scope="*"/>'


def declared(*environs: dict[str, str]) -> list[DeploymentInput]:
    nodes = tuple(NodeInput("f.xml", each, f"n{at}") for at, each in enumerate(environs))
    return [DeploymentInput(nodes, is_fleet=True, is_declared=True)]


def alone(*environs: dict[str, str]) -> list[DeploymentInput]:
    return [DeploymentInput((NodeInput("f.xml", each),)) for each in environs]


@pytest.mark.parametrize(
    ("old", "bad", "inputs", "good"),
    [
        # The expansion of one node says nothing of another node, or of one that is not known.
        (PRIORITY, f'{PERHAPS} masterPriority="1"', alone({}), None),
        (PRIORITY, f'{PERHAPS} masterPriority="1"', declared({}, {"A": "true"}),
         None),
        (PRIORITY, f'{PERHAPS} masterPriority="1"', declared({}, {"A": "FALSE"}),
         PERHAPS),
        (PRIORITY, f'{NO_ALIGNER} masterPriority="1"', alone({}),
         NO_ALIGNER),
        (PRIORITY, f'{NO_ALIGNER} masterPriority="${{P:-1}}"', alone({}), None),
        (PRIORITY, f'{NO_ALIGNER} masterPriority="${{P:-1}}"', declared({}, {"P": "999"}),
         None),
        # Other variables of the file do not matter.
        ("<Id>3</Id>", "<Id>${D:-3}</Id>", alone({}), "<Id>${D:-3}</Id>"),
        # A node of ospltool does what OpenSplice does not.
        ("<StoreMode>KV</StoreMode>", "<StoreOptimizeInterval>3</StoreOptimizeInterval>", alone({}), None),
        ("</Persistent>", "<StoreOptimizeInterval>9</StoreOptimizeInterval></Persistent>", alone({}), None),
        ("<Network>", f"{SCHEDULING}<Network>", alone({}), None),
        # OpenSplice takes the last Merge that matches, a node the first one.
        (MERGE, f'{MERGE}<Merge type="Merge" scope="B"/>', alone({}), MERGE),
        (MERGE, f'{MERGE}<Merge type="Ignore" scope="B*"/><Merge type="Merge" scope="B"/>', alone({}), None),
        (MERGE, f'{MERGE}<Merge type="Merge" scope="${{R:-B}}"/>', alone({}), None),
        (MERGE, f'{MERGE}<Merge type="Merge" scope="${{R:-B}}"/>', declared({}, {"R": "C"}), MERGE),
        # A node with a misspelt setting does not start, so that to spell it well changes something.
        ("<StoreMode>KV</StoreMode>", "<storeMode>KV</storeMode>", alone({}), None),
        ("<Partition>ship*</Partition>", "<Partition>a</Partition><PartitionTopic>a.*</PartitionTopic>",
         alone({}), "<Partition>a</Partition>"),
        ("<Partition>ship*</Partition>", "<Partition>a</Partition><Partition>${P:-a}</Partition>",
         declared({}, {"P": "b"}), None),
    ],
)  # fmt: skip
def test_a_fix_is_made_if_it_changes_nothing_in_every_environment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    varied: Callable[..., str],
    old: str,
    bad: str,
    inputs: list[DeploymentInput],
    good: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    # An attribute that nobody reads is fixed in any case, so that one fix does not hold up another.
    usual = ('<NameSpace name="ships">', '<NameSpace name="ships" mergePolicy="merge">')
    before, clean = varied((old, bad), usual), varied((old, good or bad))
    (tmp_path / "f.xml").write_text(before)
    outcome = fixes.fix(inputs, Choice(), unsafe=False)
    (change,) = outcome.changes
    assert change.after.decode() == clean
    assert not any(each.fix and each.fix.is_safe for each in outcome.report.diagnostics)


def test_the_environments_of_one_file_are_those_of_all_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, varied: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.xml").write_text(varied((PRIORITY, f'{PERHAPS} masterPriority="1"')))
    (tmp_path / "g.xml").symlink_to("f.xml")
    nodes = (NodeInput("f.xml", {}, "n1"), NodeInput(f"file://{tmp_path}/g.xml", {"A": "true"}, "n2"))
    deployment = DeploymentInput(nodes, is_fleet=True, is_declared=True)
    assert fixes.fix([deployment], Choice(), unsafe=False).changes == ()


@pytest.mark.parametrize(
    ("old", "bad", "help_"),
    [
        # The size of messages is not the largest sample, which it resembles.
        ("<Discovery>", "<Internal><MaxMessageSize>1400 B</MaxMessageSize></Internal><Discovery>",
         "it belongs in //OpenSplice/DDSI2Service/General"),
        ('<Policy nameSpace="ships"', '<Policy scope="x" nameSpace="ships"',
         "it belongs in //OpenSplice/DurabilityService/NameSpaces/Policy/Merge"),
        ("</DurabilityService>", f"</DurabilityService>{CHANNEL}", 'enabled="true" or enabled="false"'),
    ],
)  # fmt: skip
def test_no_fix_guesses_what_was_meant(
    varied: Callable[..., str],
    fixed: Callable[..., tuple[fixes.Outcome, str]],
    old: str,
    bad: str,
    help_: str,
) -> None:
    text = varied((old, bad))
    outcome, after = fixed(text, unsafe=True)
    assert after == text
    assert help_ in [each.advice for each in outcome.report.diagnostics]
