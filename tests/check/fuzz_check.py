"""Throws mutated configurations at all that reads them; `make fuzz` has it among its readers.

Each input goes through reader, loader, all rules, fixes and formats, alone and as one of two nodes. Whatever
is not a finding or a placed error is a fault: it is printed with the seed that makes it again, and the run
fails. The test suite runs a few hundred inputs of it.
"""

from __future__ import annotations

import random
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from engine.config import ConfigError, interpret, parse
from engine.config.schema import schema
from ospltool.check import commands
from ospltool.check.runner import Choice, Examined, run
from ospltool.check.views import FileView, FleetView, NodeView
from ospltool.diagnostics.formats import FORMATS, render
from ospltool.diagnostics.model import Report
from tests.check.conftest import CLEAN
from tests.fuzzing import COSTLY, Target

HERE = Path(__file__).parent
SAMPLES = HERE.parents[1] / "samples" / "three-nodes"
SLOW_S = 1.0
"""Longest processor time that one input may take."""

_WORDS = (
    *(b"<", b">", b"/>", b"</", b"&", b"&amp;", b"&#0;", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<?x ?>"),
    *(
        b"<!DOCTYPE a>",
        b"${",
        b"${A}",
        b"${A:-",
        b"${A:?x}",
        b"}",
        b"\\",
        b"$A",
        b'"',
        b"'",
        b"=",
        b"*",
        b"?",
    ),
    *(b".", b",", b"\0", b"\xff", b"\xc2\x9b", "é日\u202e".encode(), b"\r", b"\n", b"\t", b"  "),
    *(b"-1", b"1e999", b"0x", b"010", b"9" * 25, b"NaN", b"TRUE", b"false", b"Lazy", b"Volatile"),
    *(b"<!-- ospl: ignore[DUR605] -->", b"<!-- ospl: ignore[ -->", b"__BUILT-IN PARTITION__"),
    b'<!-- ospl: file-ignore[DUR001,DUR902] reason="" -->',
)


def corpus(clean: str) -> list[bytes]:
    """Configurations to begin with: the samples, the clean one, and all bad ones of the rules' tests."""
    texts = [path.read_bytes() for path in sorted(SAMPLES.glob("*.xml"))]
    texts.append(clean.encode())
    for cases in tomllib.loads((HERE / "rules_node.toml").read_text("utf-8")).values():
        for case in cases:
            text = clean
            for old, new in case.get("bad_changes", [[case.get("old"), case.get("bad")]]):
                text = text.replace(old, new.replace("«", "").replace("»", ""))
            texts.append(text.encode())
    return texts


def mutated(data: bytes, chance: random.Random, texts: Sequence[bytes]) -> bytes:
    """A configuration with a few things done to it that people, editors and enemies do."""
    content = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5, 10))):
        at = chance.randrange(len(content) + 1)
        kind = chance.randrange(9)
        if kind == 0:
            content[at : at + chance.randrange(1, 40)] = b""
        elif kind == 1:
            content[at:at] = chance.choice(_WORDS)
        elif kind == 2:
            content[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 3:
            other = chance.choice(texts)
            start = chance.randrange(len(other))
            content[at:at] = other[start : start + chance.randrange(1, 300)]
        elif kind == 4:
            length = chance.randrange(1, 200)
            content[at:at] = content[at : at + length] * chance.randrange(1, 4)
        elif kind == 5:
            _replace_piece(content, chance, b'"', chance.choice(_WORDS))
        elif kind == 6:
            path = chance.choice(schema().paths())
            name = path.rpartition("/")[2].partition("@")[0].encode()
            content[at:at] = b"<" + name + b">" + chance.choice(_WORDS) + b"</" + name + b">"
        elif kind == 7:
            _replace_piece(content, chance, b">", chance.choice(_WORDS))
        else:
            del content[at:]
        if not content:
            break
    return bytes(content)


def _replace_piece(content: bytearray, chance: random.Random, mark: bytes, new: bytes) -> None:
    """Put `new` in the place of what stands between two marks."""
    places = [at for at in range(len(content)) if content[at : at + 1] == mark]
    if len(places) > 1:
        at = chance.randrange(len(places) - 1)
        content[places[at] + 1 : places[at + 1]] = new


def exercise(data: bytes, beside: NodeView, chance: random.Random) -> Report:
    """Everything that the check does with one file; raises only for our own faults."""
    view: NodeView | FileView
    try:
        document = parse(data, "fuzz.xml", {"A": "x", "B": ""})
        view = NodeView("a", document, interpret(document), {})
    except ConfigError as error:
        view = FileView("fuzz.xml", None, error.problems, "a")
    nodes = (view, beside) if isinstance(view, NodeView) else ()
    files = () if isinstance(view, NodeView) else (view,)
    report = run([Examined(FleetView(nodes), True, files, ("fuzz.xml",), ())], Choice())
    text = render(report, chance.choice(list(FORMATS)))
    assert all(char.isprintable() or char in "\n\t" for char in text), "a control character is alive"
    if isinstance(view, NodeView):
        commands.effective_text([view])
        commands.matrix_text(FleetView(nodes))
        for each in report.diagnostics:
            assert each.place.line >= 1, "a finding without a place"
            for edit in each.fix.edits if each.fix and each.place.path == "fuzz.xml" else ():
                assert 0 <= edit.span.start <= edit.span.end <= len(data), "a fix outside of the file"
    else:
        assert report.diagnostics, "a refused file without a finding"
    return report


def fuzz(count: int, seed: int, clean: str, *, until_s: float = 1e9) -> list[str]:
    """Run `count` inputs, or as many as the time allows; returns the faults."""
    texts = corpus(clean)
    document = parse(clean.encode(), "beside.xml", {})
    beside = NodeView("b", document, interpret(document), {})
    faults = []
    began = time.monotonic()
    for number in range(count):
        chance = random.Random(f"{seed}:{number}")
        data = mutated(chance.choice(texts), chance, texts)
        started = time.process_time()
        try:
            exercise(data, beside, chance)
        except Exception as error:
            faults.append(f"seed {seed}:{number}: {type(error).__name__}: {error}")
        elapsed_s = time.process_time() - started
        if elapsed_s > SLOW_S:
            faults.append(f"seed {seed}:{number}: took {elapsed_s:.1f} s")
        if time.monotonic() - began > until_s:
            break
    return faults


def targets() -> Sequence[Target]:
    """The check with everything that it does, in which the damage is that of people and editors, too."""
    texts = corpus(CLEAN)
    document = parse(CLEAN.encode(), "beside.xml", {})
    beside = NodeView("b", document, interpret(document), {})

    def damage(data: bytes, seed: int) -> bytes:
        return mutated(data, random.Random(seed), texts)

    return [
        Target("check", texts, lambda data: exercise(data, beside, random.Random(len(data))), COSTLY, damage)
    ]
