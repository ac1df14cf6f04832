"""Content filters that apply to nothing say so."""

from __future__ import annotations

from typing import Any

import pytest

from engine.config.settings import ContentFilterSettings
from engine.node.process import ContentFilters


class Heard:
    """A tracer that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def event(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))


@pytest.mark.parametrize(
    ("content", "topics", "cause"),
    [
        ("v < 5", (), "it has no PartitionTopic"),
        ("  ", ("p.T",), "its condition is empty"),
        ("v < 5", ("p.T",), None),
    ],
)
def test_a_filter_without_effect_is_reported(
    content: str, topics: tuple[str, ...], cause: str | None
) -> None:
    heard: Any = Heard()
    origin: Any = "n1.xml:7:5"
    ContentFilters([ContentFilterSettings(content, topics, origin)], heard)
    expected = [("filter.ignored", {"place": origin, "cause": cause})] if cause else []
    assert heard.events == expected
