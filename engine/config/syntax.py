"""What is wrong in a file that is no XML, in words for its author.

The parser stops where it cannot go on, which may be a line after the fault, and names what it lacks. Here the
text before that place is read again, for the faults that people make.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple
from xml.parsers.expat import errors

from engine.config.problems import printable, quoted

TYPOGRAPHIC: Final = "“”„‟‘’‚‛«»‹›″′"  # noqa: RUF001  # they are meant
"""Quotes of word processors."""
_HEAD: Final = re.compile(r"\ufeff?(?:\s+|<!--.*?-->|<\?.*?\?>)*", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_:][^\s<>/=\"']*")
_ATTRIBUTE: Final = re.compile(rf"[^\s<>/=\"'{TYPOGRAPHIC}]+")
_BLANKS: Final = re.compile(r"\s*")
_EQUALS: Final = re.compile(r"\s*=\s*")
_TEMPLATE: Final = re.compile(r"\{\{|\{%")
_ENTITY: Final = re.compile(r"&[^;<&\s]*;?")
_ENTITIES: Final = frozenset({"&lt;", "&gt;", "&amp;", "&quot;", "&apos;"})
# The longest entity that people write has ten characters; it only bounds how far a message looks back.
_LONGEST_ENTITY: Final = 64
# Names have 37 characters at most in the schema; it bounds the work for a value as long as the file.
_LONGEST_NAME: Final = 256
_BEGINS_VALUE: Final = re.compile(r"\s[\w:.-]+\s*=\s*\Z")


class SyntaxFault(NamedTuple):
    """A fault; `offset` counts characters, the hint may be empty."""

    offset: int
    message: str
    hint: str = ""


def explained(text: str, offset: int, code: int, root: str) -> SyntaxFault:
    """Explain why a file cannot be parsed.

    Args:
        text: the file.
        offset: characters before the place where the parser stopped.
        code: its error code.
        root: name of the root element, if that has ended; else empty.
    """
    error = errors.messages.get(code, "not well-formed")
    found = next(_faults(text, offset, error, root), SyntaxFault(offset, error))
    if not found.hint and _TEMPLATE.search(text):
        return found._replace(hint="this looks like a template: render it first, and check the result")
    return found


def root_name(text: str) -> str:
    """Return the name in the first start tag, also of a file that is no XML; empty without one."""
    rest = re.sub(r"<!--.*?(?:-->|\Z)|<[?!].*?(?:>|\Z)", " ", text, flags=re.DOTALL)
    found = re.search(r"<([A-Za-z_][\w.:-]*)", rest)
    return found[1] if found else ""


def _faults(text: str, offset: int, error: str, root: str) -> Iterator[SyntaxFault]:
    """Yield explanations, the best one first."""
    if not text.strip("\ufeff \t\r\n"):
        yield SyntaxFault(0, "the file is empty")
    if error == errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT:
        name = _NAME.match(text, offset + 1) if text.startswith("<", offset) else None
        what = f"<{printable(name[0])}> is a second root element" if name else "there is text"
        yield SyntaxFault(offset, f"{what} after the end of <{root}>", f"remove it, or put it into <{root}>")
    if error == errors.XML_ERROR_MISPLACED_XML_PI:
        yield SyntaxFault(offset, "<?xml …?> is not the first thing in the file", "remove what is before it")
    head = _HEAD.match(text)
    if not root and head and head.end() <= offset and not text.startswith("<", head.end()):
        yield SyntaxFault(head.end(), "there is text before the root element", "remove it")
    yield from _of_comment(text, offset, error)
    yield from _of_entity(text, offset, error)
    if error == errors.XML_ERROR_DUPLICATE_ATTRIBUTE and (twice := _ATTRIBUTE.match(text, offset)):
        yield SyntaxFault(offset, f"the attribute {quoted(twice[0])} is given twice")
    start = text.rfind("<", 0, max(offset, 1))
    name = _NAME.match(text, start + 1) if start >= 0 else None
    if name:
        yield from _of_tag(text, name)
    if found := re.compile(r"</\s*>").match(text, max(start, 0)):
        yield SyntaxFault(found.start(), "this end tag has no name")
    if start == offset - 1 or text.startswith("<", offset):
        yield SyntaxFault(max(start, 0), "this < begins no tag", "write &lt; for a plain <")
    if text[offset : offset + 1] < " " and text[offset : offset + 1].strip():
        yield SyntaxFault(offset, f"the character {printable(text[offset])} is not allowed in XML")


def _of_comment(text: str, offset: int, error: str) -> Iterator[SyntaxFault]:
    start = text.rfind("<!--", 0, offset + 4)
    if start >= 0 and "-->" not in text[start:offset]:
        if error == errors.XML_ERROR_UNCLOSED_TOKEN:
            yield SyntaxFault(start, "this comment is not closed with -->")
        elif "--" in text[start + 4 : offset + 2]:
            yield SyntaxFault(text.index("--", start + 4), "a comment must not contain --")


def _of_entity(text: str, offset: int, error: str) -> Iterator[SyntaxFault]:
    if error == errors.XML_ERROR_UNDEFINED_ENTITY and text.startswith("<", offset):  # in an attribute
        offset = next(
            (each.start() for each in _ENTITY.finditer(text, offset) if each[0] not in _ENTITIES), offset
        )
    near = text.rfind("&", max(0, offset - _LONGEST_ENTITY), offset + 1)
    written = _ENTITY.match(text, near) if near >= 0 else None
    if written and written.end() >= offset:
        if error == errors.XML_ERROR_UNDEFINED_ENTITY:
            yield SyntaxFault(near, f"there is no entity {quoted(written[0])}", "write &amp; for a plain &")
        elif not written[0].endswith(";"):
            yield SyntaxFault(near, "this & begins no entity", "write &amp; for a plain &")


def _of_tag(text: str, name: re.Match[str]) -> Iterator[SyntaxFault]:
    """Yield the first fault in a start tag."""
    tag, at, before = printable(name[0]), name.end(), ""
    while True:
        blanks = _BLANKS.match(text, at)
        assert blanks, "no blanks match as well"
        following = text[blanks.end() : blanks.end() + 1]
        if following in ("", "<"):
            yield SyntaxFault(name.start() - 1, f"the tag <{tag}> is not closed with >")
        if following in ("", "<", ">", "/"):
            return
        attribute = _ATTRIBUTE.match(text, blanks.end())
        if not attribute:
            what = "typographic quote" if following in TYPOGRAPHIC else "character"
            yield SyntaxFault(blanks.end(), f"the tag <{tag}> has a misplaced {what}")
            return
        if before and not blanks[0]:
            yield SyntaxFault(at, f"a blank is missing after the value of {before}")
            return
        called = quoted(attribute[0])
        equals = _EQUALS.match(text, attribute.end())
        if not equals:
            yield SyntaxFault(attribute.start(), f"the attribute {called} has no value")
            return
        quote = text[equals.end() : equals.end() + 1]
        if not quote or quote not in "\"'":
            is_typographic = bool(quote) and quote in TYPOGRAPHIC
            what = "is in typographic quotes" if is_typographic else "has no quotes"
            yield SyntaxFault(equals.end(), f"the value of {called} {what}", "write \" or ' around it")
            return
        end = text.find(quote, equals.end() + 1)
        value = text[equals.end() + 1 : end]
        # The next quote may be the first one of another value: a blank, a name and `=` are before it.
        if end < 0 or "<" in value or _BEGINS_VALUE.search(value[-_LONGEST_NAME:]):
            yield SyntaxFault(equals.end(), f"the value of {called} has no closing quote")
            return
        at, before = end + 1, called
