"""The application of fixes: repeated in memory until none is left, then written file by file."""

from __future__ import annotations

import dataclasses
import difflib
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from engine.config import ConfigError, parse
from ospltool.check.edits import edited
from ospltool.check.inputs import DeploymentInput
from ospltool.check.proofs import Proofs
from ospltool.check.runner import Choice, Examined, examine, run
from ospltool.diagnostics.model import Edit, Finding, Report
from ospltool.output.text import visible

MAX_PASSES = 10
"""Most rounds; a fix may make room for another one, but two may also undo each other."""


class FixError(Exception):
    """A file could not be written; the message names it."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileChange:
    """The change of a file by fixes."""

    path: str
    before: bytes
    after: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """All changes, the number of fixes in them, and the remaining report."""

    changes: tuple[FileChange, ...]
    fixed: int
    report: Report


def fix(deployments: Iterable[DeploymentInput], choice: Choice, *, unsafe: bool) -> Outcome:
    """Compute all fixes of the chosen rules, without writing files.

    A fix that would break its file is skipped, and without `unsafe` one that is not proved to change nothing,
    alone or together with the others.
    """
    inputs = list(deployments)
    contents: dict[str, bytes] = {}
    originals: dict[str, bytes] = {}
    fixed = 0
    report, proofs = _report(inputs, choice, contents)
    # A fix may make room for another one, so the result is checked again until nothing is left to fix.
    for _ in range(MAX_PASSES):
        applied = 0
        for path, edits in _plan(report.diagnostics, unsafe=unsafe).items():
            before = _bytes_of(report.diagnostics, path)
            after, count = _apply(before, edits)
            if not unsafe and not proofs.holds(path, before, after):
                after, count = _apply(before, edits[:1])
            if after != before and _is_readable(after, path):
                originals.setdefault(path, before)
                contents[path] = after
                applied += count
        if not applied:
            break
        fixed += applied
        report, proofs = _report(inputs, choice, contents)
    changes = tuple(FileChange(path, originals[path], contents[path]) for path in sorted(contents))
    return Outcome(changes, fixed, report)


def _report(
    inputs: list[DeploymentInput], choice: Choice, contents: Mapping[str, bytes]
) -> tuple[Report, Proofs]:
    proofs = Proofs()
    examined: Iterable[Examined] = (examine(each, contents) for each in inputs)
    return run(examined, choice, proofs), proofs


def _plan(diagnostics: Iterable[Finding], *, unsafe: bool) -> dict[str, list[list[Edit]]]:
    """Return the fixes for each file; fixes that touch several files are left to people."""
    plan: dict[str, list[list[Edit]]] = {}
    for each in diagnostics:
        if each.fix and (unsafe or each.fix.is_safe):
            paths = {edit.path for edit in each.fix.edits}
            if len(paths) == 1:
                plan.setdefault(paths.pop(), []).append(list(each.fix.edits))
    return plan


def _bytes_of(diagnostics: Iterable[Finding], path: str) -> bytes:
    """Return the content for which the fixes of a file were made."""
    return next(
        each.place.source.data for each in diagnostics if each.place.source and each.place.source.path == path
    )


def _apply(data: bytes, fixes: list[list[Edit]]) -> tuple[bytes, int]:
    """Apply all fixes that do not overlap; return the content and their number."""
    taken: list[Edit] = []
    count = 0
    for edits in fixes:
        if edits and all(edit in taken for edit in edits):
            continue  # another node has the same file
        if not any(_touch(edit, other) for edit in edits for other in taken):
            taken += edits
            count += 1
    return edited(data, taken), count


def _touch(left: Edit, right: Edit) -> bool:
    return left.span.start <= right.span.end and right.span.start <= left.span.end


def _is_readable(data: bytes, path: str) -> bool:
    try:
        parse(data, path, {})
    # What cannot be read after an edit is not written; the finding stays.
    except ConfigError:
        return False
    return True


def diff_of(change: FileChange) -> str:
    """Render a change as a unified diff, safe for a terminal."""
    before, after = (data.decode("utf-8", "replace").splitlines() for data in (change.before, change.after))
    name = visible(change.path)
    lines = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm="")
    return "".join(f"{visible(line)}\n" for line in lines)


def write(changes: Iterable[FileChange], read: Callable[[str], bytes]) -> None:
    """Replace each file in one step.

    Raises:
        FixError: a file cannot be written, or has changed since the fixes were made.
    """
    for change in changes:
        if read(change.path) != change.before:
            raise FixError(f"{change.path} has changed meanwhile, so it was not fixed")
        try:
            _replace(Path(change.path).resolve(), change.after)
        except OSError as error:
            raise FixError(f"{change.path} cannot be written: {error.strerror or error}") from error


def _replace(target: Path, content: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".ospltool-")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(target.stat().st_mode & 0o7777)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
