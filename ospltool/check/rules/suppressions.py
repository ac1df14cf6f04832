"""Suppressions: comments that declare a finding as known, with a reason.

`<!-- ospl: ignore[DUR605] reason="a demonstration" -->` covers the element that follows it, with everything
in it; `<!-- ospl: file-ignore[DUR721] reason="..." -->` covers the whole file, wherever it stands. Several
codes are separated by commas, and a rule's name does as well as its code.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping

from engine.config import ByteRange, Comment, Document, XmlElement
from engine.config.problems import printable
from ospltool.check import edits
from ospltool.check.registry import Rule, RuleInput, rule
from ospltool.check.views import NodeView
from ospltool.diagnostics.model import Finding, Place, Severity

_SYNTAX = re.compile(
    r"""\s*ospl:\s*(?P<kind>ignore|file-ignore)\s*\[(?P<codes>[^\]]*)\]"""
    r"""(?:\s+reason\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'))?\s*"""
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Suppression:
    """A comment; `covers` is the range of the file whose findings it suppresses."""

    comment: Comment
    rules: tuple[Rule, ...]
    reason: str
    covers: ByteRange
    faults: tuple[str, ...]


def suppressions_of(document: Document, known: Mapping[str, Rule]) -> list[Suppression]:
    """Return the suppressions of a file, in order; malformed ones have faults and no rules.

    `known` has all rules by code.
    """
    return [
        _parsed(document, comment, known)
        for comment in document.comments
        if comment.text.lstrip().startswith("ospl:")
    ]


def _parsed(document: Document, comment: Comment, known: Mapping[str, Rule]) -> Suppression:
    matched = _SYNTAX.fullmatch(comment.text)
    nothing = ByteRange(comment.span.end, comment.span.end)
    if not matched:
        expected = 'expected <!-- ospl: ignore[CODE] reason="..." -->'
        return Suppression(comment, (), "", nothing, (f"this is no suppression; {expected}",))
    faults = []
    rules = []
    by_name = {each.name: each for each in known.values()}
    words = [word.strip() for word in matched["codes"].split(",") if word.strip()]
    for word in words:
        each = known.get(word.upper()) or by_name.get(word.lower())
        if each is None:
            faults.append(f"there is no rule '{printable(word)}'")
        elif each.takes is RuleInput.META:
            faults.append(f"{each.code} cannot be suppressed")
        else:
            rules.append(each)
    if not words:
        faults.append("a suppression has to name its rules; blanket ones are not allowed")
    target = document.root if matched["kind"] == "file-ignore" else _following(document, comment)
    if target is None:
        faults.append("no element follows the comment")
    covers = target.span if target else nothing
    if target is document.root:
        covers = ByteRange(0, len(document.source.data) + 1)
    reason = matched["double"] or matched["single"] or ""
    return Suppression(comment, tuple(rules), reason.strip(), covers, tuple(faults))


def _following(document: Document, comment: Comment) -> XmlElement | None:
    """Return the next sibling element of a comment."""
    if comment.span.end <= document.root.span.start:
        return document.root
    parent = document.root
    while True:
        inside = (each for each in parent.children if each.span.start < comment.span.start < each.span.end)
        deeper = next(inside, None)
        if deeper is None:
            break
        parent = deeper
    return next((each for each in parent.children if each.span.start >= comment.span.end), None)


class Suppressor:
    """Removes suppressed findings, and remembers the suppressions that were used; `known` has all rules."""

    def __init__(self, nodes: Iterable[NodeView], known: Mapping[str, Rule]) -> None:
        self._by_path: dict[str, tuple[NodeView, list[Suppression]]] = {}
        self._used: set[tuple[str, int, str]] = set()
        for node in nodes:
            if node.path not in self._by_path:
                self._by_path[node.path] = (node, suppressions_of(node.document, known))

    def suppresses(self, code: str, place: Place) -> bool:
        """Tell whether a finding of a rule at a place is suppressed."""
        if place.span is None or place.path not in self._by_path:
            return False
        hit = False
        for each in self._by_path[place.path][1]:
            inside = each.covers.start <= place.span.start < each.covers.end
            if inside and any(known.code == code for known in each.rules):
                self._used.add((place.path, each.comment.span.start, code))
                hit = True
        return hit

    def findings(self, ran: frozenset[str]) -> Iterator[tuple[str, Finding]]:
        """Yield the faults of the suppressions themselves, as code and finding.

        A suppression is unused only if all its rules have run.
        """
        for path, (node, every) in self._by_path.items():
            for each in every:
                for check in (malformed_suppression, suppression_without_reason):
                    code = _CODES[check.__name__]
                    yield from ((code, finding) for finding in check(node, each))
                unused = [
                    known
                    for known in each.rules
                    if not each.faults
                    and known.code in ran
                    and (path, each.comment.span.start, known.code) not in self._used
                ]
                yield from (("DUR901", finding) for finding in unused_suppression(node, each, unused))


_CODES = {"malformed_suppression": "DUR903", "suppression_without_reason": "DUR902"}


@rule("DUR901", "unused-suppression", Severity.WARNING, takes=RuleInput.META)
def unused_suppression(node: NodeView, suppression: Suppression, unused: list[Rule]) -> Iterator[Finding]:
    """A suppression suppresses nothing.

    Why: It would hide the finding when it comes back for another reason.

    Example:
        <!-- ospl: ignore[DUR605] reason="..." --> before <StoreDirectory>/var/lib/durability</StoreDirectory>
    Use instead:
        No comment.
    OpenSplice: Comments mean nothing to it.
    Reference: ospltool check, suppressions
    """
    if unused:
        codes = ", ".join(each.code for each in unused)
        fix = None
        if len(unused) == len(suppression.rules):
            fix = edits.remove_range(node, suppression.comment.span, "Remove the comment")
        yield node.found(suppression.comment.span, f"nothing is suppressed here for {codes}", fix=fix)


@rule("DUR902", "suppression-without-reason", Severity.WARNING, takes=RuleInput.META)
def suppression_without_reason(node: NodeView, suppression: Suppression) -> Iterator[Finding]:
    """A suppression does not say why.

    Why: Nobody will know whether it may go, or must stay.

    Example:
        <!-- ospl: ignore[DUR605] -->
    Use instead:
        <!-- ospl: ignore[DUR605] reason="a demonstration, the data may go" -->
    OpenSplice: Comments mean nothing to it.
    Reference: ospltool check, suppressions
    """
    if suppression.rules and not suppression.reason:
        yield node.found(
            suppression.comment.span, "the suppression gives no reason", advice='add reason="..."'
        )


@rule("DUR903", "malformed-suppression", Severity.WARNING, takes=RuleInput.META)
def malformed_suppression(node: NodeView, suppression: Suppression) -> Iterator[Finding]:
    """A comment looks like a suppression but cannot be understood, or names no rule that exists.

    Why: It does not suppress what its author thinks it does.

    Example:
        <!-- ospl: ignore -->
    Use instead:
        <!-- ospl: ignore[DUR605] reason="a demonstration" -->
    OpenSplice: Comments mean nothing to it.
    Reference: ospltool check, suppressions
    """
    for fault in suppression.faults:
        yield node.found(suppression.comment.span, fault)
