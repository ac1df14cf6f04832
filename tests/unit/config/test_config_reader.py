from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import ConfigError, Document, Problem, ProblemKind, XmlElement, parse, read_document
from engine.config.reader import MAX_BYTES, MAX_DEPTH, MAX_NODES
from tests.machine import count_s, slowness

SAMPLE = Path(__file__).parents[3] / "samples" / "three-nodes" / "n1.xml"


def parsed(text: str | bytes, environ: dict[str, str] | None = None) -> Document:
    return parse(text.encode() if isinstance(text, str) else text, "f.xml", environ or {})


def check_refused(data: str | bytes, kind: ProblemKind, line: int, column: int, words: str = "") -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(data)
    (problem,) = caught.value.problems
    assert (problem.kind, problem.line, problem.column) == (kind, line, column)
    assert words in problem.message
    assert str(caught.value).startswith(f"f.xml:{line}:{column}: ")


def slice_of(document: Document, node: XmlElement) -> bytes:
    return document.source.data[node.span.start : node.span.end]


def test_every_element_attribute_and_text_knows_its_place() -> None:
    document = parsed("<a>\n  <bé x=\"1\"\n     y = 'two'>\n    text\n  </bé><c/>\n</a>")
    b, c = document.root.children
    assert (b.line, b.column, c.line, c.column) == (2, 3, 5, 8)
    x, y = b.attributes
    assert x.position == (2, 7)
    assert x.value.position == (2, 10)
    assert y.position == (3, 6)
    assert y.value.position == (3, 11)
    assert document.source.text(y.span) == "y = 'two'"
    assert document.source.text(b.name_span) == "bé"
    assert b.value is not None
    assert (b.value.raw, b.value.position, document.source.text(b.value.span)) == ("text", (4, 5), "text")
    assert slice_of(document, c) == b"<c/>"
    assert slice_of(document, b).endswith("</bé>".encode())
    assert (b.path, document.root.path) == ("bé", "")


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("<a>1 &lt; 2</a>", "1 < 2"),
        ("<a><![CDATA[<x>]]></a>", "<x>"),
        ("<a> <!-- no --> yes </a>", "yes"),
        ("<a>&#65;</a>", "A"),
        ("<a x='&quot;&apos;'>b</a>", "b"),
    ],
)
def test_entities_sections_and_comments_leave_the_text(text: str, raw: str) -> None:
    value = parsed(text).root.value
    assert value is not None
    assert value.raw == raw


def test_blank_text_is_no_text() -> None:
    root = parsed("<a> \n <b> </b><c/></a>").root
    assert root.value is None
    assert [child.value for child in root.children] == [None, None]
    assert [child.is_empty_tag for child in root.children] == [False, True]


def test_lines_end_as_editors_end_them() -> None:
    document = parsed(b"<a>\r\n<b/>\r<c/>\n</a>")
    assert [child.position for child in document.root.children] == [(2, 1), (3, 1)]
    assert document.source.line(2) == "<b/>"


def test_a_byte_order_mark_takes_no_column() -> None:
    document = parsed(b"\xef\xbb\xbf<a><b/></a>")
    assert document.root.position == (1, 1)
    assert document.root.children[0].position == (1, 4)


def test_latin_1_is_read_as_declared() -> None:
    document = parsed('<?xml version="1.0" encoding="ISO-8859-1"?><a b="é">ü</a>'.encode("latin-1"))
    assert document.root.text == "ü"
    assert document.root.attributes[0].text == "é"
    assert document.root.value is not None
    assert document.source.text(document.root.value.span) == "ü"


def test_a_document_type_that_declares_nothing_is_skipped() -> None:
    declared = (
        '\ufeff<?xml version="1.0"?>\n<!-- a --><!DOCTYPE a SYSTEM\n"http://127.0.0.1:9/x.dtd">\n<a>b</a>'
    )
    assert (parsed(declared).root.text, parsed(declared).root.line) == ("b", 4)
    for start in ("<!DOCTYPE a>", "<!DOCTYPE a []>"):
        assert parsed(f"{start}<a/>").root.position == (1, len(start) + 1)


