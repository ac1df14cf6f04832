"""From paths, URIs, fleet files and options to what is checked, and files that cannot be read."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import ConfigError, parse
from ospltool.check.inputs import UsageError, gather, named_nodes
from ospltool.check.registry import RuleInput
from ospltool.check.runner import Choice, examine, run
from ospltool.cli.app import main
from ospltool.diagnostics.model import Report, Severity, Target


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """The report over paths below a directory that is the current one."""
    monkeypatch.chdir(tmp_path)

    def check(*paths: str, together: bool = False, skip_others: bool = False) -> Report:
        inputs = gather(paths, {}, together=together, skip_others=skip_others)
        return run((examine(each) for each in inputs), Choice())

    return check


def codes(report: Report) -> list[str]:
    return [each.code for each in report.diagnostics]


BAD_FILES: dict[str, tuple[str, bytes]] = {
    "empty": ("DUR004", b""),
    "not xml": ("DUR004", b"<OpenSplice><Domain></OpenSplice>"),
    "dtd": ("DUR005", b"<!DOCTYPE a [<!ELEMENT a ANY>]><OpenSplice/>"),
    "entity": (
        "DUR005",
        b'<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><OpenSplice>&e;</OpenSplice>',
    ),
    "nul": ("DUR003", b"<OpenSplice>\0</OpenSplice>"),
    "utf-16": ("DUR003", "<OpenSplice/>".encode("utf-16")),
    "bad utf-8": ("DUR003", b"<OpenSplice>\xff</OpenSplice>"),
    "deep": ("DUR002", b"<OpenSplice>" * 10_000),
    "other root": ("DUR006", b"<MetaData/>"),
    "large": ("DUR002", b"<OpenSplice>" + b" " * (1 << 20) + b"</OpenSplice>"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_a_finding_with_a_place_that_blocks_everybody(
    report: Callable[..., Report], tmp_path: Path, name: str
) -> None:
    code, content = BAD_FILES[name]
    (tmp_path / "f.xml").write_bytes(content)
    found = report("f.xml")
    assert codes(found) == [code]
    (each,) = found.diagnostics
    assert (each.place.path, each.blocks) == ("f.xml", frozenset(Target))
    assert each.place.line >= 1
    assert each.place.column >= 1
    assert found.files == ("f.xml",)


def test_a_missing_file_and_a_foreign_scheme_are_findings(report: Callable[..., Report]) -> None:
    assert codes(report("none.xml", "http://host/f.xml", "file://")) == ["DUR001"] * 3


def test_every_rule_about_unreadable_files_is_covered(rule_codes: Callable[[RuleInput], list[str]]) -> None:
    assert set(rule_codes(RuleInput.FILE)) == {code for code, _ in BAD_FILES.values()} | {
        "DUR001",
        "DUR007",
        "DUR008",
    }


def test_a_uri_and_a_path_give_the_same(report: Callable[..., Report], tmp_path: Path, clean: str) -> None:
    path = tmp_path / "a b.xml"
    path.write_text(clean)
    assert report(str(path)).files == ("a b.xml",)
    assert report(path.as_uri()).diagnostics == ()


def test_a_directory_gives_its_configurations_and_counts_the_rest(
    report: Callable[..., Report], tmp_path: Path, clean: str
) -> None:
    (tmp_path / "b" / ".hidden").mkdir(parents=True)
    (tmp_path / "b" / "z.xml").write_text(clean)
    (tmp_path / "b" / "a.xml").write_text(clean.replace("<Id>3", "<Id>x"))
    (tmp_path / "b" / "pom.xml").write_text("<project/>")
    (tmp_path / "b" / "page.xml").write_text("<!DOCTYPE html><html/>")
    (tmp_path / "b" / "broken.xml").write_text("<OpenSplice>")
    (tmp_path / "b" / ".hidden" / "h.xml").write_text(clean)
    found = report("b")
    assert found.files == ("b/a.xml", "b/broken.xml", "b/z.xml")
    assert found.skipped == ("b/page.xml", "b/pom.xml")
    assert codes(found) == ["DUR102", "DUR004"]


def test_named_files_of_another_kind_are_left_out_only_on_request(
    report: Callable[..., Report], tmp_path: Path
) -> None:
    (tmp_path / "pom.xml").write_text("<project/>")
    assert codes(report("pom.xml")) == ["DUR006"]
    assert report("pom.xml", skip_others=True).skipped == ("pom.xml",)


FLEET = """
[[node]]
name = "a"
file = "x.xml"
[[node]]
name = "b"
file = "x.xml"
role = "R"
env = { ID = "4" }
"""


def test_a_fleet_file_names_nodes_with_role_and_variables(
    report: Callable[..., Report], tmp_path: Path, varied: Callable[..., str]
) -> None:
    (tmp_path / "x.xml").write_text(varied(("<Id>3", "<Id>${ID:-3}")))
    (tmp_path / "fleet.toml").write_text(FLEET)
    found = report("fleet.toml")
    assert "DUR740" in codes(found)
    assert found.files == ("fleet.toml", "x.xml")
    in_directory = report(".")
    assert codes(in_directory) == codes(found), "a file of a fleet is not checked a second time by itself"


@pytest.mark.parametrize(("domain", "is_told"), [("", True), ("domain = 4", False), ("domain = 5", True)])
def test_nodes_that_the_fleet_file_puts_into_another_domain_need_not_meet(
    report: Callable[..., Report], tmp_path: Path, varied: Callable[..., str], domain: str, is_told: bool
) -> None:
    (tmp_path / "x.xml").write_text(varied(("<Id>3", "<Id>${ID:-3}")))
    (tmp_path / "fleet.toml").write_text(FLEET + domain)
    assert ("DUR740" in codes(report("fleet.toml"))) is is_told


def test_what_all_nodes_of_a_file_have_in_common_is_said_once(
    report: Callable[..., Report], tmp_path: Path, varied: Callable[..., str]
) -> None:
    (tmp_path / "x.xml").write_text(varied(("<Verbosity>INFO", "<Verbosity>FINEST")))
    (tmp_path / "fleet.toml").write_text(FLEET)
    (found,) = [each for each in report("fleet.toml").diagnostics if each.code == "DUR721"]
    assert found.nodes == ("a", "b")


@pytest.mark.parametrize("text", ["[[node]]\nname=1", "x", "[[nodes]]", "node = {"])
def test_a_wrong_fleet_file_is_a_finding_in_it(
    report: Callable[..., Report], tmp_path: Path, text: str
) -> None:
    (tmp_path / "fleet.toml").write_text(text)
    found = report("fleet.toml")
    assert set(codes(found)) == {"DUR007"}
    assert found.diagnostics[0].place.path == "fleet.toml"
    assert found.diagnostics[0].blocks == {Target.OSPLTOOL}, "OpenSplice has no fleet files"


def test_a_file_of_a_fleet_that_cannot_be_read_is_a_finding_for_its_node(
    report: Callable[..., Report], tmp_path: Path
) -> None:
    (tmp_path / "fleet.toml").write_text('[[node]]\nname = "a"\nfile = "none.xml"\n')
    (found,) = report("fleet.toml").diagnostics
    assert (found.code, found.nodes) == ("DUR001", ("a",))


def test_plain_files_stand_for_themselves_unless_they_are_taken_together(
    report: Callable[..., Report], tmp_path: Path, clean: str, varied: Callable[..., str]
) -> None:
    (tmp_path / "a.xml").write_text(clean)
    (tmp_path / "b.xml").write_text(varied(("<Id>3", "<Id>4")))
    assert codes(report("a.xml", "b.xml")) == []
    (found,) = [each for each in report("a.xml", "b.xml", together=True).diagnostics if each.code == "DUR740"]
    assert found.nodes == ("b",)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.xml").write_text(varied(("<Id>3", "<Id>5")))
    nodes = {
        each.nodes for each in report("a.xml", "d/a.xml", together=True).diagnostics if each.code == "DUR740"
    }
    assert nodes == {("d/a.xml",)}, "one name for two files tells nothing"


def test_nodes_and_variables_of_the_command_line(tmp_path: Path) -> None:
    deployment, common = named_nodes(["a=x.xml", "b=file:///y.xml"], ["V=1", "a:V=2", "b:W="], {"U": "0"})
    assert common == {"U": "0", "V": "1"}
    assert deployment is not None
    a, b = deployment.nodes
    assert (a.name, a.uri, a.environ) == ("a", "x.xml", {"U": "0", "V": "2"})
    assert (b.name, b.uri, b.environ) == ("b", "file:///y.xml", {"U": "0", "V": "1", "W": ""})


@pytest.mark.parametrize(
    ("nodes", "variables"),
    [(["a"], []), (["=x"], []), (["a="], []), (["a=x", "a=y"], []), ([], ["V"]), ([], ["=1"]), ([], ["n:=1"]),
     ([], ["n:V=1"]), (["m=x"], ["n:V=1"])],
)  # fmt: skip
def test_malformed_options_are_refused(nodes: list[str], variables: list[str]) -> None:
    with pytest.raises(UsageError):
        named_nodes(nodes, variables, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<CycloneDDS><Domain/></CycloneDDS>", "a configuration of Cyclone DDS itself"),
        ('<dds><qos_library name="l"/></dds>', "QoS profiles"),
        ("<MetaData/>", "describes a type"),
    ],
)
def test_xml_of_another_kind_is_named_as_what_it_is(
    text: str, said: str, checked: Callable[..., Report]
) -> None:
    (only,) = checked(text).diagnostics
    assert only.code == "DUR006"
    assert said in only.advice


def test_an_unset_variable_is_one_finding_with_its_places(checked: Callable[..., Report], clean: str) -> None:
    text = (
        clean.replace("<Role>Harbour", "<Role>${SITE}")
        .replace("/var/lib", "${SITE}")
        .replace("/var/log", "${SITE}")
    )
    (only,) = checked(text, codes=["DUR011"]).diagnostics
    assert "and 2 more places" in only.message
    assert len(only.related) == 2


@pytest.mark.parametrize(
    ("old", "code", "severity", "said"),
    [
        (">/var/lib/durability/n1<", "DUR604", Severity.ERROR, "persistent data has nowhere to go"),
        (">ddsi2<", "DUR703", Severity.ERROR, "a service has no command"),
        (">/var/log/durability-n1.log<", "DUR723", Severity.WARNING, "becomes ''"),
    ],
)
def test_what_a_variable_leaves_empty_is_one_finding(
    old: str, code: str, severity: Severity, said: str, checked: Callable[..., Report], clean: str
) -> None:
    """It is as severe as that of an empty value."""
    assert old in clean
    (only,) = checked(clean.replace(old, ">${SITE}<"), codes=["DUR011", code]).diagnostics
    assert (only.code, only.severity) == ("DUR011", severity)
    assert said in only.message
    (empty,) = checked(clean.replace(old, "><"), codes=["DUR011", code]).diagnostics
    assert (empty.code, empty.severity) == (code, severity)
    assert empty.blocks == only.blocks


def test_a_number_that_a_variable_leaves_empty_is_no_finding_of_its_own(
    checked: Callable[..., Report], clean: str
) -> None:
    text = clean.replace(">4.0</ExpiryTime>", ">${SITE}</ExpiryTime>").replace(">3.0<", ">${SITE}<")
    assert text.count("${SITE}") == 3
    assert [one.code for one in checked(text, codes=["DUR011", "DUR102"]).diagnostics] == ["DUR011"]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("<a>\n <b c=1>\n</b></a>", "2:7", "the value of 'c' has no quotes"),
        ("<a>\n <b c=“1”>\n</b></a>", "2:7", "the value of 'c' is in typographic quotes"),
        ('<a>\n <b c="1>\n</b></a>', "2:7", "the value of 'c' has no closing quote"),
        ('<a>\n <b c="1 d="2">\n</b></a>', "2:7", "the value of 'c' has no closing quote"),
        ("<a>\n <b c='1' d='2>\n </b></a>", "2:13", "the value of 'd' has no closing quote"),
        ('<a>\n <b c="1"d="2"/></a>', "2:10", "a blank is missing after the value of 'c'"),
        ("<a>\n <b c/></a>", "2:5", "the attribute 'c' has no value"),
        ('<a>\n <b c="1" c="2"/></a>', "2:11", "the attribute 'c' is given twice"),
        ("<a>\n <b\n</a>", "2:2", "the tag <b> is not closed with >"),
        ("<a>\n</a>\n\n<b/>", "4:1", "<b> is a second root element after the end of <a>"),
        ("<a>\n</a>\ntext", "3:1", "there is text after the end of <a>"),
        ("\n# é\n<a>\n</a>", "2:1", "there is text before the root element"),
        ('<!-- a -->\n<?xml version="1.0"?>\n<a/>', "2:1", "<?xml …?> is not the first thing in the file"),
        ("<a>\né x & y</a>", "2:5", "this & begins no entity"),
        ("<a>\n&foo;</a>", "2:1", "there is no entity '&foo;'"),
        ("<a>\n1 < 2</a>", "2:3", "this < begins no tag"),
        ("<a>\n<!-- 1 -- 2 --></a>", "2:8", "a comment must not contain --"),
        ("<a>\n<!-- 1 </a>", "2:1", "this comment is not closed with -->"),
        ("<a>\n<b>\n</a>", "3:3", "this end tag does not close <b>, which was opened in line 2"),
        ("<a>\n<b>\n", "3:1", "the file ends, but <b> of line 2 is not closed"),
        ("<a>\n\x01</a>", "2:1", r"the character \x01 is not allowed in XML"),
        (" \n", "1:1", "the file is empty"),
    ],
)
def test_a_file_that_is_no_xml_says_where_and_why(text: str, place: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text.encode(), "f.xml", {})
    (problem,) = caught.value.problems
    assert (f"{problem.line}:{problem.column}", problem.message) == (place, words)


@pytest.mark.parametrize(
    ("text", "blocked"),
    [
        ("<OpenSplice>", frozenset(Target)),
        ("<CycloneDDS><Domain>", {Target.OSPLTOOL}),
        ("# settings\n<CycloneDDS/>", {Target.OSPLTOOL}),
        ("<dds><qos_library>", set()),
        ('<dds><persistence_service name="a>', {Target.OSPLTOOL}),
        ("<MetaData/>", frozenset(Target)),
    ],
)
def test_a_broken_file_keeps_those_from_starting_that_read_it(
    report: Callable[..., Report], tmp_path: Path, text: str, blocked: set[Target]
) -> None:
    (tmp_path / "f.xml").write_text(text)
    (found,) = report("f.xml").diagnostics
    assert found.blocks == blocked


def test_nothing_vanishes_from_a_directory(report: Callable[..., Report], tmp_path: Path, clean: str) -> None:
    (tmp_path / "d").mkdir()
    broken = {
        "cut": "<CycloneDDS><Domain>",
        "empty": "",
        "helm": "{{- if .Values.dds }}\n<CycloneDDS/>\n{{- end }}",
        "misspelt": "<OpenSplcie><Domain>",
        "service": "<dds><persistence_service>",
        "utf-16": "<CycloneDDS/>",
    }
    for name, text in broken.items():
        (tmp_path / "d" / f"{name}.xml").write_text(text, "utf-16" if name == "utf-16" else "utf-8")
    (tmp_path / "d" / "map.yaml").write_text("data:\n  c.xml: |\n    <CycloneDDS/>\n")
    (tmp_path / "d" / "values.yaml").write_text("domain: 7\n")
    (tmp_path / "d" / "n.xml.in").write_text(clean)
    (tmp_path / "d" / "pom.xml").write_text("<project><")
    found = report("d")
    assert found.files == tuple(sorted((*(f"d/{name}.xml" for name in broken), "d/map.yaml", "d/n.xml.in")))
    assert found.skipped == ("d/pom.xml",)
    assert sorted(codes(found)) == ["DUR003", *["DUR004"] * 4, "DUR008", "DUR008"]


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        (">ship*<", ">{{ .Values.partition }}.x<", (30, 42)),
        ("<Id>3", "<Id>{{- .Values.id | default\n 3 -}}", (5, 9)),
        ("<OpenSplice>", "{{- if .Values.x }}\n<OpenSplice>", (2, 1)),
        ("<Id>3", "<Id>{% if a %}3{% endif %}", (5, 9)),
        ("<Id>3", "<Id>{# of the site #}3", (5, 9)),
        ("<Id>3", "<Id><%= id %>", (5, 9)),
        ("<Id>3", "<Id>@ID@", (5, 9)),
        ("<OpenSplice>", "<!-- {{ .Values.x }} --><OpenSplice>", None),
    ],
)
def test_a_template_has_one_finding_that_says_so(
    report: Callable[..., Report], tmp_path: Path, clean: str, old: str, new: str,
    place: tuple[int, int] | None,
) -> None:  # fmt: skip
    assert old in clean
    text = clean.removeprefix('<?xml version="1.0" encoding="UTF-8"?>').replace(old, new, 1)
    (tmp_path / "n.xml").write_text(text)
    found = [
        (each.code, each.place.line, each.place.column, each.blocks) for each in report("n.xml").diagnostics
    ]
    assert found == ([("DUR008", *place, frozenset())] if place else [])


@pytest.mark.parametrize(
    ("name", "text", "place", "words"),
    [
        (
            "c.yaml",
            "data:\n  c.xml: |\n    <CycloneDDS/>\n",
            (3, 6),
            "is no XML, and has <CycloneDDS> inside",
        ),
        ("c.yaml", "name: {{ .Release.Name }}\nc.xml: |\n  <CycloneDDS/>\n", (1, 7), "this is a template"),
        ("c.tmpl", "<CycloneDDS><Domain Id='$ID'/></CycloneDDS>", (1, 25), "this is a template"),
    ],
)
def test_what_is_not_rendered_is_told_so_wherever_it_is_found(
    name: str, text: str, place: tuple[int, int], words: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / name).write_text(text)
    for options in (["d"], [f"d/{name}"], ["--try", f"d/{name}"], ["--fix", "d"]):
        assert main(["check", "--format", "concise", *options]) == 2
        (line,) = capfd.readouterr().out.splitlines()
        assert line.startswith(f"d/{name}:{place[0]}:{place[1]}: error[DUR008] ")
        assert words in line
    assert main(["explain", f"d/{name}"]) == 0
    out = capfd.readouterr().out
    # What stands in YAML can be explained, but not checked.
    is_there = f"First:   line {place[0]}, error DUR008" in out
    assert is_there if "template" in words else "settings of Cyclone DDS" in out
    assert "What:    d/c." in out


def test_the_text_of_the_variable_is_checked_as_an_argument_or_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.xml").write_text("<CycloneDDS><Domain><Foo/></Domain></CycloneDDS>")
    text = "<Tr><V>lots</></>, d.xml,"

    def check_lines(*expected: str) -> None:
        lines = capfd.readouterr().out.splitlines()
        assert [line[: line.index("] ") + 1] for line in lines] == list(expected)

    for given in (text, f"d.xml,{text}"):
        assert main(["check", "--format", "concise", given]) == 1
        column = given.index("lots") + 1
        check_lines(f"CYCLONEDDS_URI:1:{column}: error[DUR751]", "d.xml:1:22: error[DUR750]")
    assert main(["check", "--format", "concise", f"none.xml,{text}"]) == 2
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    capfd.readouterr()
    assert main(["check", "--format", "concise", "-"]) == 1
    check_lines("standard input:1:8: error[DUR751]")
    for given in (f"d.xml,{text}", f"file://{tmp_path}/d.xml,{text}"):
        assert main(["explain", given]) == 0
        assert "error DUR751: 'lots' is none of" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), "in this directory"),
        (("pom.xml", "a/b.xml"), "in this directory; it has 2 XML files of other kinds"),
    ],
)
def test_a_directory_without_a_configuration_is_an_error(
    report: Callable[..., Report], tmp_path: Path, clean: str, names: tuple[str, ...], words: str
) -> None:
    (tmp_path / "d" / "a").mkdir(parents=True)
    (tmp_path / "n.xml").write_text(clean)
    for name in names:
        (tmp_path / "d" / name).write_text("<project/>")
    (found,) = report("n.xml", "d").diagnostics
    assert (found.code, found.place.path, found.blocks) == ("DUR008", "d", frozenset())
    assert found.message == f"there is no configuration {words}"
