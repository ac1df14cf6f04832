"""The published schemas of JSON: they are those of the types, and break no program that reads the output."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from docs import json_schemas
from ospltool.views.pages import PAGES
from tests import json_documents

if TYPE_CHECKING:
    import pathlib

UNPUBLISHED = {"", "attached"}
"""Part of a document, and a file in a case."""
MADE_BY = re.compile(r'\b(?:envelope\.line|document)\(\s*"([\w-]*)"')


def test_schemas_are_made_from_the_types() -> None:
    published = {path.name: path.read_text("utf-8") for path in json_schemas.DIRECTORY.iterdir()}
    assert json_schemas.refusals() == []
    assert published == json_schemas.files(), "run `python -m docs.json_schemas`"


def test_every_kind_of_document_has_a_schema(modules: list[pathlib.Path], root: pathlib.Path) -> None:
    product = [path for path in modules if path.relative_to(root).parts[0] == "ospltool"]
    made = {name for path in product for name in MADE_BY.findall(path.read_text("utf-8"))}
    assert made - json_schemas.KINDS.keys() == UNPUBLISHED
    assert PAGES.keys() - json_schemas.KINDS.keys() == set()
    assert len(made) > 50


def check_breaks(change: Any, expected: list[str]) -> None:
    """What is broken by a change of the types of `health`."""
    old = json_schemas.schema("health")
    new = copy.deepcopy(old)
    change(new["$defs"])
    assert json_schemas.breaks(old, new) == expected


CASES = {
    "a field that is added": (lambda d: d["Copies"]["properties"].update(new={"type": "null"}), []),
    "a narrower type": (lambda d: d["IncidentData"]["properties"].update(who={"enum": ["n1"]}), []),
    "a field that goes": (
        lambda d: d["Copies"]["properties"].pop("left"),
        ["/data/*/redundancy/*/left: gone"],
    ),
    "a field that becomes optional": (
        lambda d: d["DomainHealth"]["required"].remove("verdict"),
        ["/data/*/verdict: optional now"],
    ),
    "another type": (
        lambda d: d["StandingMute"]["properties"].update(until_ns={"type": "string"}),
        ["/data/*/mutes/*/until_ns: now also string"],
    ),
    "an integer whose digits were no string": (
        lambda d: d["StandingMute"]["properties"].update(until_ns={"$ref": "#/$defs/Integer"}),
        ["/data/*/mutes/*/until_ns: now also Integer"],
    ),
    "null beside a type": (
        lambda d: d["EndedMute"]["properties"].update(why={"type": ["string", "null"]}),
        ["/data/*/ended_mutes/*/why: now also null"],
    ),
    "any value": (
        lambda d: d["DomainHealth"]["properties"].update(expected_nodes={}),
        ["/data/*/expected_nodes: any value"],
    ),
    "items of another type": (
        lambda d: d["DomainHealth"]["properties"]["expected_nodes"].update(items={"type": "integer"}),
        ["/data/*/expected_nodes/*: now also integer"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_field_neither_goes_nor_changes_its_type_unnoticed(name: str) -> None:
    check_breaks(*CASES[name])


def test_a_document_with_an_unknown_field_is_no_document_of_ours() -> None:
    good: dict[str, Any] = {"format_version": 1, "kind": "trace-count", "data": {"records": 3}}
    assert json_documents.faults(json.loads(json.dumps(good))) == []
    for data in ({"records": 3, "more": 1}, {"records": "three"}, {}):
        assert json_documents.faults({**good, "data": data}) != []
