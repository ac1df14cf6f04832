"""Escapes that make text from files and networks safe for a trace and a terminal, and their reversal.

Everything that does not print (control characters, line ends, direction marks, broken surrogates) becomes a
backslash escape, and the backslash itself is doubled, so that `unescape` restores the original.
"""

from __future__ import annotations

import re
from typing import Final

_NAMED: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_FROM_NAMED: Final = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE: Final = re.compile(r"\\(?:([\\nrt])|x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")


def escape(text: str) -> str:
    """Return `text` with everything that does not print escaped; the same object if nothing was."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    named = _NAMED.get(character)
    if named is not None:
        return named
    if character.isprintable():
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def unescape(text: str) -> str:
    """Return the text before `escape`; a backslash that begins no escape stays."""
    return _ESCAPE.sub(_unescape_match, text)


def _unescape_match(match: re.Match[str]) -> str:
    if match[1]:
        return _FROM_NAMED[match[1]]
    code = int(match[2] or match[3] or match[4], 16)
    return chr(code) if code <= 0x10FFFF else match[0]