def test_comments_are_kept_with_their_place() -> None:
    first, second = parsed("<!-- one -->\n<a><b>\n  <!--two--></b></a>").comments
    assert (first.text, first.position) == (" one ", (1, 1))
    assert (second.text, second.position) == ("two", (3, 3))


def test_values_remember_their_raw_text_and_their_variables() -> None:
    document = parsed('<a x="${N:-1}">p/${D}/${U}q</a>', {"D": "dir"})
    x = document.root.attributes[0].value
    assert (x.raw, x.text) == ("${N:-1}", "1")
    value = document.root.value
    assert value is not None
    assert value.text == "p/dir/q"
    assert [use.name for use in value.uses if use.vanishes] == ["U"]
    assert document.source.text(document.variable_span(value, value.uses[1])) == "${U}"


def test_a_broken_expansion_is_a_problem_and_the_rest_is_read() -> None:
    document = parsed("<a><b>x${V:?please}</b><c>1</c></a>")
    (problem,) = document.problems
    assert (problem.kind, problem.line, problem.column) == (ProblemKind.EXPANSION, 1, 8)
    assert "please" in problem.message
    assert document.root.children[0].text == "x${V:?please}"
    assert document.root.children[1].text == "1"


@pytest.mark.parametrize(
    ("data", "kind", "line", "column", "words"),
    [
        ("", ProblemKind.SYNTAX, 1, 1, "the file is empty"),
        ("<a>\n<b></a>", ProblemKind.SYNTAX, 2, 6, "does not close <b>, which was opened in line 2"),
        ("<a>\n<b>\n", ProblemKind.SYNTAX, 3, 1, "<b> of line 2 is not closed"),
        ('<a x="1" x="2"/>', ProblemKind.SYNTAX, 1, 10, "given twice"),
        ("<a/><b/>", ProblemKind.SYNTAX, 1, 5, "second root element"),
        ("<a b='&amp;&foo;'/>", ProblemKind.SYNTAX, 1, 12, "there is no entity"),
        ("<a>&foo;</a>", ProblemKind.SYNTAX, 1, 4, "there is no entity"),
        ("<a b=1/>", ProblemKind.SYNTAX, 1, 6, "has no quotes"),
        ("<!DOCTYPE a [<!ELEMENT a ANY>]><a/>", ProblemKind.DTD, 1, 1, "document types"),
        ('\n<!DOCTYPE a SYSTEM "x" [<!ENTITY b "c">]><a/>', ProblemKind.DTD, 2, 1, "document types"),
        ("<!DOCTYPE a><a>&b;</a>", ProblemKind.SYNTAX, 1, 16, "there is no entity"),
        ("<!DOCTYPE a SYSTEM 'x'><a b='&b;'/>", ProblemKind.SYNTAX, 1, 30, "there is no entity"),
        (b"<a>\n\x00</a>", ProblemKind.ENCODING, 2, 1, "NUL"),
        ("<a/>".encode("utf-16"), ProblemKind.ENCODING, 1, 1, "UTF-16"),
        ("<a/>".encode("utf-16-be"), ProblemKind.ENCODING, 1, 1, "UTF-16"),
        (b"<a>\n \xff</a>", ProblemKind.ENCODING, 2, 2, "not UTF-8"),
        (b'<?xml version="1.0" encoding="EBCDIC"?><a/>', ProblemKind.ENCODING, 1, 31, "not supported"),
        (
            b'<?xml version="1.0" encoding="US-ASCII"?><a>\xc3\xa9</a>',
            ProblemKind.ENCODING,
            1,
            45,
            "not US-ASCII",
        ),
        ("<a>" * (MAX_DEPTH + 1), ProblemKind.TOO_LARGE, 1, 3 * MAX_DEPTH + 1, "deep"),
        ("<" + "a" * 200 + "/>", ProblemKind.TOO_LARGE, 1, 1, "name"),
    ],
)
def test_what_is_no_configuration_is_refused_with_its_place(
    data: str | bytes, kind: ProblemKind, line: int, column: int, words: str
) -> None:
    check_refused(data, kind, line, column, words)


