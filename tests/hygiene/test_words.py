"""Words that stand in no document, docstring, comment or message, because plain English has a better one."""

from __future__ import annotations

import io
import re
import tokenize
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

BANNED = re.compile(
    r"\b(?:can\s+not|who(?:m)?ever|octets|of\s+ours|so\s+(?:many|much|often)|anew|as\s+far\s+as|slaves?)\b",
    re.IGNORECASE,
)
"""cannot, the actor's name, bytes, our own, N, again, if or where, follower."""
TEXTS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
DATA = (".toml", ".tcss", ".sql", ".xml")
OPENSPLICE = ("opensplice.tsv",)
"""Texts of OpenSplice itself."""


def texts_of(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Line and text of everything in a file that people read."""
    if path.suffix != ".py":
        yield 1, path.read_text("utf-8")
        return
    for token in tokenize.tokenize(io.BytesIO(path.read_bytes()).readline):
        if token.type in TEXTS:
            yield token.start[0], token.string


def test_no_text_has_a_word_that_plain_english_has_a_better_one_for(
    tracked: list[pathlib.Path], root: pathlib.Path
) -> None:
    found = []
    for path in tracked:
        name = path.relative_to(root)
        if name.parts[0] in ("tests", "CHANGELOG.md") or path.name in OPENSPLICE:
            continue
        if path.suffix in (".py", ".md", *DATA):
            for line, text in texts_of(path):
                for match in BANNED.finditer(text):
                    place = line + text.count("\n", 0, match.start())
                    found.append(f"{name}:{place}: {match[0]}")
    assert found == []
