"""DUR0xx: files that cannot be read as configurations, and the variables in them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.config import ByteRange, ProblemKind, Value, persistence
from engine.config.problems import printable, quoted
from engine.config.syntax import root_name
from ospltool.check import cyclone, edits
from ospltool.check.registry import EVERYWHERE, NOWHERE, OPENSPLICE, OSPLTOOL, RuleInput, rule
from ospltool.check.views import FileView, NodeView
from ospltool.diagnostics.model import Finding, Severity, Target

MAX_RELATED = 5
_OF_ANY_FILE = frozenset(
    {ProblemKind.UNREADABLE, ProblemKind.NOTHING_FOUND, ProblemKind.TOO_LARGE, ProblemKind.ENCODING}
)


def of_kind(file: FileView, kind: ProblemKind) -> Iterator[Finding]:
    """Find the problems of one kind; those of the content of a fleet file belong to DUR007."""
    if kind not in _OF_ANY_FILE and _is_fleet(file):
        return
    nodes = (file.node_name,) if file.node_name else ()
    blocks = NOWHERE if kind is ProblemKind.NOTHING_FOUND else _readers(file)
    for problem in file.problems:
        if problem.kind is kind:
            yield Finding(
                problem.message, file.place(problem), advice=problem.hint, nodes=nodes, refusing=blocks
            )


_OTHER_READERS = {
    persistence.SERVICE: OSPLTOOL,
    persistence.ROOT: NOWHERE,  # applications read QoS profiles
}


def _readers(file: FileView) -> frozenset[Target]:
    """Return the services that read a file, by its root element; all if that says nothing."""
    if _is_fleet(file):
        return OSPLTOOL  # OpenSplice has no fleet files
    text = file.source.data.replace(b"\0", b"").decode("utf-8", "replace") if file.source else ""
    root = root_name(text)
    if root == persistence.ROOT and f"<{persistence.SERVICE}" in text:
        root = persistence.SERVICE
    if file.cyclone is not None or root.lower() == cyclone.ROOT.lower() or cyclone.is_part(root):
        return OSPLTOOL
    return _OTHER_READERS.get(root, EVERYWHERE)


def _is_fleet(file: FileView) -> bool:
    return file.path.endswith(".toml")


@rule("DUR007", "wrong-fleet-file", Severity.ERROR, takes=RuleInput.FILE, blocks=OSPLTOOL)
def wrong_fleet_file(file: FileView) -> Iterator[Finding]:
    """A fleet file does not describe a deployment.

    Why: A misspelt key would otherwise silently leave a node without its role or its variables.

    Example:
        [[node]]
        name = "n1"
        fiel = "n1.xml"
    Use instead:
        [[node]]
        name = "n1"
        file = "n1.xml"
    OpenSplice: Has no notion of a fleet; every node is configured by itself.
    Reference: fleet.toml
    """
    if _is_fleet(file):
        for problem in file.problems:
            if problem.kind not in _OF_ANY_FILE:
                yield Finding(problem.message, file.place(problem), advice=problem.hint)


@rule("DUR010", "broken-expansion", Severity.ERROR, blocks=EVERYWHERE)
def broken_expansion(node: NodeView) -> Iterator[Finding]:
    """A variable cannot be expanded: it is written wrongly, or `:?` says that it must be set.

    Why: The value is not known, and `:?` asks for the start to fail then.

    Example:
        <Id>${OSPL_DOMAIN_ID:?set the domain}</Id>
    Use instead:
        <Id>${OSPL_DOMAIN_ID:-0}</Id>
    OpenSplice: The same: the reader stops with line and element.
    Reference: deployment guide, environment variables in configuration files
    """
    for problem in node.document.problems:
        yield node.from_problem(problem)


@rule("DUR011", "unset-variable", Severity.WARNING)
def unset_variable(node: NodeView) -> Iterator[Finding]:
    """A variable without a default is not set, so that it silently expands to nothing.

    Why: A path loses its first part, a name becomes empty, a number is missing; all without any message.
        It is an error where a store directory or the command of a service is left empty.

    Example:
        <StoreDirectory>${STORE}/n1</StoreDirectory>
    Use instead:
        <StoreDirectory>${STORE:?where to store}/n1</StoreDirectory>
    OpenSplice: An unset ${VAR} expands to the empty string.
    Reference: deployment guide, environment variables in configuration files
    """
    found: dict[str, list[tuple[str, Value, ByteRange]]] = {}
    for path, value in node.values:
        for use in value.uses:
            if use.vanishes:
                place = (path, value, node.document.variable_span(value, use))
                found.setdefault(use.name, []).append(place)
    for each, places in found.items():
        (path, value, span), *others = places
        name = printable(each)
        more = f", and {len(others)} more {'places' if len(others) > 1 else 'place'}" if others else ""
        message = f"variable '{name}' is not set: {quoted(value.raw)} becomes {quoted(value.text)}{more}"
        how = f"set it for the check (--env), or write ${{{name}:-default}} or ${{{name}:?reason}}"
        related = tuple(node.place(other, "here too") for _, _, other in others[:MAX_RELATED])
        left_empty = [where for where, one, _ in places if one.is_left_empty]
        severity, blocks = Severity.WARNING, NOWHERE
        if any(where.endswith("/StoreDirectory") for where in left_empty):
            severity, blocks = Severity.ERROR, OSPLTOOL
            message += "; persistent data has nowhere to go"
        if any(where.endswith("/Service/Command") for where in left_empty):
            severity, blocks = Severity.ERROR, blocks | OPENSPLICE
            message += "; a service has no command"
        yield node.found(
            span, message, advice=how, related=related, subject=path, severity=severity, blocks=blocks
        )


_BARE = re.compile(r"(?<![\\$])\$([A-Za-z_][A-Za-z0-9_]*)")


@rule("DUR012", "bare-variable", Severity.WARNING)
def bare_variable(node: NodeView) -> Iterator[Finding]:
    """A value has `$NAME` without braces, which is not expanded.

    Why: The value keeps the dollar sign and the name, which is hardly ever meant: a directory called
        `$HOME` is made.

    Example:
        <StoreDirectory>$HOME/store</StoreDirectory>
    Use instead:
        <StoreDirectory>${HOME}/store</StoreDirectory>
    OpenSplice: Expands ${NAME} only, too.
    Reference: deployment guide, environment variables in configuration files
    """
    for path, value in node.values:
        if "$" not in value.raw:
            continue
        for found in _BARE.finditer(value.raw):
            span = value.span
            fix = None
            if node.source.text(value.span) == value.raw:
                start = value.span.start + len(value.raw[: found.start()].encode(node.source.encoding))
                span = ByteRange(start, start + len(found.group().encode(node.source.encoding)))
                new = f"${{{found[1]}}}"
                fix = edits.replace_span(node, span, new, f"Replace by '{new}'")
            message = f"{quoted(found.group())} is taken as it stands; only ${{{found[1]}}} is a variable"
            yield node.found(span, message, subject=path, fix=fix)


@rule("DUR013", "defaults-differ", Severity.WARNING)
def defaults_differ(node: NodeView) -> Iterator[Finding]:
    """One variable has different defaults in one file.

    Why: Where the variable is not set, the same thing has two values, for example two domains.

    Example:
        <Id>${DOMAIN:-0}</Id> ... <DomainId>${DOMAIN:-1}</DomainId>
    Use instead:
        The same default everywhere.
    OpenSplice: Expands each place by itself.
    Reference: bounds and habits of this tool
    """
    first: dict[str, tuple[str, ByteRange]] = {}
    for path, value in node.values:
        for use in value.uses:
            if use.operator != "-":
                continue
            default = value.raw[use.start : use.end].partition(":-")[2][:-1]
            span = node.document.variable_span(value, use)
            earlier, place = first.setdefault(use.name, (default, span))
            if earlier != default:
                message = (
                    f"{quoted(use.name)} defaults to {quoted(default)} here and to {quoted(earlier)} before"
                )
                related = (node.place(place, "the other default"),)
                yield node.found(span, message, related=related, subject=path)
