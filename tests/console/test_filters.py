from __future__ import annotations

import pytest

from ospltool.views.view import Filter

VALUES = {"node": "n1", "role": "Master", "state": "complete"}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", True),
        ("n1", True),
        ("N1", True),
        ("n2", False),
        ("n1 complete", True),
        ("n1 fetch", False),
        ("!n2", True),
        ("!n1", False),
        ("role:mas", True),
        ("role:n1", False),
        ("!role:slave", True),
        ("!role:mas", False),
        ("other:n1", False),
        ("!", True),
        ("role:", True),
    ],
)
def test_all_words_must_hold(text: str, kept: bool) -> None:
    assert Filter.parse(text, ("node", "role", "state")).matches(VALUES) is kept


def test_terms_of_a_skipped_field_do_not_count() -> None:
    assert Filter.parse("ns:orders n1", ("ns",)).matches(VALUES, skip=("ns",))


@pytest.mark.parametrize(("text", "kept"), [("", True), ("ns:ord", True), ("ns:tele", False), ("n9", True)])
def test_a_field_can_be_asked_alone(text: str, kept: bool) -> None:
    assert Filter.parse(text, ("ns",)).matches_field("ns", "Orders") is kept
