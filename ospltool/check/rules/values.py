"""DUR1xx: values that are not of their type, and what the service makes of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.config import Problem, ProblemKind, Value
from engine.config.schema import Item, Type, documented, engine_schema, schema
from ospltool.check import edits
from ospltool.check.registry import NOWHERE, OPENSPLICE, rule
from ospltool.check.views import NodeView
from ospltool.diagnostics.model import Finding, Fix, Severity, Target

_STORE_MODE = "//OpenSplice/DurabilityService/Persistent/StoreMode"
_MEANT = re.compile(r"did you mean (\w+)\?")
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
    found = _MEANT.search(problem.hint)
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
    for path, value in node.values:
        text = value.text.strip()
        if len(text) > 1 and text[0] == "0" and text.isdigit():
            item = schema().get(path)
            if item and item.type is Type.INT and not set(text) & {"8", "9"} and int(text, 8) != int(text):
                message = f"{text} is {int(text, 8)} as an octal number, and {int(text)} as a decimal one"
                fix = edits.replace_value(node, value, str(int(text)))
                yield node.found(value, message, subject=path, fix=fix)


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
            yield node.found(attribute.value, message, subject=documented(path))
