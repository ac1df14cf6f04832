"""DUR24x: built-in topics, durability clients and content filters, as OpenSplice handles them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from engine.config import ProblemKind, XmlElement
from engine.config.name_space_reader import BUILT_IN_PARTITION
from engine.core import expressions
from engine.core.name_spaces import (
    MAX_PRIORITY,
    Element,
    Group,
    MergeType,
    NameSpace,
    Policy,
    find_policy,
    overlap,
)
from ospltool.check import edits
from ospltool.check.registry import EVERYWHERE, OPENSPLICE, OSPLTOOL, rule
from ospltool.check.views import Definition, NodeView
from ospltool.diagnostics.model import Finding, Severity

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
                yield node.found(child.value, message, subject=child.path, fix=fix)


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
        except ValueError:
            continue
        for definition in node.definitions:
            witness = overlap(obtained, definition.name_space)
            if witness and attribute:
                message = (
                    f"'{policy.obtain}' is also kept in name-space '{definition.name_space.name}': {witness}"
                )
                related = (definition.place("kept here"),)
                yield node.found(attribute, message, related=related, subject=f"{element.path}@obtain")


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
            yield node.found(content, "the condition is empty; the filter is ignored", subject=element.path)
        elif content and not element.named("PartitionTopic"):
            yield node.found(element, "the filter applies to no PartitionTopic and is ignored")
    for each in node.interpreted.in_vain:
        if each.warns and each.path.endswith("Filter/PartitionTopic"):
            message = f"{each.entry.reason}; ospltool nodes ignore this one"
            yield node.found(each.thing, message, subject=each.path)
    for child, topic in _topics(node):
        if not any(overlap(topic, definition.name_space) for definition in node.definitions):
            message = f"no name-space of this file has '{child.text}': the filter concerns only learned ones"
            yield node.found(child, message, subject=child.path)


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
