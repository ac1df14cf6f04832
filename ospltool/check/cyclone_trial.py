"""What the installed Cyclone DDS says of settings, with the places in their file.

The settings are tried as they are, except that no log is written that can be written: a trial must not cut
off the log of a running application.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from engine.config import Attribute, ByteRange, Document, XmlElement
from engine.config.problems import printable
from engine.config.values import ValueFault, parse_int
from engine.dds.trial import OLD_NAMES, SUBJECTS, SettingsTrial, try_settings
from ospltool.check import cyclone
from ospltool.check.cyclone import CycloneFaultKind
from ospltool.check.findings import ForeignFault

MAX_DOMAINS: Final = 5
"""Most Domain elements of a file that are tried."""
_LOGS: Final = ("Tracing/OutputFile", "Tracing/PacketCaptureFile")
_LINE: Final = re.compile(r"\s*\((?:[^()]* )?line (\d+)\)\s*$")
_PATH: Final = re.compile(r"(?://)?CycloneDDS/Domain/?([\w/]*)(?:\[@(\w+)\])?")
_WORD: Final = re.compile(r"[^\s,]+")


def faults(document: Document) -> Iterator[ForeignFault]:
    """Try the settings of a file, for each domain that it names, and yield what Cyclone DDS says."""
    said: dict[tuple[ByteRange, str], ForeignFault] = {}
    with tempfile.TemporaryDirectory(prefix="ospltool-") as folder:
        # A copy has no comma in its path, at which Cyclone DDS would divide it.
        copy = Path(folder, "settings.xml")
        copy.write_bytes(document.source.data)
        for domain_id in _domains(document):
            trial = try_settings(f"file://{copy},{_without_logs(document)}", domain_id)
            for fault in _said(document, trial):
                said.setdefault((fault.span, fault.message), fault)
    yield from sorted(said.values(), key=lambda each: each.span)


def node_faults(document: Document, settings: str, domain_id: int) -> Iterator[ForeignFault]:
    """Try the settings that a node derives from a file of OpenSplice, and yield what Cyclone DDS says.

    Args:
        document: the file.
        settings: what the node derives, like the value of CYCLONEDDS_URI.
        domain_id: the domain of the node.
    """
    yield from _said(document, try_settings(settings, domain_id))


def _domains(document: Document) -> list[int]:
    """Return the domains for which a file has settings; domain 0 stands for any."""
    found = []
    for node in cyclone.domains(document):
        try:
            found.append(parse_int(next(each.text for each in node.attributes if each.name.lower() == "id")))
        except (ValueFault, StopIteration):
            found.append(0)
    known = [each for each in dict.fromkeys(found) if 0 <= each < 1 << 32]
    return known[:MAX_DOMAINS] or [0]


def _without_logs(document: Document) -> str:
    """Return settings that follow those of a file, so that logs which could be written go nowhere."""
    inner = ""
    for path in _LOGS:
        for given in cyclone.settings(document, path):
            if os.access(Path(cyclone.text_of(given)).parent, os.W_OK):
                name = path.rpartition("/")[2]
                inner = f"{inner}<{name}>/dev/null</{name}>"
                break
    return f'<CycloneDDS><Domain Id="any"><Tracing>{inner}</Tracing></Domain></CycloneDDS>'


def _said(document: Document, trial: SettingsTrial) -> Iterator[ForeignFault]:
    is_refused = not (trial.is_accepted or trial.is_late)
    kind = CycloneFaultKind.TRIED if is_refused else CycloneFaultKind.REMARKED
    told = [each for each in trial.said if not OLD_NAMES.search(each)]
    for text in told:
        place, path = _place(document, text)
        message = printable(_LINE.sub("", text)).rstrip(".")
        yield ForeignFault(kind, place, f"Cyclone DDS says: {message}", subject=path)
    if trial.is_late:
        message = f"whether Cyclone DDS takes these settings is not known: a trial {trial.ended}"
        yield ForeignFault(kind, _whole(document).name_span, message)
    elif trial.ended:
        message = f"a process that tries these settings {trial.ended}"
        yield ForeignFault(kind, _whole(document).name_span, message)
    elif not trial.is_accepted and not told:
        message = "Cyclone DDS refuses these settings, and does not say why"
        yield ForeignFault(kind, _whole(document).name_span, message)


def _place(document: Document, text: str) -> tuple[ByteRange, str]:
    """Return the bytes that a message is about, and the path of the setting; by default the Domain."""
    path = next((path for words, path in SUBJECTS.items() if words in text), "")
    named = _PATH.search(text)
    if named and named[1] and not path:
        path = f"{named[1]}@{named[2]}" if named[2] else named[1]
    about = next((each for each in cyclone.table().items if each.lower() == path.lower()), path)
    found: list[XmlElement | Attribute] = []
    found += cyclone.settings(document, about) if about else []
    line = _LINE.search(text)
    if line:
        on_line = [each for each in _all(document) if each.position.line == int(line[1])]
        words = set(map(str.strip, re.split(r"[\s:'\[\]@]+", text)))
        found = [each for each in on_line if each.name in words] or on_line or found
    words = {each.strip(".:'\"") for each in _WORD.findall(text)}
    by_value = [each for each in found or _all(document) if _values_of(each) & words]
    best = max(by_value, key=lambda each: len(cyclone.text_of(each)), default=None) or next(iter(found), None)
    subject = cyclone.subject(about) if about and found else ""
    if best is None:
        return _whole(document).name_span, subject
    if best.value is not None and not (isinstance(best, XmlElement) and best.children):
        return best.value.span, subject
    return best.name_span, subject


def _values_of(given: XmlElement | Attribute) -> set[str]:
    return set(_WORD.findall(cyclone.text_of(given)))


def _all(document: Document) -> Iterator[XmlElement | Attribute]:
    for node in document.root.walk():
        yield node
        yield from node.attributes


def _whole(document: Document) -> XmlElement:
    return next(iter(cyclone.domains(document)), document.root)
