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


def _of_kind(file: FileView, kind: ProblemKind) -> Iterator[Finding]:
    """The problems of one kind; those of the content of a fleet file belong to DUR007."""
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
    cyclone.ROOT: OSPLTOOL,
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
    return _OTHER_READERS.get(root, EVERYWHERE)


def _is_fleet(file: FileView) -> bool:
    return file.path.endswith(".toml")


@rule("DUR001", "unreadable-file", Severity.ERROR, takes=RuleInput.FILE, blocks=EVERYWHERE)
def unreadable_file(file: FileView) -> Iterator[Finding]:
    """A file that is named cannot be read.

    Why: Nothing is known of the node that would run with it.

    Example:
        ospltool check file:///etc/opt/ospl.xml
    Use instead:
        A path or `file://` URI of a file that exists and may be read. Nothing is fetched from a network.
    OpenSplice: Takes `file://` URIs only and answers anything else with `Invalid URI specified`.
    Reference: deployment guide, OSPL_URI
    """
    return _of_kind(file, ProblemKind.UNREADABLE)


@rule("DUR002", "file-too-large", Severity.ERROR, takes=RuleInput.FILE, blocks=EVERYWHERE)
def file_too_large(file: FileView) -> Iterator[Finding]:
    """A file exceeds a bound of the reader.

    Why: Configurations have a few KB. What is larger than 1 MiB, has more than 10,000 elements and
        attributes or nests more than 64 deep is no configuration, and is not worth the memory that
        reading it would take.

    Example:
        <OpenSplice><a><a><a>...
    Use instead:
        The file that was meant.
    OpenSplice: Is not known to have any bound.
    Reference: bounds and habits of this tool
    """
    return _of_kind(file, ProblemKind.TOO_LARGE)


@rule("DUR003", "wrong-encoding", Severity.ERROR, takes=RuleInput.FILE, blocks=EVERYWHERE)
def wrong_encoding(file: FileView) -> Iterator[Finding]:
    """The bytes of a file are not in the encoding that it declares, or in one that is not read.

    Why: A wrongly decoded name of a partition is another partition.

    Example:
        <?xml version="1.0" encoding="UTF-16"?>
    Use instead:
        UTF-8, which needs no declaration. US-ASCII and ISO-8859-1 are read when they are declared.
    OpenSplice: Has a reader of its own; what it does with other encodings is not documented.
    Reference: XML 1.0, 4.3.3
    """
    return _of_kind(file, ProblemKind.ENCODING)


@rule("DUR004", "not-well-formed", Severity.ERROR, takes=RuleInput.FILE, blocks=EVERYWHERE)
def not_well_formed(file: FileView) -> Iterator[Finding]:
    """A file is not well-formed XML.

    Why: What an unclosed element contains cannot be known.

    Example:
        <Domain><Name>n1</Domain>
    Use instead:
        <Domain><Name>n1</Name></Domain>
    OpenSplice: Refuses the file: `line ..., element ...: ...`, with the report context `configuration
        parser`.
    Reference: XML 1.0, 2.1
    """
    return _of_kind(file, ProblemKind.SYNTAX)


@rule("DUR005", "document-type", Severity.ERROR, takes=RuleInput.FILE, blocks=EVERYWHERE)
def document_type(file: FileView) -> Iterator[Finding]:
    """A file has a document type declaration.

    Why: Document types bring entities, which can read other files, reach into the network, or grow
        without bound. No OpenSplice configuration needs one.

    Example:
        <!DOCTYPE OpenSplice [<!ENTITY name "n1">]>
    Use instead:
        Variables: ${NAME:-n1}
    OpenSplice: Its reader knows no document types.
    Reference: XML 1.0, 2.8
    """
    return _of_kind(file, ProblemKind.DTD)


@rule("DUR006", "wrong-root", Severity.ERROR, takes=RuleInput.FILE, blocks=EVERYWHERE)
def wrong_root(file: FileView) -> Iterator[Finding]:
    """The root element is not OpenSplice.

    Why: It is another kind of file, which the finding names where it is known. Settings of Cyclone DDS itself
        and QoS profiles have rules of their own.

    Example:
        <MetaData>...</MetaData>
    Use instead:
        <OpenSplice>...</OpenSplice>
    OpenSplice: `Root element missing expected 'OpenSplice' but found '...'`, and the domain does not
        start.
    Reference: //OpenSplice
    """
    return _of_kind(file, ProblemKind.ROOT)


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


@rule("DUR008", "nothing-to-check", Severity.ERROR, takes=RuleInput.FILE)
def nothing_to_check(file: FileView) -> Iterator[Finding]:
    """A directory has no configuration, or one inside a file that is no XML.

    Why: A check of nothing finds nothing. It would pass for ever in a build whose files have moved.
        Templates have to be rendered, and XML in YAML has to become a file, before they can be checked.

    Example:
        ospltool check charts/
    Use instead:
        helm template charts/ > rendered.yaml, then the XML in it as a file
    OpenSplice: Takes one file, and no directory.
    Reference: bounds and habits of this tool
    """
    return _of_kind(file, ProblemKind.NOTHING_FOUND)


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
