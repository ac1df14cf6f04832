"""JSON documents of commands, compared with the published schemas."""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema

PUBLISHED = pathlib.Path(__file__).parents[1] / "docs" / "json"


def strict(part: Any) -> Any:
    """A schema that refuses fields which it does not name, for a command must print no others."""
    if isinstance(part, list):
        return [strict(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {name: strict(each) for name, each in part.items()}
    is_object = part.get("type") == "object" and isinstance(part.get("properties"), dict)
    return {"additionalProperties": False, **found} if is_object else found


@functools.cache
def _validator(kind: str) -> jsonschema.Draft202012Validator:
    path = PUBLISHED / f"{kind}.json"
    return jsonschema.Draft202012Validator(strict(json.loads(path.read_text("utf-8"))))


def is_published(kind: str) -> bool:
    """Whether a kind has a schema; a test may make one that has none."""
    return (PUBLISHED / f"{kind}.json").exists()


def faults(document: Any) -> list[str]:
    """What a document has that its schema does not allow."""
    if not is_published(document["kind"]):
        return [f"no schema of {document['kind']!r}"]
    found = _validator(document["kind"]).iter_errors(document)
    return [f"{document['kind']}: {_deepest(each)}" for each in found]


def _deepest(error: Any) -> str:
    """The error of the form that fits best, where several are allowed."""
    while error.context:
        error = max(error.context, key=lambda each: len(each.absolute_path))
    return f"{error.json_path}: {error.message[:300]}"


def documents(text: str) -> Iterator[Any]:
    """Every document in the output of a command."""
    decoder, rest = json.JSONDecoder(), text.strip()
    while rest:
        found, end = decoder.raw_decode(rest)
        yield found
        rest = rest[end:].lstrip()


EACH_KIND = 40
"""Documents of each kind that a process of tests compares: more take time, and show nothing new."""
LONGEST = 100_000


def compared(
    envelope: Callable[[str, object], dict[str, object]],
) -> Callable[[str, object], dict[str, object]]:
    """The function that makes all documents, with a look at the first ones of each kind."""
    seen: dict[str, int] = {}

    def made(kind: str, data: object) -> dict[str, object]:
        document = envelope(kind, data)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= EACH_KIND and is_published(kind):
            text = json.dumps(document)
            found = faults(json.loads(text)) if len(text) <= LONGEST else []
            if found:
                raise AssertionError(found)
        return document

    return made
