from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import ConfigError
from engine.config.fleet import MAX_NODES, load_fleet


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "fleet.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_node_has_a_file_beside_the_fleet_a_role_and_variables(tmp_path: Path) -> None:
    text = """
[[node]]
name = "a"
file = "x/a.xml"
[[node]]
name = "b"
file = "/abs/b.xml"
role = "R"
env = { P = "1" }
"""
    fleet = load_fleet(written(tmp_path, text))
    a, b = fleet.nodes
    assert (a.file, a.role, dict(a.env), a.line) == (str(tmp_path / "x/a.xml"), None, {}, 2)
    assert (b.file, b.role, b.environ({"P": "0", "Q": "2"})) == ("/abs/b.xml", "R", {"P": "1", "Q": "2"})
    assert fleet.node("b") is b
    assert fleet.node("c") is None


def test_a_uri_stays_a_uri(tmp_path: Path) -> None:
    fleet = load_fleet(written(tmp_path, '[[node]]\nname = "a"\nfile = "file:///x.xml"'))
    assert fleet.nodes[0].file == "file:///x.xml"


SPACE = '[[name-space]]\nname = "s"\n'
NODE = '[[node]]\nname = "a"\nfile = "f"\n'


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "at least one"),
        ("[[node]\n", 1, "Expected"),
        ("x = 1\n[[node]]\nname = \n", 3, "Invalid value"),
        (NODE + "[[nodes]]", 4, "unknown key 'nodes'"),
        ("node = 3", 1, "at least one"),
        ("node = [3]", 1, "table"),
        ('\n[[node]]\nname = "a"', 2, "lacks file"),
        (NODE + "\n" + NODE, 5, "two nodes are called 'a'"),
        ('[[node]]\nname = 3\nfile = "f"', 2, "name of a node must be a text"),
        (NODE + "env = { A = 1 }", 4, "table of texts"),
        (NODE + "rôle = 1", 4, ""),
        (NODE + "color = 1", 4, "unknown key 'color'"),
        (b"\n\xff", 2, "UTF-8"),
        (NODE + f"more = {'9' * 5_000}", 1, "a number is too long"),
        ("a = " + "[" * 100_000, 1, ""),
        (NODE * (MAX_NODES + 1), 1, "at most"),
        ("domain = 231\n" + NODE, 1, "domain must be a number from 0 to 230, not '231'"),
        (NODE + "domain = true", 4, "domain must be"),
        (NODE + "[[name-space]]\ncopies = 1", 4, "a name-space lacks name"),
        (NODE + SPACE + "copies = 2", 6, "copies must be a number from 0 to 1"),
        (NODE + SPACE + "copies = 'x'", 6, "copies must be a number"),
        (NODE + SPACE + "on-disk = -1", 6, "on-disk must be a number"),
        (NODE + SPACE + "disk = 1", 6, "unknown key 'disk' of a name-space; it has copies, domain, name"),
        (NODE + SPACE + SPACE, 7, "two name-spaces are called 's'"),
        ("name-space = 3\n" + NODE, 1, "[[name-space]] tables"),
    ],
)
def test_a_wrong_fleet_is_refused_with_file_and_line(
    tmp_path: Path, text: str | bytes, line: int, words: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_fleet(path)
    assert caught.value.path == str(path)
    assert caught.value.line == line
    assert words in str(caught.value)
    assert str(caught.value).replace("\n", "").isprintable()


def test_a_missing_fleet_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_fleet(tmp_path / "none.toml")


def test_a_place_has_a_column(tmp_path: Path) -> None:
    path = written(tmp_path, NODE + SPACE + "   copies = 9")
    with pytest.raises(ConfigError, match=r"fleet.toml:6:4: copies must be a number"):
        load_fleet(path)


def test_what_is_expected_is_of_the_domain_that_it_names(tmp_path: Path) -> None:
    text = (
        'domain = 7\n[[node]]\nname = "a"\n[[node]]\nname = "b"\ndomain = 8\n'
        + SPACE
        + "copies = 2\non-disk = 1"
    )
    fleet = load_fleet(written(tmp_path, text), only_watched=True)
    assert [(node.name, node.file, node.domain) for node in fleet.nodes] == [("a", "", 7), ("b", "", 8)]
    (space,) = fleet.name_spaces
    assert (space.name, space.copies, space.on_disk, space.domain) == ("s", 2, 1, 7)
