"""DUR0xx and DUR1xx: files and the variables in them, what the schema does not have, and wrong values."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.config import ByteRange, Problem, ProblemKind, Value, persistence
from engine.config.problems import printable, quoted
from engine.config.schema import Item, Type, engine_schema, schema
from engine.config.syntax import root_name
from ospltool.check import cyclone, edits
from ospltool.check.registry import EVERYWHERE, NOWHERE, OPENSPLICE, OSPLTOOL, RuleInput, rule
from ospltool.check.views import FileView, NodeView
from ospltool.diagnostics.model import Finding, Fix, Severity, Target

# More would push the message itself off the screen.
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
    found: dict[str, list[tuple[Value, ByteRange]]] = {}
    for value in node.values:
        for use in value.uses:
            if use.vanishes:
                place = (value, node.document.variable_span(value, use))
                found.setdefault(use.name, []).append(place)
    for each, places in found.items():
        (value, span), *others = places
        name = printable(each)
        more = f", and {len(others)} more {'places' if len(others) > 1 else 'place'}" if others else ""
        message = f"variable '{name}' is not set: {quoted(value.raw)} becomes {quoted(value.text)}{more}"
        how = f"set it for the check (--env), or write ${{{name}:-default}} or ${{{name}:?reason}}"
        related = tuple(node.place(other, "here too") for _, other in others[:MAX_RELATED])
        left_empty = [one.path for one, _ in places if one.is_left_empty]
        severity, blocks = Severity.WARNING, NOWHERE
        if any(where.endswith("/StoreDirectory") for where in left_empty):
            severity, blocks = Severity.ERROR, OSPLTOOL
            message += "; persistent data has nowhere to go"
        if any(where.endswith("/Service/Command") for where in left_empty):
            severity, blocks = Severity.ERROR, blocks | OPENSPLICE
            message += "; a service has no command"
        yield node.found(
            span, message, advice=how, related=related, subject=value.path, severity=severity, blocks=blocks
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
    for value in node.values:
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
            yield node.found(span, message, subject=value.path, fix=fix)


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
    for value in node.values:
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
                yield node.found(span, message, related=related, subject=value.path)


_MEANT = re.compile(r"did you mean (\w+)\?")

REMOVED = {
    "//OpenSplice/DurabilityService/Persistent/MemoryMappedFileStore": (
        "the memory-mapped store was removed from OpenSplice"
    ),
    "//OpenSplice/DurabilityService/Persistent/SmpCount": (
        "it was removed from OpenSplice and has no successor"
    ),
    "//OpenSplice/Domain/Watchdog": (
        "the real service reads Watchdog[@deadlockDetection] here, but the validator refuses it before"
    ),
}
"""Elements that OpenSplice once had, or that one part of it reads and another refuses."""
MOVED = {
    f"//OpenSplice/{service}/{old}": new
    for service in ("DDSI2Service", "DDSI2EService")
    for old, new in {
        "Internal/MaxMessageSize": "General/MaxMessageSize",
        "Internal/FragmentSize": "General/FragmentSize",
        "Internal/AggressiveKeepLast1Whc": "Internal/AggressiveKeepLastWhc",
        "Unsupported": "Internal",
    }.items()
}
"""Settings whose old place or name the networking service still reads, and the new one."""


def _suggestion(problem: Problem) -> str:
    """The name that was meant; empty if none is known."""
    found = _MEANT.search(problem.hint)
    return found[1] if found else ""


@rule("DUR020", "unknown-element", Severity.ERROR, blocks=OPENSPLICE)
def unknown_element(node: NodeView) -> Iterator[Finding]:
    """An element is not in the schema at this place.

    Why: A misspelt or misplaced setting has no effect, and its author believes that it has one.

    Example:
        <DurabilityService name="durability"><Presistent>...</Presistent></DurabilityService>
    Use instead:
        <DurabilityService name="durability"><Persistent>...</Persistent></DurabilityService>
    OpenSplice: Its validator compares names with case, reports `For element '...' the child element '...'
        is not allowed` without a line, and the domain does not start. ospltool nodes refuse it below
        DurabilityService, start with a WARNING elsewhere, and leave other services alone.
    Reference: //OpenSplice
    """
    for problem in node.problems(ProblemKind.UNKNOWN_ELEMENT):
        if problem.subject in REMOVED or problem.subject in MOVED:
            continue
        element = node.node_at(problem)
        name = _suggestion(problem)
        fix = edits.rename_element(node, element, name) if element and name else None
        yield node.from_problem(problem, fix=fix)


@rule("DUR021", "unknown-attribute", Severity.ERROR, blocks=OPENSPLICE)
def unknown_attribute(node: NodeView) -> Iterator[Finding]:
    """An attribute is not in the schema at this place.

    Why: A misspelt setting has no effect, and its author believes that it has one.

    Example:
        <Policy namespace="*" ...>
    Use instead:
        <Policy nameSpace="*" ...>
    OpenSplice: `Element '...': attribute '...' not allowed`, and the domain does not start.
    Reference: //OpenSplice
    """
    for problem in node.problems(ProblemKind.UNKNOWN_ATTRIBUTE):
        attribute = node.attribute_at(problem)
        name = _suggestion(problem)
        owner = next((each for each in node.elements if attribute in each.attributes), None)
        is_free = owner is not None and owner.attribute(name) is None
        fix = None
        if attribute and name and is_free:
            fix = edits.rename_attribute(node, attribute, name)
        yield node.from_problem(problem, fix=fix)


@rule("DUR026", "removed-setting", Severity.ERROR, blocks=OPENSPLICE)
def removed_setting(node: NodeView) -> Iterator[Finding]:
    """An element belongs to another version of OpenSplice, or one part of it reads what another refuses.

    Why: It was right once, or some documentation has it, so it does not look wrong.

    Example:
        <Persistent><StoreDirectory>/s</StoreDirectory><SmpCount>4</SmpCount></Persistent>
    Use instead:
        <Persistent><StoreDirectory>/s</StoreDirectory></Persistent>
    OpenSplice: The validator of 6.9 refuses the file. DDSI2 itself reads settings in the place that they
        once had, such as Internal/MaxMessageSize for General/MaxMessageSize, with a warning.
    Reference: //OpenSplice/DurabilityService/Persistent
    """
    for problem in node.problems(ProblemKind.UNKNOWN_ELEMENT):
        why, moved = REMOVED.get(problem.subject), MOVED.get(problem.subject)
        element = node.node_at(problem)
        if why and element:
            fix = edits.remove_element(node, element)
            yield node.from_problem(problem, message=f"<{element.name}>: {why}", fix=fix)
        elif moved and element:
            message = (
                f"<{element.name}> has moved: DDSI2 reads it as {moved}, but the validator refuses it before"
            )
            yield node.from_problem(problem, message=message)


@rule("DUR027", "no-durability-service", Severity.WARNING, targets=OSPLTOOL, blocks=OSPLTOOL)
def no_durability_service(node: NodeView) -> Iterator[Finding]:
    """A file has no DurabilityService, so that no ospltool node can run with it.

    Why: Durable data is kept by other nodes only, and lost when none of them is connected.

    Example:
        <OpenSplice><Domain>...</Domain><DDSI2Service name="ddsi2"/></OpenSplice>
    Use instead:
        A DurabilityService and the Domain/Service of its name, or leave the file out of the deployment.
    OpenSplice: Runs without a durability service when the domain lists none.
    Reference: //OpenSplice/DurabilityService
    """
    if not node.has_durability:
        yield node.found(node.document.root.name_span, "the file has no DurabilityService")


@rule("DUR028", "wrong-service-name", Severity.ERROR, blocks=EVERYWHERE)
def wrong_service_name(node: NodeView) -> Iterator[Finding]:
    """No DurabilityService has the name of the service to run, or two have it.

    Why: The name says which configuration applies to which Domain/Service.

    Example:
        <DurabilityService name="dur"> with Domain/Service name="durability"
    Use instead:
        <DurabilityService name="durability">
    OpenSplice: `No DurabilityService configurations found for serviceName '...'` ends the service; of two
        with one name the last is used with a warning, while the validator allows one DurabilityService
        only.
    Reference: //OpenSplice/DurabilityService[@name]
    """
    for problem in node.interpreted.problems:
        if problem.kind is ProblemKind.SERVICE and node.has_durability:
            wanted = node.configuration.service
            listed = {entry.name for entry in node.configuration.domain.services}
            names = [
                each.text
                for n in node.document.root.named("DurabilityService")
                if (each := n.attribute("name"))
            ]
            fits_domain = len(names) == 1 and names[0] in listed
            if fits_domain and wanted not in listed:
                hint = f"OpenSplice runs it as '{names[0]}'; an ospltool node needs to be told that name"
                yield node.from_problem(problem, advice=hint, blocks=NOWHERE, severity=Severity.WARNING)
            else:
                yield node.from_problem(problem)


_STORE_MODE = "//OpenSplice/DurabilityService/Persistent/StoreMode"
_MEANT_LABEL = re.compile(r"did you mean (\w+)\?")
_TRUE = {"yes", "on", "1", "true", "t", "y", "enabled"}
_FALSE = {"no", "off", "0", "false", "f", "n", "disabled"}


def _item(problem: Problem) -> Item | None:
    path = problem.subject.removeprefix("//OpenSplice/")
    return schema().get(path.replace("[@", "@").removesuffix("]"))


def _refusing(value: Value) -> frozenset[Target]:
    """OpenSplice refuses a wrong value; what it makes of one that variables leave empty is not known."""
    return OPENSPLICE if value.text.strip() else NOWHERE


def _bad(node: NodeView, *types: Type) -> Iterator[tuple[Problem, Item, Value]]:
    """Yield wrong values of these types, but not those that an unset variable left empty (DUR011)."""
    for problem in node.problems(ProblemKind.BAD_VALUE):
        item = _item(problem)
        value = node.value_at(problem)
        if (
            item
            and value
            and item.type in types
            and problem.subject != _STORE_MODE
            and not value.is_left_empty
        ):
            yield problem, item, value


@rule("DUR101", "bad-boolean", Severity.ERROR, blocks=OPENSPLICE)
def bad_boolean(node: NodeView) -> Iterator[Finding]:
    """A switch is neither true nor false.

    Why: A reader has to guess, and different parts of OpenSplice guess differently.

    Example:
        <Policy aligner="yes" .../>
    Use instead:
        <Policy aligner="true" .../>
    OpenSplice: The validator takes TRUE and FALSE in any case, nothing else, and refuses the file. With
        the validator off, the service takes whatever begins with TRUE or FALSE and keeps the default
        otherwise; for Policy[@aligner] everything but TRUE means FALSE, so that `yes` switches aligning
        off.
    Reference: //OpenSplice
    """
    for problem, item, value in _bad(node, Type.BOOLEAN):
        word = value.text.strip().lower()
        meant = "true" if word in _TRUE or word.startswith("true") else "false" if word in _FALSE else ""
        fix = edits.replace_value(node, value, meant) if meant else None
        advice = _service_reads_boolean(item, value.text)
        yield node.from_problem(problem, advice=advice, blocks=_refusing(value), fix=fix)


def _service_reads_boolean(item: Item, text: str) -> str:
    word = text.lstrip().upper()
    if item.path == "DurabilityService/NameSpaces/Policy@aligner":
        return "with its validator off, OpenSplice reads FALSE"
    read = "TRUE" if word.startswith("TRUE") else "FALSE" if word.startswith("FALSE") else ""
    return f"with its validator off, OpenSplice reads {read or f'the default, {item.default}'}"


@rule("DUR102", "bad-number", Severity.ERROR, blocks=OPENSPLICE)
def bad_number(node: NodeView) -> Iterator[Finding]:
    """A number is no number, or something follows it.

    Why: Units are not part of the value: times are in seconds, sizes in bytes.

    Example:
        <StoreSessionTime>20s</StoreSessionTime>
    Use instead:
        <StoreSessionTime>20.0</StoreSessionTime>
    OpenSplice: The validator refuses trailing characters. With the validator off, the service reads the
        number at the beginning and ignores the rest, or keeps the default when there is none.
    Reference: //OpenSplice
    """
    for problem, item, value in _bad(node, Type.INT, Type.FLOAT, Type.SIZE):
        found = re.match(r"\s*[+-]?\d+(\.\d*)?", value.text)
        read = found.group().strip() if found else f"the default, {item.default}"
        unit = f"; the unit is {item.unit}" if item.unit else ""
        advice = f"with its validator off, OpenSplice reads {read}{unit}"
        yield node.from_problem(problem, advice=advice, blocks=_refusing(value))


@rule("DUR103", "unknown-label", Severity.ERROR, blocks=OPENSPLICE)
def unknown_label(node: NodeView) -> Iterator[Finding]:
    """A value is not one of the words that are allowed.

    Why: The word that was meant has an effect, this one has another or none.

    Example:
        <Merge type="Catch-up" scope="*"/>
    Use instead:
        <Merge type="Catchup" scope="*"/>
    OpenSplice: The validator compares without case and refuses the file. With the validator off, the
        service goes on: an unknown alignee is Initial, an unknown durability is Durable, and an unknown
        Merge type is that of the Merge that follows in the document.
    Reference: //OpenSplice
    """
    for problem, _, value in _bad(node, Type.ENUM):
        fix = _label_fix(node, problem, value)
        yield node.from_problem(problem, blocks=_refusing(value), fix=fix)


def _label_fix(node: NodeView, problem: Problem, value: Value) -> Fix | None:
    found = _MEANT_LABEL.search(problem.hint)
    return edits.replace_value(node, value, found[1]) if found else None


@rule("DUR104", "out-of-range", Severity.ERROR, blocks=OPENSPLICE)
def out_of_range(node: NodeView) -> Iterator[Finding]:
    """A number lies outside its range.

    Why: It cannot have the effect that it states.

    Example:
        <Policy masterPriority="300" .../>
    Use instead:
        <Policy masterPriority="254" .../>
    OpenSplice: The validator refuses the file. With the validator off, the service silently takes the
        nearest value of the range; for masterPriority it says so.
    Reference: //OpenSplice
    """
    for problem in node.problems(ProblemKind.OUT_OF_RANGE):
        item = _item(problem)
        value = node.value_at(problem)
        if item is None or value is None:
            continue
        nearest = (
            item.low if f"less than {item.low}" in problem.message or _is_low(item, value) else item.high
        )
        note = f"with its validator off, OpenSplice takes {nearest}"
        if item.path == "DurabilityService/Network/InitialDiscoveryPeriod":
            note = "with its validator off, OpenSplice takes up to 60.0 here"
        fix = edits.replace_value(node, value, nearest)
        yield node.from_problem(problem, advice=note, fix=fix)


def _is_low(item: Item, value: Value) -> bool:
    return bool(item.low) and value.text.strip().startswith("-")


@rule("DUR107", "octal-number", Severity.WARNING)
def octal_number(node: NodeView) -> Iterator[Finding]:
    """A whole number begins with 0, which makes it octal for one reader and decimal for another.

    Why: `010` is 8 where it is validated and may be 10 where it is used.

    Example:
        <Id>010</Id>
    Use instead:
        <Id>10</Id>
    OpenSplice: The validator reads octal numbers; Domain/Id is then read as a decimal one.
    Reference: //OpenSplice/Domain/Id
    """
    for value in node.values:
        text = value.text.strip()
        if len(text) > 1 and text[0] == "0" and text.isdigit():
            item = schema().get(value.path)
            if item and item.type is Type.INT and not set(text) & {"8", "9"} and int(text, 8) != int(text):
                message = f"{text} is {int(text, 8)} as an octal number, and {int(text)} as a decimal one"
                fix = edits.replace_value(node, value, str(int(text)))
                yield node.found(value, message, fix=fix)


@rule("DUR108", "domain-id-too-high", Severity.ERROR, blocks=OPENSPLICE)
def domain_id_too_high(node: NodeView) -> Iterator[Finding]:
    """The domain has a number that the network has no ports for.

    Why: The ports of DDSI are computed from the domain id; above 230 they exceed 65535.

    Example:
        <Id>1000</Id>
    Use instead:
        <Id>100</Id>
    OpenSplice: The schema allows up to 2147483646, but the code takes 0 to 230 only.
    Reference: //OpenSplice/Domain/Id
    """
    for problem in node.interpreted.problems:
        if problem.kind is ProblemKind.OUT_OF_RANGE and problem not in node.interpreted.schema_problems:
            yield node.from_problem(problem)


@rule("DUR109", "unknown-store-mode", Severity.ERROR, blocks=OPENSPLICE)
def unknown_store_mode(node: NodeView) -> Iterator[Finding]:
    """StoreMode is neither XML nor KV.

    Why: Data would be looked for, and stored, in another kind of store than the one that is on the disk.

    Example:
        <StoreMode>MMF</StoreMode>
    Use instead:
        <StoreMode>KV</StoreMode>
    OpenSplice: The validator refuses the file. With the validator off, everything but KV and KV:...
        silently means XML. ospltool nodes have one kind of store, but refuse the word all the same.
    Reference: //OpenSplice/DurabilityService/Persistent/StoreMode
    """
    for problem in node.problems(ProblemKind.BAD_VALUE):
        value = node.value_at(problem)
        if problem.subject == _STORE_MODE and value:
            hint = "with its validator off, OpenSplice silently uses the XML store"
            yield node.from_problem(problem, advice=hint, fix=_label_fix(node, problem, value))


@rule("DUR110", "volatile-durability", Severity.WARNING, targets=OPENSPLICE, blocks=OPENSPLICE)
def volatile_durability(node: NodeView) -> Iterator[Finding]:
    """A policy says Volatile, which the documentation has and OpenSplice has not.

    Why: The deployment guide lists it; the validator of the real service does not know it.

    Example:
        <Policy durability="Volatile" .../>
    Use instead:
        Leave the partitions out of every name-space of this node.
    OpenSplice: Refuses the file; with the validator off it reads Durable, the opposite. ospltool nodes do
        what the guide says.
    Reference: deployment guide 5.2.3.2
    """
    path = "DurabilityService/NameSpaces/Policy@durability"
    extra = set(engine_schema()[path].labels) - set(schema()[path].labels)
    for policy in node.policy_nodes:
        attribute = policy.attribute("durability")
        if attribute and attribute.text.strip().title() in extra:
            message = "OpenSplice knows no durability Volatile, and with its validator off reads Durable"
            yield node.found(attribute.value, message)
