"""`ospltool check` and `ospltool explain` from the command line."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ospltool.cli.app import main

SAMPLES = Path(__file__).parents[2] / "samples" / "three-nodes"


class Ran:
    """What a command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err


@pytest.fixture
def ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Runs a command in an empty directory, in this process."""
    monkeypatch.chdir(tmp_path)
    for name in ("OSPL_URI", "OSPLTOOL_DEMO_DIR", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Ran:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def files(tmp_path: Path, clean: str, varied: Callable[..., str]) -> Path:
    """good.xml, info.xml, warn.xml, bad.xml and broken.xml."""
    (tmp_path / "good.xml").write_text(clean)
    (tmp_path / "info.xml").write_text(varied(("<Verbosity>INFO", "<Verbosity>FINEST")))
    (tmp_path / "warn.xml").write_text(varied(("/var/lib/durability", "/tmp")))
    (tmp_path / "bad.xml").write_text(varied(('aligner="true"', 'aligner="yes"')))
    (tmp_path / "broken.xml").write_text("<OpenSplice>")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["good.xml"], 0),
        (["info.xml"], 0),
        (["info.xml", "--fail-on", "info"], 1),
        (["warn.xml"], 1),
        (["warn.xml", "--fail-on", "error"], 0),
        (["bad.xml", "--fail-on", "error"], 1),
        (["bad.xml", "--fail-on", "never"], 0),
        (["broken.xml"], 2),
        (["broken.xml", "--fail-on", "never"], 2),
        (["none.xml"], 2),
        (["good.xml", "none.xml"], 2),
        ([], 2),
        (["good.xml", "--format", "nonsense"], 2),
        (["good.xml", "--select", "DUR9999"], 2),
        (["good.xml", "--severity", "DUR605"], 2),
        (["good.xml", "--severity", "DUR605=loud"], 2),
        (["--node", "x"], 2),
        (["good.xml", "-o", "no/such/dir"], 2),
        (["--effective", "broken.xml"], 2),
        (["warn.xml", "--severity", "DUR605=info"], 0),
        (["warn.xml", "--ignore", "temporary-store"], 0),
        (["warn.xml", "--select", "DUR1,DUR2"], 0),
        (["info.xml", "--severity", "DUR7=error"], 1),
        (["--node", "a=good.xml", "--node", "b=good.xml", "--fail-on", "error"], 1),
        (["good.xml", "good.xml"], 0),
    ],
)
def test_exit_codes(ran: Callable[..., Ran], files: Path, arguments: list[str], code: int) -> None:
    assert files.exists()
    assert ran("check", *arguments).code == code
    assert gc.isenabled(), "what this process does next leaves garbage, too"


TARGETS = ("opensplice", "ospltool")


def test_data_goes_to_stdout_and_the_summary_to_stderr(ran: Callable[..., Ran], files: Path) -> None:
    done = ran("check", "bad.xml", "info.xml", "--format", "concise")
    assert (
        done.out
        == f"bad.xml:{line_of(files / 'bad.xml', 'yes')}: error[DUR101] aligner: 'yes' is not a boolean\n"
    )
    assert done.err.splitlines() == [
        "1 error, 1 info in 2 files; 1 below warning not shown (--show info)",
        "fixable: 0 with --fix, 1 more with --unsafe-fixes",
        "OpenSplice refuses to start with bad.xml",
        "ospltool refuses to start with bad.xml",
        "each file was checked by itself; --together compares them as nodes of one deployment",
    ]


def line_of(path: Path, piece: str) -> str:
    text = path.read_text()
    before = text[: text.index(piece)]
    return f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


def test_a_target_leaves_out_what_matters_to_the_other(ran: Callable[..., Ran], files: Path) -> None:
    assert "OpenSplice" not in ran("check", "bad.xml", "--target", "ospltool").err
    assert "an ospltool node" not in ran("check", "bad.xml", "--target", "opensplice").err


@pytest.mark.parametrize("output", ["full", "concise", "json", "sarif"])
def test_a_file_gets_the_same_bytes(ran: Callable[..., Ran], files: Path, output: str) -> None:
    shown = ran("check", "bad.xml", "--format", output)
    written = ran("check", "bad.xml", "--format", output, "-o", "out")
    assert written.out == ""
    assert (files / "out").read_text("utf-8") == shown.out
    assert written.code == shown.code == 1


def test_no_file_is_overwritten_unasked_and_no_link_followed(ran: Callable[..., Ran], files: Path) -> None:
    arguments = ("check", "bad.xml", "--format", "sarif", "-o")
    (files / "old").write_text("precious")
    (files / "link").symlink_to("old")
    assert ran(*arguments, "old").code == 2
    assert "--force" in ran(*arguments, "old").err
    assert ran(*arguments, "link", "--force").code == 2
    assert (files / "old").read_text() == "precious"
    assert ran(*arguments, "old", "--force").code == 1
    assert ran(*arguments, "new").code == 1
    assert (files / "new").read_text() == (files / "old").read_text() != "precious"
    assert (files / "new").stat().st_mode & 0o777 == 0o600


def test_the_uri_of_the_environment_is_the_default(
    ran: Callable[..., Ran], files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSPL_URI", f"file://{files}/bad.xml")
    assert ran("check").code == 1


def test_json_is_the_envelope_of_all_commands(ran: Callable[..., Ran], files: Path) -> None:
    document = json.loads(ran("check", "bad.xml", "--json", "--show", "info").out)
    assert (document["format_version"], document["kind"]) == (1, "diagnostics")
    data = document["data"]
    assert data["valid"] is False
    assert data["refused_by"] == {"opensplice": ["bad.xml"], "ospltool": ["bad.xml"]}
    assert data["diagnostics"][0]["fix"]["applicability"] == "unsafe"
    assert files.exists()


def test_statistics_count_by_rule(ran: Callable[..., Ran], files: Path) -> None:
    lines = ran("check", "bad.xml", "warn.xml", "info.xml", "--statistics").out.splitlines()
    assert lines[0].split() == ["COUNT", "CODE", "NAME", "WHAT"]
    assert {line.split()[1] for line in lines[1:]} == {"DUR101", "DUR605", "DUR721"}
    data = json.loads(ran("check", "bad.xml", "--statistics", "--json").out)["data"]
    assert data == [{"code": "DUR101", "name": "bad-boolean", "count": 1}]
    assert files.exists()


def test_the_effective_configuration_names_every_origin(ran: Callable[..., Ran], files: Path) -> None:
    lines = ran("check", "--effective", "good.xml").out.splitlines()
    assert lines[0] == "# good.xml"
    by_path = {line.partition(" = ")[0]: line for line in lines[1:]}
    place = line_of(files / "good.xml", "3</Id>")
    assert by_path["//OpenSplice/Domain/Id"].split() == [
        "//OpenSplice/Domain/Id",
        "=",
        "3",
        "#",
        f"good.xml:{place}",
    ]
    assert by_path["//OpenSplice/DurabilityService/Tracing/Timestamps"].split()[2:] == [
        "true",
        "#",
        "default",
    ]
    data = json.loads(ran("check", "--effective", "good.xml", "--json").out)["data"]
    assert data[0]["starts"] is True
    assert len(data[0]["settings"]) == len(lines) - 1


def test_the_effective_configuration_marks_what_has_no_effect(ran: Callable[..., Ran], files: Path) -> None:
    text = (files / "good.xml").read_text().replace("<StoreMode>KV", "<StoreMode>XML")
    (files / "v.xml").write_text(text.replace("<Daemon>", "<RetentionPeriod>9</RetentionPeriod><Daemon>"))
    out = ran("check", "--effective", "v.xml").out
    marked = [line for line in out.splitlines() if ", no effect on a node: " in line]
    assert [line.split()[:3] for line in marked] == [
        ["//OpenSplice/Domain/RetentionPeriod", "=", '"9"'],
        ["//OpenSplice/DurabilityService/Network/WaitForAttachment[@maxWaitCount]", "=", "100"],
        ["//OpenSplice/DurabilityService/Network/WaitForAttachment/ServiceName", "=", '"ddsi2"'],
        ["//OpenSplice/DurabilityService/Persistent/StoreMode", "=", '"XML"'],
    ]
    data = json.loads(ran("check", "--effective", "v.xml", "--json").out)["data"]
    ignored = [each["path"] for each in data[0]["settings"] if each["ignored"]]
    assert ignored == [line.split()[0] for line in marked]


def test_the_effective_configuration_shows_variables_and_overrides(
    ran: Callable[..., Ran], files: Path
) -> None:
    (files / "v.xml").write_text((files / "good.xml").read_text().replace("<Id>3", "<Id>${ID:-7}"))
    (files / "fleet.toml").write_text(
        '[[node]]\nname = "a"\nfile = "v.xml"\nrole = "R"\nenv = { ID = "8" }\n'
    )
    text = ran("check", "--effective", "fleet.toml").out
    assert "# a: v.xml" in text
    assert ", from ${ID:-7}" in text
    assert next(line for line in text.splitlines() if "Domain/Id" in line).split()[2] == "8"
    assert next(line for line in text.splitlines() if "Domain/Role" in line).endswith("# role override")


def test_the_matrix_shows_the_expected_master(ran: Callable[..., Ran]) -> None:
    done = ran("check", "--matrix", str(SAMPLES / "fleet.toml"))
    lines = done.out.splitlines()
    assert lines[0].split()[:4] == ["NAME-SPACE", "ROLE", "NODE", "ALIGNER"]
    assert [line.split()[2] for line in lines[1:4]] == ["n1", "n2", "n3"]
    assert "master" in lines[1]
    assert lines[-1] == "harbour in role Harbour: n1 (highest masterPriority, 200)"
    data = json.loads(ran("check", "--matrix", "--json", str(SAMPLES / "fleet.toml")).out)["data"]
    assert data["masters"] == [
        {
            "name_space": "harbour",
            "role": "Harbour",
            "candidates": ["n1"],
            "rule": "highest masterPriority, 200",
        }
    ]


def test_the_matrix_shows_ties_learned_name_spaces_and_roles_without_a_master(
    ran: Callable[..., Ran], files: Path, varied: Callable[..., str]
) -> None:
    (files / "tie.xml").write_text(varied(('nameSpace="ships"', 'nameSpace="*"')))
    extra = '<NameSpace name="boats"><Partition>boats</Partition></NameSpace><Policy nameSpace="*"'
    (files / "extra.xml").write_text(varied(('<Policy nameSpace="ships"', extra)))
    none = varied(("Harbour", "Bridge"), ('masterPriority="100"', 'masterPriority="0"'))
    (files / "none.xml").write_text(none)
    text = ran(
        "check", "--matrix", "--node", "a=tie.xml", "--node", "b=extra.xml", "--node", "c=none.xml"
    ).out
    assert (
        "ships in role Harbour: a or b (equal masterPriority 100: newest stored data, then highest id)"
        in text
    )
    assert "ships in role Bridge: no master (nobody may be master)" in text
    assert "boats in role Harbour: b (the only candidate)" in text
    assert any("learned" in line and line.split()[2] == "a" for line in text.splitlines())


def test_no_lazy_node_is_expected_to_be_master_beside_one_that_keeps_everything(
    ran: Callable[..., Ran], files: Path, varied: Callable[..., str]
) -> None:
    (files / "keeper.xml").write_text(varied())
    lazy = varied(('alignee="Initial" masterPriority="100"', 'alignee="Lazy" masterPriority="200"'))
    (files / "lazy.xml").write_text(lazy)
    text = ran("check", "--matrix", "--node", "k=keeper.xml", "--node", "l=lazy.xml").out
    assert "ships in role Harbour: k (the only candidate)" in text
    alone = ran("check", "--matrix", "--node", "l=lazy.xml").out
    assert "each Lazy node is master of its own part" in alone
    codes = {target: ran("check", "lazy.xml", "--target", target, "--show", "info").out for target in TARGETS}
    assert ["DUR305" in codes[each] for each in TARGETS] == [True, False]
    assert ["DUR312" in codes[each] for each in TARGETS] == [False, True]
    both = ran("check", "lazy.xml", "--format", "concise").out.splitlines()
    said = {each.partition("[")[2][:6]: each for each in both}
    assert ("OpenSplice" in said["DUR305"], "ospltool" in said["DUR312"]) == (True, True)


def test_fix_and_diff(ran: Callable[..., Ran], files: Path) -> None:
    before = (files / "bad.xml").read_text()
    shown = ran("check", "bad.xml", "--unsafe-fixes", "--diff")
    assert shown.code == 1
    assert "+++ b/bad.xml" in shown.out
    assert (files / "bad.xml").read_text() == before
    assert ran("check", "bad.xml", "--fix").code == 1, "what is left is reported"
    assert (files / "bad.xml").read_text() == before
    done = ran("check", "bad.xml", "--unsafe-fixes")
    assert (done.code, done.out) == (0, "")
    assert (files / "bad.xml").read_text() == before.replace('"yes"', '"true"')
    assert ran("check", "bad.xml", "--unsafe-fixes", "--diff").code == 0


def test_the_sample_deployment_is_clean(ran: Callable[..., Ran]) -> None:
    done = ran("check", str(SAMPLES / "fleet.toml"))
    assert (done.code, done.out) == (0, "")
    assert "4 suppressed" in done.err


def test_explain(ran: Callable[..., Ran]) -> None:
    assert ran("explain", "DUR201").out.startswith("DUR201 overlapping-name-spaces")
    assert "range:" in ran("explain", "//OpenSplice/Domain/Id").out
    assert len(ran("explain").out.splitlines()) >= 60
    assert json.loads(ran("explain", "DUR201", "--json").out)["kind"] == "rule"
    assert ran("explain", "NODE-GONE").out.startswith("DUL-NODE-GONE (error)")
    cyclone = ran("explain", "//CycloneDDS/Domain/General/Interfaces/NetworkInterface[@multicast]").out
    assert "one of:      false, true, default" in cyclone
    assert (
        "Contains: @address, " in ran("explain", "CycloneDDS/Domain/General/Interfaces/NetworkInterface").out
    )
    document = json.loads(ran("explain", "//CycloneDDS/Domain/General/PreferMulticast", "--json").out)
    facts = document["data"]["facts"]
    assert facts["note"] == "deprecated; use //CycloneDDS/Domain/General/Interfaces"
    assert ran("explain", "//CycloneDDS").out.startswith("//CycloneDDS/Domain\n")


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("DUR0000", "there is no rule"),
        ("DUR999", "there is no rule and no setting 'DUR999'; `ospltool explain` lists them"),
        ("//CycloneDDS/Domain/General/Interface", "mean //CycloneDDS/Domain/General/Interfaces?"),
        ("", "the name is empty; "),
        (" ", "the name is empty; "),
    ],
)
def test_what_cannot_be_explained_ends_with_2(ran: Callable[..., Ran], subject: str, said: str) -> None:
    wrong = ran("explain", subject)
    assert (wrong.code, wrong.out) == (2, "")
    assert said in wrong.err


def test_help_of_the_whole_command_does_not_import_the_check() -> None:
    script = "import sys; from ospltool.cli.app import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "ospltool.check.runner" not in done.stdout.splitlines()[-1].split()
    assert "check" in done.stdout
