from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import ConfigError, load_fleet
from engine.config.fleet import MAX_NODES


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


NODE = '[[node]]\nname = "a"\nfile = "f"\n'


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "at least one"),
        ("[[node]\n", 1, "Expected"),
        ("x = 1\n[[node]]\nname = \n", 3, "Invalid value"),
        (NODE + "[[nodes]]", 1, "unknown key 'nodes'"),
        ("node = 3", 1, "at least one"),
        ("node = [3]", 1, "table"),
        ('\n[[node]]\nname = "a"', 2, "lacks file"),
        (NODE + "\n" + NODE, 5, "two nodes are called 'a'"),
        ('[[node]]\nname = 3\nfile = "f"', 1, "name of a node must be a text"),
        (NODE + "env = { A = 1 }", 1, "table of texts"),
        (NODE + "rôle = 1", 4, ""),
        (NODE + "color = 1", 1, "unknown key 'color'"),
        (b"\n\xff", 2, "UTF-8"),
        ("a = " + "[" * 100_000, 1, ""),
        (NODE * (MAX_NODES + 1), 1, "at most"),
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
