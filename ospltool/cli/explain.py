"""`ospltool explain`: explain a file or pasted text, a rule of `check`, a health code or a setting."""

from __future__ import annotations

import dataclasses
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ospltool.check import explain as answers
from ospltool.cli.exits import CommandError
from ospltool.cli.options import AsJson
from ospltool.output import envelope, streams
from ospltool.trace.reading.sources import SourceError

if TYPE_CHECKING:
    from ospltool.health.codes import Code

# Comfortable to read, as `ospltool check` has it.
_WIDTH: Final = 100


def explain(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|-|NAME",
            help="A log, trace, configuration or other text; - for standard input; a code (DUR201, "
            "DUL-NODE-GONE), a rule's name, or a setting such as "
            "//OpenSplice/DurabilityService/NameSpaces/Policy[@masterPriority] (default: list all rules).",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain a file: what it is, what went wrong first, why, what to do, and what else to look at.

    FILE is an ospl-info.log, an ospl-error.log, a durability trace, a configuration of OpenSplice or Cyclone
    DDS, or lines copied from a terminal. With a name, explain what a rule finds and why, what a health code
    means, what OpenSplice does with a setting, or what Cyclone DDS takes for one of its own.

    Exit codes: 0 success, 2 no such file, code, rule or setting, or a file of an unknown kind.
    """
    if subject is not None and not subject.strip():
        raise CommandError("the name is empty; without a name, all rules are listed")
    if subject is not None and _is_text(subject):
        _explain_cause(subject, as_json=as_json)
        return

    if subject and subject.upper().startswith("DUL-"):
        _explain_code(subject.upper(), as_json=as_json)
        return
    try:
        found = answers.find(subject) if subject else None
    except answers.UnknownSubject as error:
        from ospltool.health.codes import codes

        code = f"DUL-{subject}".upper()
        if code in codes():  # as people say it, without the prefix that all codes have
            _explain_code(code, as_json=as_json)
            return
        raise CommandError(f"{error}; there is no such file either") from None
    streams.put(answers.as_json(found) if as_json else answers.as_text(found))


def _is_text(subject: str) -> bool:
    """Return whether a subject is a file, standard input, or text such as that of CYCLONEDDS_URI."""
    is_text = any(mark in subject for mark in ("<", "_URI", "file://"))
    return subject in ("-", "/dev/stdin") or is_text or Path(subject).exists()


def _explain_cause(subject: str, *, as_json: bool) -> None:
    """Explain a file, standard input, or a text.

    Raises:
        CommandError: it cannot be read, or is of an unknown kind.
    """
    from ospltool.forensics import cause

    try:
        if subject in ("-", "/dev/stdin"):
            data = sys.stdin.buffer.read(cause.MOST_BYTES)
            found = cause.explain_text(data, os.environ, "standard input")
        elif Path(subject).exists():
            found = cause.explain_file(Path(subject), os.environ)
        else:
            found = cause.explain_text(subject.encode("utf-8", "surrogateescape"), os.environ)
    except (SourceError, cause.UnknownFileError) as error:
        raise CommandError(str(error)) from None
    if as_json:
        streams.put(envelope.document("cause", dataclasses.asdict(found)))
    else:
        streams.put("".join(f"{line}\n" for line in cause.as_text(found, _WIDTH)))


def _explain_code(wanted: str, *, as_json: bool) -> None:
    """Explain a health code.

    Raises:
        CommandError: there is no such code.
    """
    from engine.config.values import did_you_mean
    from ospltool.health.codes import codes

    found = codes().get(wanted)
    if found is None:
        hint = did_you_mean(wanted, list(codes()))
        raise CommandError(f"no health code {wanted!r}; {hint or 'docs/health lists them'}")
    if as_json:
        data = {**dataclasses.asdict(found), "severity": found.severity.label, "page": found.page}
        streams.put(envelope.document("code", data))
    else:
        streams.put(_code_text(found))


def _code_text(code: Code) -> str:
    """Describe a health code for the terminal."""
    lines = [f"{code.id} ({code.severity.label})", "", code.title]
    for title, body in code.sections.items():
        lines += ["", f"{title}:"]
        for paragraph in body.splitlines():
            lines += textwrap.wrap(paragraph, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines) + "\n"
