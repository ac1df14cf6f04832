"""DUR22x: the deprecated notation, in which a NameSpace carries its own policy."""

from __future__ import annotations

from collections.abc import Iterator

from engine.config import XmlElement
from ospltool.check.registry import OPENSPLICE, rule
from ospltool.check.views import NodeView
from ospltool.diagnostics.model import Finding, Severity


def _label(node: XmlElement) -> str:
    attribute = node.attribute("name")
    return f"name-space '{attribute.text}'" if attribute else "this name-space"


@rule("DUR220", "deprecated-notation", Severity.WARNING)
def deprecated_notation(node: NodeView) -> Iterator[Finding]:
    """A NameSpace has no name, or says durabilityKind or alignmentKind: the deprecated notation.

    Why: It cannot say masterPriority, merge types, delayedAlignment or equalityCheck, and no Policy
        applies to it.

    Example:
        <NameSpace durabilityKind="Durable"
        alignmentKind="Initial_And_Aligner"><Partition>*</Partition></NameSpace>
    Use instead:
        <NameSpace name="all"><Partition>*</Partition></NameSpace>
        <Policy nameSpace="all" durability="Durable" aligner="true" alignee="Initial"/>
    OpenSplice: Gives it a policy of its own with masterPriority 255 and no Merge, and a name such as
        NoName0 when it has none, counted from the end of the document.
    Reference: //OpenSplice/DurabilityService/NameSpaces/NameSpace[@alignmentKind]
    """
    for element in node.deprecated_name_spaces:
        why = "has no name" if not element.attribute("name") else "carries its own policy"
        yield node.found(element, f"{_label(element)} {why}, which is deprecated")


@rule("DUR221", "deprecated-notation-spreads", Severity.ERROR, targets=OPENSPLICE)
def deprecated_notation_spreads(node: NodeView) -> Iterator[Finding]:
    """A NameSpace stands before one in the deprecated notation, and loses its policy to that one.

    Why: Its durability, alignee and aligner become those of the other one, whatever the file says.

    Example:
        <NameSpace name="a"><Partition>a</Partition></NameSpace>
        <NameSpace durabilityKind="Transient" alignmentKind="Lazy"><Partition>b</Partition></NameSpace>
    Use instead:
        The current notation for all name-spaces, or the deprecated ones first.
    OpenSplice: Reads name-spaces from the end of the document and, once it has seen a deprecated one,
        takes all before it for deprecated and copies its values to them.
    Reference: //OpenSplice/DurabilityService/NameSpaces/NameSpace
    """
    nodes = node.name_space_nodes
    deprecated = node.deprecated_name_spaces
    if not deprecated:
        return
    last = max(nodes.index(each) for each in deprecated)
    for at, element in enumerate(nodes[:last]):
        culprit = next(each for each in nodes[at + 1 :] if each in deprecated)
        label = _label(element)
        message = f"OpenSplice gives {label} the values of the deprecated NameSpace in line {culprit.line}"
        yield node.found(element, message, related=(node.place(culprit, "whose values are taken"),))


@rule("DUR222", "silent-non-aligner", Severity.WARNING, targets=OPENSPLICE)
def silent_non_aligner(node: NodeView) -> Iterator[Finding]:
    """A NameSpace in the deprecated notation does not say alignmentKind, and is no aligner in OpenSplice.

    Why: The schema documents Initial_And_Aligner as the default. A system of such nodes has no aligner.

    Example:
        <NameSpace><Partition>*</Partition></NameSpace>
    Use instead:
        <NameSpace alignmentKind="Initial_And_Aligner"><Partition>*</Partition></NameSpace>
    OpenSplice: Takes Initial without aligner when the attribute is absent. ospltool nodes take the
        documented default.
    Reference: //OpenSplice/DurabilityService/NameSpaces/NameSpace[@alignmentKind]
    """
    for element in node.deprecated_name_spaces:
        if not element.attribute("alignmentKind"):
            message = f"{_label(element)} is not an aligner in OpenSplice: alignmentKind is missing"
            yield node.found(element, message, subject=f"{element.path}@alignmentKind")


@rule("DUR223", "policy-without-effect-on-deprecated", Severity.WARNING)
def policy_without_effect_on_deprecated(node: NodeView) -> Iterator[Finding]:
    """A Policy matches the name of a NameSpace in the deprecated notation, to which it does not apply.

    Why: The NameSpace has a private policy made of its own attributes; what the Policy says has no
        effect.

    Example:
        <NameSpace name="a" durabilityKind="Transient"><Partition>a</Partition></NameSpace>
        <Policy nameSpace="a" masterPriority="100" .../>
    Use instead:
        <NameSpace name="a"><Partition>a</Partition></NameSpace>
        <Policy nameSpace="a" durability="Transient" masterPriority="100" .../>
    OpenSplice: The same.
    Reference: //OpenSplice/DurabilityService/NameSpaces/Policy
    """
    for definition in node.definitions:
        if definition.policy_node is not definition.node:
            continue
        for policy, element in node.policies:
            if policy.name_space == definition.name_space.name:
                message = f"this Policy has no effect on name-space '{policy.name_space}'"
                related = (definition.place("which is written in the deprecated notation"),)
                yield node.found(element, message, related=related)