LAUGHS = (
    '<!DOCTYPE a [<!ENTITY l0 "lol">'
    + "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))
    + "]><a>&l9;</a>"
)
HOSTILE: dict[str, Callable[[], bytes]] = {
    "billion laughs": lambda: LAUGHS.encode(),
    "external entity": lambda: b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
    "deep": lambda: b"<a>" * 10_000,
    "too many elements": lambda: b"<a>" + b"<b/>" * 200_000 + b"</a>",
    "too many attributes": lambda: b"<a " + b" ".join(b"a%d=''" % n for n in range(80_000)) + b"/>",
    "too many lines": lambda: b"<a>" + b"\n" * (MAX_BYTES - 10) + b"</",
    "too many comments": lambda: b"<a>" + b"<!---->" * (MAX_BYTES // 8),
    "NUL": lambda: b"<a>" + b" " * (MAX_BYTES - 10) + b"\0",
    "too large": lambda: b"<a>" + b"x" * MAX_BYTES,
    "one long tag": lambda: b"<" + b"a" * (MAX_BYTES - 1),
    "open comment": lambda: b"<a><!--" + b"-a" * (MAX_BYTES // 2 - 4),
    "variables": lambda: b"<a>" + b"${A:-" * 100_000 + b"</a>",
    "braces": lambda: b"<a>${A:-" + b"{" * (MAX_BYTES - 20) + b"</a>",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_refused_quickly_and_in_little_memory(name: str) -> None:
    data = HOSTILE[name]()
    slower = slowness(count_s())
    began = time.process_time()
    try:
        problems = parsed(data).problems
    except ConfigError as error:
        problems = error.problems
    elapsed_s = time.process_time() - began
    assert problems
    assert all(problem.line >= 1 and problem.column >= 1 for problem in problems)
    assert elapsed_s < 1.0 * slower, "the bar of 100 ms is measured apart"
    tracemalloc.start()
    try:
        parsed(data)
    except ConfigError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 20_000_000


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "huge.xml"
    with path.open("wb") as file:
        file.write(b"<a>")
        file.truncate(300_000_000)
    with pytest.raises(ConfigError, match="larger than"):
        read_document(str(path), {})


def test_elements_are_counted_up_to_a_stated_bound() -> None:
    assert len(parsed("<a>" + "<b/>" * (MAX_NODES - 1) + "</a>").root.children) == MAX_NODES - 1
    check_refused("<a>" + "<b/>" * MAX_NODES + "</a>", ProblemKind.TOO_LARGE, 1, 4 * MAX_NODES, "elements")


@pytest.mark.parametrize(
    "uri",
    ["http://host/f.xml", "osplcfg://x", "file://", "", "file:///no/such/file.xml", "/no/such", "/", "a\0b"],
)
def test_what_cannot_be_read_says_so(uri: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_document(uri, {})
    assert caught.value.problems[0].kind is ProblemKind.UNREADABLE


def test_uris_and_paths_name_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "with blank.xml"
    path.write_text("<a/>")
    for uri in (str(path), f"file://{path}", path.as_uri(), f"file://localhost{path}"):
        assert read_document(uri, {}).path == str(path)


@settings(max_examples=6 * settings().max_examples)
@given(st.data())
def test_a_mutated_file_gives_a_document_or_a_placed_error(data: st.DataObject) -> None:
    content = bytearray(SAMPLE.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        length = data.draw(st.integers(0, 40))
        content[at : at + length] = data.draw(st.binary(max_size=12) | st.sampled_from(SNIPPETS))
    documents: list[Document] = []
    problems: tuple[Problem, ...] = ()
    try:
        documents.append(parse(bytes(content), "f.xml", {}))
    except ConfigError as error:
        problems = error.problems
    assert all(problem.line >= 1 and problem.column >= 1 for problem in problems)
    for document, node in ((each, node) for each in documents for node in each.root.walk()):
        assert slice_of(document, node).startswith(b"<" + node.name.encode(document.source.encoding))


SNIPPETS = [
    b"<",
    b">",
    b"&",
    b"]]>",
    b"<![CDATA[",
    b"<!--",
    b"-->",
    b"${",
    b"}",
    b"\\",
    b'"',
    b"'",
    b"<?x?>",
    b"\0",
]
