"""DUR20x, DUR22x and DUR24x: name-spaces of one node, their deprecated notation, and built-in topics."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

from engine.config import ProblemKind, XmlElement
from engine.config.name_space_reader import BUILT_IN_PARTITION, conflict_text
from engine.core import expressions
from engine.core.expressions import covers
from engine.core.name_spaces import (
    MAX_PRIORITY,
    Element,
    Group,
    MergeType,
    NameSpace,
    Policy,
    compare,
    find_policy,
    overlap,
)
from ospltool.check import edits
from ospltool.check.registry import EVERYWHERE, NOWHERE, OPENSPLICE, OSPLTOOL, rule
from ospltool.check.views import Definition, NodeView
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
            yield node.found(place, message, related=(first.place("first defined here"),))


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
            yield node.found(place, message, advice=help_)


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
                yield node.found(child.value, message)


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
                yield node.found(child.value, message)


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
    # The loader reports an expression that cannot be read; here the element contains nothing.
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
            yield node.found(attribute.value, "a name has no wildcards")


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
                yield node.found(child.value, message)


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


BUILT_IN_TOPICS = (
    "DCPSTopic",
    "DCPSParticipant",
    "DCPSPublication",
    "DCPSSubscription",
    "CMParticipant",
    "CMDataWriter",
    "CMDataReader",
    "CMPublisher",
    "CMSubscriber",
    "DCPSHeartbeat",
    "DCPSDelivery",
)
"""The topics that OpenSplice requires in one name-space."""


def _all_name_spaces(node: NodeView) -> list[NameSpace]:
    """Every name-space in document order, with those of built-in topics."""
    settings = node.configuration.name_spaces
    by_name = {each.name: each for each in (*settings.name_spaces, *settings.builtin)}
    names = [attribute.text for each in node.name_space_nodes if (attribute := each.attribute("name"))]
    return [by_name[name] for name in dict.fromkeys(names) if name in by_name]


def _builtin_name_space(node: NodeView) -> tuple[NameSpace, Policy] | None:
    """The first name-space, with an aligner as policy, that contains DCPSTopic."""
    policies = node.configuration.name_spaces.policies
    for name_space in _all_name_spaces(node):
        policy = find_policy(policies, name_space.name)
        if policy and policy.aligner and name_space.contains(Group(BUILT_IN_PARTITION, "DCPSTopic")):
            return name_space, policy
    return None


def aligns_built_in_topics(node: NodeView) -> bool:
    """Whether OpenSplice aligns built-in topics: native networking, or none, or DDSI told to leave it."""
    names = {each.name for each in node.networks}
    is_native = bool(names & {"NetworkService", "SNetworkService"})
    is_ddsi = bool(names & {"DDSI2Service", "DDSI2EService"})
    return is_native or not is_ddsi or not node.configuration.ddsi.generate_builtin_topics


@rule("DUR240", "split-built-in-topics", Severity.ERROR, targets=OPENSPLICE, blocks=OPENSPLICE)
def split_built_in_topics(node: NodeView) -> Iterator[Finding]:
    """A name-space contains DCPSTopic but not all other built-in topics.

    Why: Built-in topics describe one another; they have to be aligned as one set.

    Example:
        <PartitionTopic>__BUILT-IN PARTITION__.DCPSTopic</PartitionTopic>
    Use instead:
        <Partition>__BUILT-IN PARTITION__</Partition>
    OpenSplice: `DCPSTopic, DCPSParticipant, ... should all be in the same namespace.`, and the service
        ends.
    Reference: //OpenSplice/Domain/BuiltinTopics
    """
    found = _builtin_name_space(node)
    if not found or not node.configuration.domain.builtin_topics:
        return
    name_space = found[0]
    missing = [
        topic for topic in BUILT_IN_TOPICS if not name_space.contains(Group(BUILT_IN_PARTITION, topic))
    ]
    if missing:
        owners = (each for each in node.name_space_nodes if _named(each, name_space.name))
        owner = next(owners, node.document.root)
        message = f"name-space '{name_space.name}' contains DCPSTopic, but not {', '.join(missing)}"
        yield node.found(owner, message)


def _named(element: XmlElement, name: str) -> bool:
    attribute = element.attribute("name")
    return attribute is not None and attribute.text == name


@rule("DUR241", "built-in-merge", Severity.ERROR, targets=OPENSPLICE, blocks=OPENSPLICE)
def built_in_merge(node: NodeView) -> Iterator[Finding]:
    """The name-space of the built-in topics has another merge type than Ignore or Merge for its own role.

    Why: Disposing the description of living entities would take them out of the system.

    Example:
        <NameSpace name="all"><Partition>*</Partition></NameSpace>
        <Policy nameSpace="all" ...><Merge type="Replace" scope="*"/></Policy> with a NetworkService
    Use instead:
        A name-space for `__BUILT-IN PARTITION__` first, with <Merge type="Merge" scope="*"/>.
    OpenSplice: Ends with `The merge policy for namespace '...' that is responsible for the builtin topics
        must be IGNORE or MERGE`. It looks only where it has to align built-in topics: with native
        networking, without any network service, or with DDSI and GenerateBuiltinTopics false.
    Reference: //OpenSplice/DurabilityService/NameSpaces/Policy/Merge
    """
    found = _builtin_name_space(node)
    if not found or not aligns_built_in_topics(node):
        return
    name_space, policy = found
    matching = [each for each in reversed(policy.merges) if expressions.matches(each.scope, node.role)]
    if matching and matching[0].type not in (MergeType.IGNORE, MergeType.MERGE):
        element = next((each for known, each in node.policies if known is policy), None)
        if element is None:
            return
        merge = element.named("Merge")[policy.merges.index(matching[0])]
        message = f"name-space '{name_space.name}' has the built-in topics and merges by {matching[0].type}"
        yield node.found(merge, message)


@rule("DUR242", "built-in-topics-without-master", Severity.WARNING, targets=OPENSPLICE)
def built_in_topics_without_master(node: NodeView) -> Iterator[Finding]:
    """OpenSplice makes a name-space for built-in topics of which nobody can be master.

    Why: Built-in topics have to be aligned here, no name-space contains them, and masterPriority is used.

    Example:
        A NetworkService, <Partition>ships</Partition> and masterPriority="100"
    Use instead:
        A name-space of its own for `__BUILT-IN PARTITION__`, with a Policy.
    OpenSplice: The name-space AutoBuiltinTopics that it adds gets masterPriority 0 as soon as one policy
        has another priority than 255, and a merge scope that no role matches.
    Reference: deployment guide 5.4.3
    """
    policies = node.configuration.name_spaces.policies
    by_priority = any(policy.master_priority != MAX_PRIORITY for policy in policies)
    if (
        node.name_space_nodes
        and by_priority
        and not _builtin_name_space(node)
        and aligns_built_in_topics(node)
    ):
        place = node.name_space_nodes[0]
        yield node.found(place, "OpenSplice adds a name-space AutoBuiltinTopics here that gets no master")


@rule("DUR243", "misspelt-built-in-partition", Severity.WARNING)
def misspelt_built_in_partition(node: NodeView) -> Iterator[Finding]:
    """A partition looks like the built-in one, but is not.

    Why: The name-space contains nothing, and the built-in topics are elsewhere.

    Example:
        <Partition>__BUILT-IN PARTITON__</Partition>
    Use instead:
        <Partition>__BUILT-IN PARTITION__</Partition>
    OpenSplice: Takes it as the name of an ordinary partition.
    Reference: //OpenSplice/Domain/BuiltinTopics
    """
    for owner in node.name_space_nodes:
        for child in owner.children:
            partition = child.text.rpartition(".")[0] if child.name == "PartitionTopic" else child.text
            if child.value and partition != BUILT_IN_PARTITION and _resembles(partition):
                new = child.text.replace(partition, BUILT_IN_PARTITION)
                fix = edits.replace_value(node, child.value, new)
                message = f"{partition!r} is not the partition of the built-in topics, '{BUILT_IN_PARTITION}'"
                yield node.found(child.value, message, fix=fix)


def _resembles(partition: str) -> bool:
    folded = "".join(char for char in partition.upper() if char.isalpha())
    if not folded.startswith(("BUILT", "BULIT", "BUIT")):
        return False
    from difflib import SequenceMatcher

    return SequenceMatcher(None, folded, "BUILTINPARTITION").ratio() > 0.8


@rule("DUR244", "durable-policy-overlaps", Severity.ERROR, targets=OPENSPLICE, blocks=OPENSPLICE)
def durable_policy_overlaps(node: NodeView) -> Iterator[Finding]:
    """Data is obtained as a durability client and kept in a name-space of the same node.

    Why: It would be aligned by two services in two ways.

    Example:
        <DurablePolicies><Policy obtain="ships.*"/></DurablePolicies> with <Partition>*</Partition>
    Use instead:
        Expressions without anything in common.
    OpenSplice: Ends with `Ambiguous namespace and durable policy definitions, the durability service is
        not started`. It matches each expression against the other as a text; what is reported here is
        every real overlap.
    Reference: //OpenSplice/Domain/DurablePolicies/Policy[@obtain]
    """
    for policy, element in zip(
        node.configuration.durable_policies,
        node.domain.find_all("DurablePolicies/Policy") if node.domain else (),
        strict=True,
    ):
        attribute = element.attribute("obtain")
        try:
            obtained = NameSpace("", (Element.parse(policy.obtain),))
        # The same of `obtain`: the loader reports it.
        except ValueError:
            continue
        for definition in node.definitions:
            witness = overlap(obtained, definition.name_space)
            if witness and attribute:
                message = (
                    f"'{policy.obtain}' is also kept in name-space '{definition.name_space.name}': {witness}"
                )
                related = (definition.place("kept here"),)
                yield node.found(attribute, message, related=related)


@rule("DUR245", "filter-on-master", Severity.ERROR, targets=OPENSPLICE, blocks=OPENSPLICE)
def filter_on_master(node: NodeView) -> Iterator[Finding]:
    """A content filter applies to a name-space of which this node may become master.

    Why: A master that keeps a part of the data only would make the other nodes lose the rest.

    Example:
        <Filters><Filter content="id &lt;
        10"><PartitionTopic>ships.Position</PartitionTopic></Filter></Filters>
    Use instead:
        masterPriority="0" on nodes that filter.
    OpenSplice: Ends with `Unable to be a master of namespace ... as the filter ... is defined`.
    Reference: //OpenSplice/Domain/Filters
    """
    for child, definition, policy in _filtered(node):
        if policy.may_be_master:
            message = (
                f"name-space '{definition.name_space.name}' is filtered, but this node may be its master"
            )
            related = (definition.policy_place("may be master here"),)
            yield node.found(child, message, related=related)


def _topics(node: NodeView) -> Iterator[tuple[XmlElement, NameSpace]]:
    """Each PartitionTopic of a filter that is not ignored (DUR246), and what it stands for."""
    ignored = {id(each.thing) for each in node.interpreted.in_vain}
    for element in node.domain.find_all("Filters/Filter") if node.domain else ():
        content = element.attribute("content")
        if content is None or not content.text.strip():
            continue
        for child in element.named("PartitionTopic"):
            # The same: what cannot be read is no name-space to compare.
            with contextlib.suppress(ValueError):
                if id(child) not in ignored:
                    yield child, NameSpace("", (Element.parse(child.text),))


def _filtered(node: NodeView) -> Iterator[tuple[XmlElement, Definition, Policy]]:
    """Each of these with each name-space that it concerns and the policy of that."""
    for child, topic in _topics(node):
        for definition in node.definitions:
            policy = definition.policy
            if policy and overlap(topic, definition.name_space):
                yield child, definition, policy


@rule("DUR248", "filter-lowers-priority", Severity.WARNING, targets=OSPLTOOL)
def filter_lowers_priority(node: NodeView) -> Iterator[Finding]:
    """A content filter applies to a name-space of which this node should be master before others.

    Why: A node that filters has a part of the data only. It ranks with masterPriority 1, whatever its Policy
        says: it is master where nobody else may be, and then its followers lose what it withholds.

    Example:
        <Filters><Filter content="id &lt;
        10"><PartitionTopic>ships.Position</PartitionTopic></Filter></Filters>
    Use instead:
        masterPriority="0" on nodes that filter, and another node without the filter.
    OpenSplice: See DUR245.
    Reference: //OpenSplice/Domain/Filters
    """
    for child, definition, policy in _filtered(node) if not node.interpreted.problems else ():
        priority = policy.with_filter().master_priority
        if policy.may_lead_others and priority < policy.master_priority:
            message = (
                f"name-space '{definition.name_space.name}' is filtered: this node ranks with masterPriority "
                f"{priority} there, not with {policy.master_priority}"
            )
            related = (definition.policy_place("its Policy"),)
            yield node.found(child, message, related=related)


@rule("DUR246", "ineffective-filter", Severity.WARNING)
def ineffective_filter(node: NodeView) -> Iterator[Finding]:
    """A Filter has no condition, or no PartitionTopic that it applies to.

    Why: Nothing is filtered. Of several filters the first that matches a group applies; one that is for no
        group of the name-spaces in the file counts where the node learns another name-space, if it does.

    Example:
        <Filter content="id &lt; 10"/>
    Use instead:
        <Filter content="id &lt; 10"><PartitionTopic>ships.Position</PartitionTopic></Filter>
    OpenSplice: Warns and ignores the filter, as ospltool nodes do.
    Reference: //OpenSplice/Domain/Filters/Filter
    """
    for element in node.domain.find_all("Filters/Filter") if node.domain else ():
        content = element.attribute("content")
        if content and not content.text.strip():
            yield node.found(content, "the condition is empty; the filter is ignored")
        elif content and not element.named("PartitionTopic"):
            yield node.found(element, "the filter applies to no PartitionTopic and is ignored")
    for each in node.interpreted.in_vain:
        if each.warns and each.path.endswith("Filter/PartitionTopic"):
            message = f"{each.entry.reason}; ospltool nodes ignore this one"
            yield node.found(each.thing, message)
    for child, topic in _topics(node):
        if not any(overlap(topic, definition.name_space) for definition in node.definitions):
            message = f"no name-space of this file has '{child.text}': the filter concerns only learned ones"
            yield node.found(child, message)


@rule("DUR247", "bad-filter", Severity.ERROR, blocks=EVERYWHERE)
def bad_filter(node: NodeView) -> Iterator[Finding]:
    """The condition of a content filter is not understood, or a PartitionTopic of it has a blank topic.

    Why: Nobody can tell what must be withheld.

    Example:
        <Filter content="id &lt;"><PartitionTopic>ships.Position</PartitionTopic></Filter>
    Use instead:
        <Filter content="id &lt; 10"><PartitionTopic>ships.Position</PartitionTopic></Filter>
    OpenSplice: Reports the condition in ospl-error.log and ends.
    Reference: //OpenSplice/Domain/Filters/Filter
    """
    for problem in node.interpreted.problems:
        if problem.kind is ProblemKind.FILTER:
            yield node.from_problem(problem)
