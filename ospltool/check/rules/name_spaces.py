"""DUR20x: what the name-spaces of one node contain, and whether a policy is responsible for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from engine.config import ProblemKind, XmlElement
from engine.config.name_space_reader import conflict_text
from engine.core import expressions
from engine.core.expressions import covers
from engine.core.name_spaces import Element, compare
from ospltool.check import edits
from ospltool.check.registry import EVERYWHERE, NOWHERE, OPENSPLICE, OSPLTOOL, rule
from ospltool.check.views import NodeView
from ospltool.diagnostics.model import Finding, Severity

MAX_OPENSPLICE_EXPRESSION = 99
"""Longest `partition.topic` that OpenSplice has room for."""


@rule("DUR201", "overlapping-name-spaces", Severity.ERROR, blocks=OSPLTOOL)
def overlapping_name_spaces(node: NodeView) -> Iterator[Finding]:
    """Two name-spaces of one node have a partition.topic in common.

    Why: A name-space is an atomic set of data with one master and one policy; data in two of them belongs
        to neither. Two nodes with this very file refuse each other, because overlap is a conflict between
        nodes.

    Example:
        <NameSpace name="a"><Partition>ship*</Partition></NameSpace>
        <NameSpace name="b"><Partition>ships</Partition></NameSpace>
    Use instead:
        <NameSpace name="a"><Partition>ship*</Partition></NameSpace>
    OpenSplice: Does not look for it. Data goes to the first name-space of the document that contains it.
    Reference: deployment guide 5.2.2, 5.4.2
    """
    for first, second in itertools.combinations(node.definitions, 2):
        conflict = compare(first.name_space, second.name_space)
        if conflict and first.name_space.name != second.name_space.name:
            yield node.found(
                second.node,
                conflict_text(conflict),
                advice=f"OpenSplice puts what is in both into '{first.name_space.name}'",
                related=(first.place("the other name-space"),),
            )


@rule("DUR202", "duplicate-name-space", Severity.ERROR, blocks=OSPLTOOL)
def duplicate_name_space(node: NodeView) -> Iterator[Finding]:
    """Two name-spaces of one node have the same name.

    Why: Nodes agree on a name-space by its name and its definition; with two definitions they cannot.

    Example:
        <NameSpace name="a"><Partition>p</Partition></NameSpace>
        <NameSpace name="a"><Partition>q</Partition></NameSpace>
    Use instead:
        <NameSpace name="a"><Partition>p</Partition><Partition>q</Partition></NameSpace>
    OpenSplice: Does not look for it.
    Reference: deployment guide 5.2.2
    """
    for first, second in itertools.combinations(node.definitions, 2):
        if first.name_space.name == second.name_space.name:
            message = f"name-space '{second.name_space.name}' is defined a second time"
            place = second.node.attribute("name") or second.node
            yield node.found(
                place, message, related=(first.place("first defined here"),), subject=second.node.path
            )


@rule("DUR203", "empty-name-space", Severity.ERROR, blocks=OSPLTOOL)
def empty_name_space(node: NodeView) -> Iterator[Finding]:
    """A name-space contains nothing.

    Why: No data ever belongs to it, but a master is elected for it all the same.

    Example:
        <NameSpace name="a"/>
    Use instead:
        <NameSpace name="a"><Partition>*</Partition></NameSpace>
    OpenSplice: Its validator requires neither Partition nor PartitionTopic.
    Reference: //OpenSplice/DurabilityService/NameSpaces/NameSpace
    """
    for problem in node.interpreted.problems:
        if problem.kind is ProblemKind.EMPTY_NAME_SPACE:
            yield node.from_problem(problem, blocks=NOWHERE)


@rule("DUR204", "blank-topic", Severity.ERROR, blocks=EVERYWHERE)
def blank_topic(node: NodeView) -> Iterator[Finding]:
    """A PartitionTopic ends with a dot, so that its topic is blank.

    Why: The notation is partition.topic, divided at the last dot; no topic has a blank name.

    Example:
        <PartitionTopic>ships.</PartitionTopic>
    Use instead:
        <PartitionTopic>ships.*</PartitionTopic>
    OpenSplice: Refuses to start when it is the first PartitionTopic of its NameSpace, and silently drops
        a later one.
    Reference: //OpenSplice/DurabilityService/NameSpaces/NameSpace/PartitionTopic
    """
    for problem in node.interpreted.problems:
        if problem.kind is not ProblemKind.BLANK_TOPIC:
            continue
        value = node.value_at(problem)
        owner = _owner(node, problem.line)
        first = next(iter(owner.named("PartitionTopic")), None) if owner else None
        is_first = first is not None and first.value is value
        help_ = (
            "" if is_first else "OpenSplice silently drops it, because it is not the first of its name-space"
        )
        fix = edits.replace_value(node, value, value.raw + "*") if value else None
        yield node.from_problem(problem, advice=help_, blocks=OPENSPLICE if is_first else NOWHERE, fix=fix)


def _owner(node: NodeView, line: int) -> XmlElement | None:
    """The last NameSpace that begins at or above a line."""
    return next((each for each in reversed(node.name_space_nodes) if each.line <= line), None)


@rule("DUR205", "no-policy", Severity.ERROR, blocks=EVERYWHERE)
def no_policy(node: NodeView) -> Iterator[Finding]:
    """No Policy matches the name of a name-space.

    Why: Nobody knows who keeps its data, who aligns it and who may be its master.

    Example:
        <NameSpace name="ships"><Partition>ships</Partition></NameSpace>
        <Policy nameSpace="ship" .../>
    Use instead:
        <Policy nameSpace="ship*" .../>
    OpenSplice: Discards all name-spaces because of one, and ends with `Unable to start with empty
        namespaces configuration`. The default policy that the documentation mentions comes too late for
        it, also where there is no Policy at all.
    Reference: deployment guide 5.2.3.6, //OpenSplice/DurabilityService/NameSpaces/Policy[@nameSpace]
    """
    for definition in node.definitions:
        if definition.policy is None:
            name = definition.name_space.name
            names = [policy.name_space for policy, _ in node.policies]
            help_ = (
                f"the policies are for {', '.join(map(repr, names))}"
                if names
                else "there is no Policy at all"
            )
            place = definition.node.attribute("name") or definition.node
            message = f"no Policy matches name-space '{name}'"
            yield node.found(place, message, advice=help_, subject=definition.node.path)


@rule("DUR206", "expression-too-long", Severity.ERROR, targets=OPENSPLICE, blocks=OPENSPLICE)
def expression_too_long(node: NodeView) -> Iterator[Finding]:
    """A partition.topic expression is longer than OpenSplice has room for.

    Why: The service cannot store it.

    Example:
        <PartitionTopic>(100 characters)</PartitionTopic>
    Use instead:
        A wildcard in the place of a long part.
    OpenSplice: Has 101 bytes for it, and reports `PartitionTopic length is too long`.
    Reference: //OpenSplice/DurabilityService/NameSpaces/NameSpace/PartitionTopic
    """
    for owner in node.name_space_nodes:
        for child in owner.children:
            length = len(child.text.encode()) + (2 if child.name == "Partition" else 0)
            if child.value and length > MAX_OPENSPLICE_EXPRESSION:
                message = (
                    f"the expression has {length} bytes; OpenSplice has room for {MAX_OPENSPLICE_EXPRESSION}"
                )
                yield node.found(child.value, message, subject=child.path)


@rule("DUR207", "misread-on-the-network", Severity.WARNING, targets=OPENSPLICE)
def misread_on_the_network(node: NodeView) -> Iterator[Finding]:
    """A partition or topic of a name-space has a dot or a comma, which OpenSplice fellows misunderstand.

    Why: The local service divides at the last dot, its fellows at the first one and at every comma. They
        see another name-space, and refuse communication or accept what overlaps.

    Example:
        <PartitionTopic>fleet.north.ships</PartitionTopic>
    Use instead:
        <PartitionTopic>fleet?north.ships</PartitionTopic>
    OpenSplice: Sends all expressions as one text, joined with commas.
    Reference: deployment guide 5.2.2
    """
    for owner in node.name_space_nodes:
        for child in owner.children:
            if not child.value or child.name not in ("Partition", "PartitionTopic"):
                continue
            text = child.text
            partition, _, topic = text.rpartition(".") if child.name == "PartitionTopic" else (text, ".", "*")
            if "." in partition or "," in text:
                seen = ", ".join(f"'{_first_split(part)}'" for part in f"{partition}.{topic}".split(","))
                message = f"OpenSplice fellows read partition '{partition}', topic '{topic}' as {seen}"
                yield node.found(child.value, message, subject=child.path)


def _first_split(text: str) -> str:
    partition, _, rest = text.partition(".")
    return f"{partition}.{rest.partition('.')[0]}"


@rule("DUR208", "redundant-expression", Severity.INFO)
def redundant_expression(node: NodeView) -> Iterator[Finding]:
    """An expression adds nothing to its name-space, because another one contains it.

    Why: Nodes compare definitions expression by expression: one that leaves it out is in conflict with
        this one. OpenSplice has waited endlessly where `*.*` was mixed with others.

    Example:
        <Partition>*</Partition><Partition>ships</Partition>
    Use instead:
        <Partition>*</Partition>
    OpenSplice: Keeps every expression that is different.
    Reference: deployment guide 5.2.2
    """
    for owner in node.name_space_nodes:
        parsed = [(child, element) for child in owner.children if (element := _element(child))]
        for at, (child, element) in enumerate(parsed):
            for place, (other, wider) in enumerate(parsed):
                if place != at and _covers(wider, element) and not (at < place and _covers(element, wider)):
                    message = f"{child.text!r} is contained in {other.text!r}"
                    fix = edits.remove_element(node, child)
                    related = (node.place(other, "contains it"),)
                    yield node.found(child, message, related=related, fix=fix)
                    break


def _element(child: XmlElement) -> Element | None:
    if child.name == "Partition":
        return Element(child.text, "*")
    try:
        return Element.parse(child.text) if child.name == "PartitionTopic" else None
    except ValueError:
        return None


def _covers(wide: Element, narrow: Element) -> bool:
    return covers(wide.partition, narrow.partition) and covers(wide.topic, narrow.topic)


@rule("DUR209", "wildcard-in-name", Severity.WARNING)
def wildcard_in_name(node: NodeView) -> Iterator[Finding]:
    """The name of a name-space has a wildcard, which is none in a name.

    Why: Names are plain; expressions belong into Policy[@nameSpace] and into the content of a NameSpace.

    Example:
        <NameSpace name="ship*"><Partition>ships</Partition></NameSpace>
    Use instead:
        <NameSpace name="ships"><Partition>ship*</Partition></NameSpace>
    OpenSplice: Takes the name as it stands.
    Reference: //OpenSplice/DurabilityService/NameSpaces/NameSpace[@name]
    """
    for owner in node.name_space_nodes:
        attribute = owner.attribute("name")
        if attribute and not expressions.is_literal(attribute.text):
            yield node.found(attribute.value, "a name has no wildcards", subject=f"{owner.path}@name")


@rule("DUR210", "blank-in-expression", Severity.WARNING)
def blank_in_expression(node: NodeView) -> Iterator[Finding]:
    """An expression looks like a list, but stands for one name with blanks, commas or semicolons in it.

    Why: `p, q` is one partition with a comma and a blank in its name. No data is ever found in it.

    Example:
        <Partition>ships, weather</Partition>
    Use instead:
        <Partition>ships</Partition><Partition>weather</Partition>
    OpenSplice: Takes the text as one expression, too.
    Reference: //OpenSplice/DurabilityService/NameSpaces/NameSpace/Partition
    """
    for owner in node.name_space_nodes:
        for child in owner.children:
            if child.value and any(char in child.text for char in ",;\n|"):
                message = f"{child.text!r} is one name, not a list"
                yield node.found(child.value, message, subject=child.path)
