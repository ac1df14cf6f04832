"""Settings of Cyclone DDS as it reads them: the text of CYCLONEDDS_URI, and files.

Cyclone DDS takes texts that are no XML. In files and in the text of the variable, anything may stand before
`<?xml`, a comment may have `--`, and what begins with `<!` ends at the next `>`. The text alone is a list: it
has several root elements, of which each may be a part of Domain, also with a shortened name; `</>` is any end
tag. A file has one root element.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from engine.config import ByteRange, ConfigError, Document, ProblemKind, SourceFile, XmlElement, parse
from engine.config.problems import Problem, quoted
from engine.config.reader import path_of_uri, read_bytes
from engine.config.syntax import root_name
from ospltool.check import cyclone

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_COMMENT: Final = re.compile(rb"<!--(.*?)-->", re.DOTALL)
_SKIPPED: Final = re.compile(
    rb"(<!--.*?-->|<!\[CDATA\[.*?\]\]>|<!DOCTYPE[^<>]*<.*?\]\s*>)|<![^<>]*>", re.DOTALL
)
_DECLARATION: Final = re.compile(rb"<\?xml\s.*?\?>", re.DOTALL)
_NO_LINE_END: Final = re.compile(rb"[^\r\n]")
GIVEN: Final = re.compile(rb"CYCLONEDDS_URI['\"]?\s*[:=]\s*(?:[|>][+-]?\s*)?(['\"]?)\s*(?=<)")
"""The beginning of the text in a script, an environment file or YAML."""
_BEGINS_TEXT: Final = re.compile(rb"(?:[^<,\n]*,)*+\s*<")
"""Files, and the first element."""
_ESCAPED: Final = re.compile(rb'(=\s*)\\"([^"<>]*?)\\"')


def of_file(data: bytes, path: str, environ: Mapping[str, str]) -> Document:
    """Parse a file as Cyclone DDS reads it, if its root element is that of Cyclone DDS, and else as XML.

    Args:
        data: the file.
        path: what findings call it.
        environ: for variables in it.

    Raises:
        ConfigError: it cannot be read.
    """
    if root_name(data.decode("utf-8", "replace")).lower() != cyclone.ROOT.lower():
        return parse(data, path, environ)
    if data.startswith(_BYTE_ORDER_MARK):
        message = "Cyclone DDS refuses a file with a byte order mark"
        hint = "save it as UTF-8 without one"
        raise ConfigError([Problem(ProblemKind.SYNTAX, message, path, 1, 1, ByteRange(0, 3), hint=hint)])
    return parse(_as_xml(data), path, environ)


def of_variable(data: bytes, path: str, environ: Mapping[str, str]) -> Document | None:
    """Parse the text of CYCLONEDDS_URI, maybe with the escaped quotes of a shell; None for another text.

    All parts are put under one root element. Files that it names are only opened.

    Args:
        data: the text.
        path: what findings call it.
        environ: for variables in it.

    Raises:
        ConfigError: Cyclone DDS cannot read it, or a file that it names.
    """
    from engine.dds.uri import placed_parts_of, with_named_end_tags  # only pasted text pays for this import

    root = root_name(data.decode("utf-8", "replace"))
    is_known = root.lower() == cyclone.ROOT.lower() or cyclone.is_part(root)
    if not is_known or not _BEGINS_TEXT.match(data):
        return None
    text = with_named_end_tags(_ESCAPED.sub(rb'\1 "\2" ', _as_xml(data)).decode("utf-8", "replace"))
    source = SourceFile(path, text.encode())
    documents = []
    for at, part in placed_parts_of(text):
        before = text[:at].encode()
        if not part.startswith("<"):
            _check_file(part, source, len(before))
        elif root_name(part):
            documents.append(parse(_NO_LINE_END.sub(b" ", before) + part.encode(), path, environ))
    children = [child for each in documents for child in _below_root(each.root)]
    first = documents[0].root
    root_element = XmlElement(
        cyclone.ROOT, "", first.attributes if _is_root(first) else (), tuple(children), None,
        ByteRange(first.span.start, documents[-1].root.span.end), first.tag_span, first.name_span, source,
    )  # fmt: skip
    comments = tuple(comment for each in documents for comment in each.comments)
    problems = tuple(problem for each in documents for problem in each.problems)
    return Document(source, root_element, comments, problems)


def variable_in(data: bytes) -> bytes | None:
    """Return the value of CYCLONEDDS_URI in a script or the like, after blanks; None without one.

    It ends at the quote that closes it, and without quotes where the XML ends.
    """
    from engine.dds.uri import parts_of

    found = GIVEN.search(data)
    if not found or data.lstrip(_BYTE_ORDER_MARK + b" \t\r\n").startswith(b"<"):
        return None
    value = data[found.end() :]
    closing = re.search(rb"(?<!\\)" + found[1], value) if found[1] else None
    end = closing.start() if closing else len(parts_of(value.decode("utf-8", "replace"))[0].encode())
    return _NO_LINE_END.sub(b" ", data[: found.end()]) + value[:end]


def _check_file(name: str, source: SourceFile, offset: int) -> None:
    """Raise ConfigError if a file that is named in a text cannot be read."""
    try:
        read_bytes(path_of_uri(name))
    except ConfigError as error:
        message = f"{quoted(name)} stands for a file here, which {error.problems[0].message}"
        span = ByteRange(offset, offset + len(name.encode()))
        place = source.position(offset)
        raise ConfigError([Problem(ProblemKind.UNREADABLE, message, source.path, *place, span)]) from error


def _is_root(node: XmlElement) -> bool:
    return node.name.lower() == cyclone.ROOT.lower()


def _below_root(node: XmlElement) -> tuple[XmlElement, ...]:
    """Return what a part of the text stands for below the root element."""
    if _is_root(node):
        return node.children
    if node.name.lower() == cyclone.DOMAIN.lower():
        return (node,)
    return (
        XmlElement(
            cyclone.DOMAIN, cyclone.DOMAIN, (), (node,), None,
            node.span, node.tag_span, node.name_span, node.source,
        ),
    )  # fmt: skip


def _as_xml(data: bytes) -> bytes:
    """Return text of the same length without what Cyclone DDS takes and a parser of XML does not."""
    data = _COMMENT.sub(lambda found: b"<!--" + found[1].replace(b"--", b"  ") + b"-->", data)
    data = _SKIPPED.sub(lambda found: found[1] or _NO_LINE_END.sub(b" ", found[0]), data)
    if data.startswith(b"<?xml"):
        return data
    return _DECLARATION.sub(lambda found: _NO_LINE_END.sub(b" ", found[0]), data)
