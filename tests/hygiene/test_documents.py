"""The documents: their links lead somewhere, what they name is there, and the site needs nobody else."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from engine.supervisor.policy import EXIT_CONFIGURATION

HOLDER = re.compile(
    r"`(?P<test>tests/[\w/]+(?:\.py)?)`|(?:contracts? |and )\"(?P<contract>[^\"]+)\""
    r"|(?:rules? |and )(?P<rule>I\d+)"
)
RULE = re.compile(r"\b(?:never|always|must|only|no other|nothing else)\b")
"""Words of sentences that promise something for ever."""
NAMED = re.compile(r"`((?:engine|ospltool|tui)(?:\.(?!py\b)[A-Za-z_]\w*)+)")
"""A module of the product in a text, or a name in one."""
BOUNDS = {
    "all": 29_950,
    "performance.md": 1200,
    "reliability.md": 1500,
}
"""The most words of a page for users, where it is not 2,000, and of all of them."""
MADE = {"settings", "states"}
FOREIGN = re.compile(
    r"""(?:src|srcset)=["'](?:https?:)?//|<link[^>]+href=["'](?:https?:)?//|url\(["']?https?://"""
)


def written(docs: pathlib.Path) -> list[pathlib.Path]:
    """Return the pages that are read one by one, not those of single rules and health codes."""
    return [*docs.glob("*.md"), *docs.glob("internals/*.md")]


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(
    root: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is in the dependency group docs, not in test")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = [*(tmp_path / "site").rglob("*.html"), *(tmp_path / "site").rglob("*.css")]
    assert len(pages) > 20
    assert [page.name for page in pages if FOREIGN.search(page.read_text(encoding="utf-8"))] == []


def test_what_holds_a_rule_of_the_architecture_is_there(root: pathlib.Path) -> None:
    text = " ".join((root / "ARCHITECTURE.md").read_text("utf-8").split())
    contracts = (root / "pyproject.toml").read_text("utf-8")
    simulator = (root / "docs" / "internals" / "simulator.md").read_text("utf-8")
    named = list(HOLDER.finditer(text))
    assert len(named) > 25
    assert [each["test"] for each in named if each["test"] and not (root / each["test"]).exists()] == []
    assert [
        each[0] for each in named if each["contract"] and f'name = "{each["contract"]}' not in contracts
    ] == []
    assert [each[0] for each in named if each["rule"] and f"| {each['rule']} |" not in simulator] == []


def test_the_architecture_is_read_in_ten_minutes(root: pathlib.Path) -> None:
    assert len((root / "ARCHITECTURE.md").read_text("utf-8").split()) <= 1200


def test_every_rule_of_the_architecture_names_what_holds_it(root: pathlib.Path) -> None:
    text = (root / "ARCHITECTURE.md").read_text("utf-8")
    table = text.partition("| Rule | Held by |\n|---|---|\n")[2].partition("\n\n")[0]
    assert [row for row in table.splitlines() if not HOLDER.search(row.rsplit(" | ", 1)[1])] == []
    pieces = re.split(r"\n\n|\n(?=\||- |\d\. )", text)
    assert [piece for piece in pieces if RULE.search(piece) and not HOLDER.search(piece)] == []


def test_the_index_and_the_site_list_every_page(root: pathlib.Path) -> None:
    docs = root / "docs"
    pages = {str(page.relative_to(docs)) for page in written(docs)} - {"index.md"}
    index = (root / "docs" / "index.md").read_text("utf-8")
    site = (root / "mkdocs.yml").read_text("utf-8")
    assert {page for page in pages if f"({page}" not in index or page not in site} == set()


def test_a_page_links_a_term_where_it_first_uses_it(root: pathlib.Path) -> None:
    """Each page that people wrote, not one that a module makes."""
    others = {"index", "glossary"} | MADE
    pages = [page for page in written(root / "docs") if page.stem not in others]
    unlinked = [page.name for page in pages if "glossary.md#" not in page.read_text("utf-8")]
    assert unlinked == []


def test_pages_for_users_are_short_and_name_no_tests(root: pathlib.Path) -> None:
    """The sum is without the pages of single rules and health codes, whose number features decide."""
    docs = root / "docs"
    texts = {
        str(page.relative_to(docs)): page.read_text("utf-8")
        for folder in (docs, docs / "rules", docs / "health")
        for page in folder.glob("*.md")
    }
    words = {name: len(text.split()) for name, text in texts.items()}
    assert {name: size for name, size in words.items() if size > BOUNDS.get(name, 2000)} == {}
    assert sum(size for name, size in words.items() if "/" not in name) <= BOUNDS["all"]
    assert [name for name, text in texts.items() if HOLDER.search(text)] == []


def test_systemd_takes_the_unit_of_a_node(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    page = (root / "docs" / "service.md").read_text("utf-8")
    unit = page.partition("```ini\n")[2].partition("```")[0]
    assert f"\nRestartPreventExitStatus={EXIT_CONFIGURATION}\n" in unit
    analyze = shutil.which("systemd-analyze") or pytest.skip("there is no systemd here")
    command = str(pathlib.Path(sys.executable).with_name("ospltool"))
    file = tmp_path / "ospltool.service"
    file.write_text(unit.replace("/opt/ospltool/bin/ospltool", command).replace("User=ospltool", "User=root"))
    done = subprocess.run([analyze, "verify", file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_page_that_is_made_says_how_and_contributing_too(root: pathlib.Path) -> None:
    ways = (root / "CONTRIBUTING.md").read_text("utf-8")
    made = {path for path in (root / "docs").rglob("*.md") if "<!-- Made by" in path.read_text("utf-8")}
    commands = {re.findall(r"Made by `([^`]+)`", path.read_text("utf-8"))[0] for path in made}
    assert {path.stem for path in made if path.parent.name in {"docs", "internals"}} == MADE
    assert {command for command in commands if command not in ways} == set()


def test_the_table_of_packages_names_modules_that_are_there(root: pathlib.Path) -> None:
    """In the row of a package, a word in code font is one of its modules or folders."""
    text = (root / "ARCHITECTURE.md").read_text("utf-8")
    rows = text.partition("| Package | Contents |\n|---|---|\n")[2].partition("\n\n")[0].splitlines()
    missing = []
    for row in rows:
        packages, contents = row.strip("| ").split(" | ", 1)
        words = re.findall("`([a-z_]+)`", contents)
        names = [f"ospltool{name}" if name[0] == "." else name for name in re.findall("`([^`]+)`", packages)]
        folders = [root / name.replace(".", "/") for name in names]
        there = {path.stem for folder in folders for path in folder.rglob("*") if path.suffix in {".py", ""}}
        missing += [f"{names[0]}: {word}" for word in words if word not in there]
    assert len(rows) > 12
    assert missing == []


def named_in_vain(texts: dict[str, str], sources: dict[str, str]) -> list[str]:
    """What texts name and the sources, by module, do not have; names of the wire are strings there."""
    packages = {".".join(module.split(".")[:size]) for module in sources for size in range(1, 6)}
    everything = "\n".join(sources.values())
    wrong = set()
    for place, text in texts.items():
        for name in NAMED.findall(text):
            parts = name.split(".")
            size = max(size for size in range(1, len(parts) + 1) if ".".join(parts[:size]) in packages)
            source = sources.get(".".join(parts[:size]), "").split('"""', 2)[-1]  # without its docstring
            is_there = size == len(parts) or re.search(rf"\b{parts[size]}\b", source)
            if not is_there and f'"{name}"' not in everything:
                wrong.add(f"{place}: {name}")
    return sorted(wrong)


def test_what_a_document_or_docstring_names_is_there(
    tracked: list[pathlib.Path], modules: list[pathlib.Path], root: pathlib.Path
) -> None:
    """A renamed module leaves its name behind in texts, which no other tool reads."""
    code = {path.relative_to(root): path.read_text("utf-8") for path in modules}
    sources = {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__"): source
        for path, source in code.items()
    }
    texts = {str(path): source for path, source in code.items() if path.name != "test_documents.py"}
    for path in tracked:
        if path.suffix in {".md", ".toml", ".c"} and path.name != "CHANGELOG.md":
            texts[str(path.relative_to(root))] = path.read_text("utf-8")
    assert len(texts) > 500
    assert named_in_vain(texts, sources) == []


def test_a_name_left_behind_is_found() -> None:
    sources = {
        "engine.core": "",
        "engine.core.node": "class Node: ...",
        "engine.wire": 'KIND = "engine.kind"',
    }
    gone = ["engine.core.node.Gone.run", "engine.core.nodes"]
    text = "See `engine.core.node.Node.run`, `engine.kind`, " + ", ".join(f"`{name}`" for name in gone)
    assert named_in_vain({"a.md": text}, sources) == [f"a.md: {name}" for name in gone]
