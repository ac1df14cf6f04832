"""DUR30x and DUR40x: what policies make of one node as aligner and master, and of its data after a split."""

from __future__ import annotations

from collections.abc import Iterator

from engine.config import XmlElement
from engine.config.values import did_you_mean
from engine.core import expressions
from engine.core.expressions import covers
from engine.core.name_spaces import MAX_PRIORITY, Alignee, Durability, MergeRule, MergeType, Policy
from ospltool.check import edits
from ospltool.check.registry import OPENSPLICE, OSPLTOOL, rule
from ospltool.check.views import NodeView
from ospltool.diagnostics.model import Finding, Severity


@rule("DUR301", "shadowed-policy", Severity.WARNING)
def shadowed_policy(node: NodeView) -> Iterator[Finding]:
    """A Policy is never used, because an earlier one matches everything that it matches.

    Why: The first match wins, in the order of the document. The more special policy has to come first.

    Example:
        <Policy nameSpace="*" .../>
        <Policy nameSpace="ships" .../>
    Use instead:
        <Policy nameSpace="ships" .../>
        <Policy nameSpace="*" .../>
    OpenSplice: The same, without any diagnostic.
    Reference: //OpenSplice/DurabilityService/NameSpaces/Policy[@nameSpace]
    """
    for at, (policy, element) in enumerate(node.policies):
        for earlier, other in node.policies[:at]:
            if covers(earlier.name_space, policy.name_space):
                message = (
                    f"'{policy.name_space}' is always taken by the earlier Policy for '{earlier.name_space}'"
                )
                place = element.attribute("nameSpace") or element
                yield node.found(place, message, related=(node.place(other, "this one wins"),))
                break


@rule("DUR302", "policy-partly-shadowed", Severity.INFO)
def policy_partly_shadowed(node: NodeView) -> Iterator[Finding]:
    """A name-space matches several policies that differ; the first one applies.

    Why: Readers of the file may take the more special one for the one that applies.

    Example:
        <NameSpace name="ships">...
        <Policy nameSpace="s*" masterPriority="1" .../>
        <Policy nameSpace="*ships" masterPriority="9" .../>
    Use instead:
        The policy that is meant first, or expressions that do not overlap.
    OpenSplice: The same: the first match wins.
    Reference: //OpenSplice/DurabilityService/NameSpaces/Policy[@nameSpace]
    """
    for definition in node.definitions:
        name = definition.name_space.name
        hits = [
            (policy, element)
            for policy, element in node.policies
            if expressions.matches(policy.name_space, name)
        ]
        if len(hits) > 1 and definition.policy_node is not definition.node:
            winner, element = hits[0]
            for policy, other in hits[1:]:
                if not covers(winner.name_space, policy.name_space) and _differ(winner, policy):
                    message = f"name-space '{name}' follows '{winner.name_space}', not this Policy"
                    place = other.attribute("nameSpace") or other
                    related = (node.place(element, "this one wins"),)
                    yield node.found(place, message, related=related)


def _differ(left: Policy, right: Policy) -> bool:
    fields = (
        "durability",
        "aligner",
        "alignee",
        "delayed_alignment",
        "equality_check",
        "master_priority",
        "merges",
    )
    return any(getattr(left, field) != getattr(right, field) for field in fields)


@rule("DUR303", "unused-policy", Severity.INFO)
def unused_policy(node: NodeView) -> Iterator[Finding]:
    """A Policy matches no name-space of this file.

    Why: Either a name is misspelt, or it waits for name-spaces that other nodes bring along. The latter
        is meant where a node should keep whatever comes.

    Example:
        <NameSpace name="ships">...</NameSpace> <Policy nameSpace="shisp" .../>
    Use instead:
        <NameSpace name="ships">...</NameSpace> <Policy nameSpace="ships" .../>
    OpenSplice: Learns name-spaces from fellows by such a policy. Persistent data of a learned name-space
        is probably not stored, because the persistent reader is set up before.
    Reference: deployment guide 5.2.3.6
    """
    names = [each.name for each in node.configuration.name_spaces.name_spaces]
    names += [each.name for each in node.configuration.name_spaces.builtin]
    for policy, element in node.policies:
        if not any(expressions.matches(policy.name_space, name) for name in names):
            literal = expressions.is_literal(policy.name_space)
            help_ = did_you_mean(policy.name_space, names) if literal else ""
            message = f"'{policy.name_space}' matches no name-space of this file"
            place = element.attribute("nameSpace") or element
            yield node.found(place, message, advice=help_)


@rule("DUR304", "priority-without-aligner", Severity.WARNING)
def priority_without_aligner(node: NodeView) -> Iterator[Finding]:
    """A Policy sets masterPriority, but its node is not an aligner and therefore never master.

    Why: Someone counts on this node as a master.

    Example:
        <Policy aligner="false" masterPriority="100" .../>
    Use instead:
        <Policy aligner="true" masterPriority="100" .../>
    OpenSplice: Warns: `When [@aligner] is set to 'false' [@masterPriority] has no effect.`
    Reference: deployment guide 5.4.3
    """
    for policy, element in node.policies:
        attribute = element.attribute("masterPriority")
        if attribute and not policy.aligner and policy.master_priority > 0:
            message = (
                f"masterPriority {policy.master_priority} has no effect on a node that is not an aligner"
            )
            fix = edits.remove_attribute(node, attribute)
            yield node.found(attribute, message, fix=fix)


@rule("DUR305", "lazy-master", Severity.WARNING, targets=OPENSPLICE)
def lazy_master(node: NodeView) -> Iterator[Finding]:
    """OpenSplice may make a node master of a name-space whose data it does not fetch at start.

    Why: A master gives its set to all others. One that is Lazy or On_Request may have nothing to give,
        and then everybody is complete without data.

    Example:
        <Policy aligner="true" alignee="Lazy" masterPriority="200" .../>
    Use instead:
        <Policy aligner="true" alignee="Initial" masterPriority="200" .../>, or masterPriority="0"
    OpenSplice: Has no check for it. ospltool nodes that are Lazy or On_Request are never master for others,
        see DUR312.
    Reference: deployment guide 5.2.3.1, 5.4.3
    """
    for policy, element in node.policies:
        if policy.may_be_master and not policy.may_lead_others:
            place = element.attribute("alignee") or element
            priority = policy.master_priority
            who = f"a node with alignee {policy.alignee} and masterPriority {priority}"
            message = f"OpenSplice may make {who} master"
            help_ = "alignee Initial for a master; masterPriority 0 keeps this node from becoming one"
            yield node.found(place, message, advice=help_)


@rule("DUR306", "lazy-over-ddsi", Severity.INFO, targets=OPENSPLICE)
def lazy_over_ddsi(node: NodeView) -> Iterator[Finding]:
    """OpenSplice treats alignee Lazy as Initial when its network is DDSI.

    Why: Lazy is meant to save memory and traffic, and saves neither here.

    Example:
        <DDSI2Service name="ddsi2"/> with <Policy alignee="Lazy" .../>
    Use instead:
        <Policy alignee="Initial" .../>, or no name-space for the data on this node
    OpenSplice: DDSI creates a local reader for every writer of durable data, so the node is always
        interested. An ospltool node is Lazy by partition and topic: it begins to keep what a durable reader
        on its host reads.
    Reference: deployment guide 5.2.3.1
    """
    if node.configuration.ddsi.is_configured:
        for policy, element in node.policies:
            attribute = element.attribute("alignee")
            if policy.alignee is Alignee.LAZY and attribute:
                message = "over DDSI, OpenSplice treats Lazy as Initial"
                yield node.found(attribute, message)


@rule("DUR307", "mixed-algorithms", Severity.WARNING, targets=OPENSPLICE)
def mixed_algorithms(node: NodeView) -> Iterator[Finding]:
    """Some policies of a node leave masterPriority at 255 and others set another value.

    Why: 255 stands for the legacy election, which ignores priorities. One other value switches the whole
        node to the priority election, where 255 then is simply the highest priority.

    Example:
        <Policy nameSpace="a" masterPriority="100" .../> <Policy nameSpace="b" .../>
    Use instead:
        masterPriority in every Policy, from 0 to 254, or in none.
    OpenSplice: Decides by node, and not by name-space, which election it uses.
    Reference: deployment guide 5.4.3
    """
    policies = node.configuration.name_spaces.policies
    if len({policy.master_priority == MAX_PRIORITY for policy in policies}) < 2:
        return
    other = next(element for policy, element in node.policies if policy.master_priority != MAX_PRIORITY)
    for policy, element in node.policies:
        if policy.master_priority == MAX_PRIORITY:
            place = element.attribute("masterPriority") or element
            message = (
                f"masterPriority of '{policy.name_space}' is 255, the legacy election, but not everywhere"
            )
            related = (node.place(other, "uses the election by priority"),)
            yield node.found(place, message, related=related)


@rule("DUR308", "delayed-alignment-without-store", Severity.WARNING)
def delayed_alignment_without_store(node: NodeView) -> Iterator[Finding]:
    """DelayedAlignment is true, but this node stores nothing that it could publish later.

    Why: The setting lets a late node publish its stored set where the domain has no data and no writer.

    Example:
        <Policy delayedAlignment="true" durability="Transient" .../>
    Use instead:
        <Policy delayedAlignment="true" durability="Persistent" .../> and a Persistent/StoreDirectory
    OpenSplice: Has no check for it.
    Reference: deployment guide 5.2.3.3
    """
    for policy, element in node.policies:
        attribute = element.attribute("delayedAlignment")
        if not policy.delayed_alignment or not attribute:
            continue
        weak = policy.durability not in (Durability.PERSISTENT, Durability.DURABLE)
        if weak or node.configuration.persistent is None:
            why = f"durability is {policy.durability}" if weak else "there is no Persistent/StoreDirectory"
            message = f"delayedAlignment has no effect here: {why}"
            yield node.found(attribute, message)


@rule("DUR309", "not-durable", Severity.INFO)
def not_durable(node: NodeView) -> Iterator[Finding]:
    """A Policy keeps nothing: its durability is Volatile or Transient_Local.

    Why: This node keeps no data of the name-space for anybody, although it takes part in its elections.

    Example:
        <Policy durability="Transient_Local" .../>
    Use instead:
        <Policy durability="Transient" .../>, or no name-space for the data on this node
    OpenSplice: Knows Transient_Local, but not Volatile.
    Reference: deployment guide 5.2.3.2
    """
    for policy, element in node.policies:
        if policy.durability in (Durability.VOLATILE, Durability.TRANSIENT_LOCAL):
            place = element.attribute("durability") or element
            message = f"with durability {policy.durability} this node keeps no data for others"
            yield node.found(place, message)


@rule("DUR310", "legacy-wait", Severity.INFO, targets=OPENSPLICE)
def legacy_wait(node: NodeView) -> Iterator[Finding]:
    """TimeToWaitForAligner is set, but the election by priority does not look at it.

    Why: A node that should end when there is no aligner goes on without a master.

    Example:
        <TimeToWaitForAligner>0.0</TimeToWaitForAligner> with <Policy masterPriority="100" .../>
    Use instead:
        The default, and a monitor for nodes without a master.
    OpenSplice: Only the legacy election honours it, that is when all priorities are 255.
    Reference: //OpenSplice/DurabilityService/Network/Alignment/TimeToWaitForAligner
    """
    element = node.setting("Network/Alignment/TimeToWaitForAligner")
    policies = node.configuration.name_spaces.policies
    if element and any(policy.master_priority != MAX_PRIORITY for policy in policies):
        yield node.found(element, "OpenSplice honours TimeToWaitForAligner only when all priorities are 255")


@rule("DUR311", "empty-role", Severity.WARNING)
def empty_role(node: NodeView) -> Iterator[Finding]:
    """The role of a node is empty.

    Why: Nodes of one role elect one master, and merge scopes match roles; the empty role is matched by
        `*` alone.

    Example:
        <Role>${NODE_ROLE}</Role>
    Use instead:
        <Role>${NODE_ROLE:-DefaultRole}</Role>
    OpenSplice: Has no check for it.
    Reference: //OpenSplice/Domain/Role
    """
    element = node.domain_setting("Role")
    if element and not element.text:
        yield node.found(element, "the role is empty")
    elif not node.role:
        yield node.found(node.document.root.name_span, "the role is empty", subject="Domain/Role")


@rule("DUR312", "lazy-priority", Severity.WARNING, targets=OSPLTOOL)
def lazy_priority(node: NodeView) -> Iterator[Finding]:
    """A Policy sets masterPriority, but its ospltool node is Lazy or On_Request and thus no master of others.

    Why: Such a node has no whole set to give. Someone may count on it as a master.

    Example:
        <Policy aligner="true" alignee="Lazy" masterPriority="200" .../>
    Use instead:
        <Policy aligner="true" alignee="Initial" masterPriority="200" .../>, or no masterPriority
    OpenSplice: Lets it become master; see DUR305.
    Reference: deployment guide 5.2.3.1, 5.4.3
    """
    for policy, element in node.policies:
        attribute = element.attribute("masterPriority")
        if attribute and policy.may_be_master and not policy.may_lead_others:
            priority = policy.master_priority
            message = (
                f"masterPriority {priority} has no effect with ospltool: a node with alignee "
                f"{policy.alignee} is master of its own part only"
            )
            yield node.found(attribute, message)


@rule("DUR313", "equality-check-in-vain", Severity.INFO, targets=OSPLTOOL, alone=True)
def equality_check_in_vain(node: NodeView) -> Iterator[Finding]:
    """EqualityCheck is false in a Policy without merge type Replace, where it has no effect on a node.

    Why: Nodes always compare sets. With false they show, although the sets are equal, that Replace disposes
        each instance before it comes again. Delete deletes equal sets whatever is set; the other types have
        no such side effect.

    Example:
        <Policy equalityCheck="false" ...><Merge type="Merge" scope="*"/></Policy>
    Use instead:
        Nothing: leave it out.
    OpenSplice: Compares no sets, and sends equal ones again.
    Reference: deployment guide 5.2.3.5
    """
    for policy, element in node.policies:
        attribute = element.attribute("equalityCheck")
        has_replace = any(each.type is MergeType.REPLACE for each in policy.merges)
        if policy.equality_check is False and attribute and not has_replace:
            message = "equalityCheck false has no effect on a node: no Merge here has type Replace"
            yield node.found(attribute, message)


def merges(policy: Policy, element: XmlElement) -> list[tuple[MergeRule, XmlElement]]:
    """The merge rules of a policy with their elements, in document order."""
    return list(zip(policy.merges, element.named("Merge"), strict=True))


def documented_rule(policy: Policy, role: str) -> MergeRule | None:
    """The rule that applies as documented: the first whose scope matches."""
    return next((each for each in policy.merges if expressions.matches(each.scope, role)), None)


def opensplice_rule(policy: Policy, role: str) -> MergeRule | None:
    """The rule that OpenSplice applies: the last whose scope matches."""
    return next((each for each in reversed(policy.merges) if expressions.matches(each.scope, role)), None)


@rule("DUR401", "no-merge", Severity.WARNING)
def no_merge(node: NodeView) -> Iterator[Finding]:
    """A Policy has no Merge, so that data which evolved apart stays apart.

    Why: After a split and a reconnection both sides keep what they have: applications on different nodes
        see different histories from then on, without any message.

    Example:
        <Policy nameSpace="*" durability="Durable" aligner="true" alignee="Initial"/>
    Use instead:
        <Policy nameSpace="*" durability="Durable" aligner="true" alignee="Initial">
          <Merge type="Merge" scope="*"/>
        </Policy>
    OpenSplice: Without a matching scope the merge type is Ignore. A file without any networking service gets
        an info only: its node is alone.
    Reference: deployment guide 5.2.3.4
    """
    for policy, element in node.policies:
        if not policy.merges:
            message = f"the Policy for '{policy.name_space}' has no Merge: "
            severity = None
            if node.networks or "CYCLONEDDS_URI" in node.environ:
                message += "after a split the sides stay different"
            else:
                message += "that matters once a node has a network, which this file does not configure"
                severity = Severity.INFO
            help_ = 'add <Merge type="Merge" scope="*"/>, or type="Ignore" to say that it is meant'
            yield node.found(element, message, advice=help_, severity=severity)


@rule("DUR402", "order-dependent-merge", Severity.WARNING)
def order_dependent_merge(node: NodeView) -> Iterator[Finding]:
    """Two Merge elements match one role and say different things, and OpenSplice takes the other one.

    Why: By the documentation the first matching scope counts. OpenSplice reads them in reverse and takes
        the last one. The file means different things to the two.

    Example:
        <Merge type="Merge" scope="Bridge"/> <Merge type="Ignore" scope="*"/>
    Use instead:
        Scopes that have no role in common.
    OpenSplice: The last matching Merge of the document applies.
    Reference: deployment guide 5.2.3.4
    """
    for policy, element in node.policies:
        rules = merges(policy, element)
        for at, (later, place) in enumerate(rules):
            for earlier, other in rules[:at]:
                witness = expressions.intersection(earlier.scope, later.scope)
                if witness is None or earlier.type is later.type or covers(earlier.scope, later.scope):
                    continue
                shown = witness or "(empty)"
                message = (
                    f"role '{shown}' gets {earlier.type} as documented, but {later.type} from OpenSplice"
                )
                yield node.found(place, message, related=(node.place(other, "first in the document"),))
                break


@rule("DUR403", "unreachable-merge", Severity.WARNING)
def unreachable_merge(node: NodeView) -> Iterator[Finding]:
    """A Merge never applies, because an earlier one matches every role that it matches.

    Why: The first matching scope counts. The more special scope has to come first.

    Example:
        <Merge type="Ignore" scope="*"/> <Merge type="Merge" scope="Bridge"/>
    Use instead:
        <Merge type="Merge" scope="Bridge"/> and no other scope that matches Bridge
    OpenSplice: Takes the last match, so that here it is the earlier one that is never reached by those
        roles.
    Reference: deployment guide 5.2.3.4
    """
    for policy, element in node.policies:
        rules = merges(policy, element)
        for at, (later, place) in enumerate(rules):
            for earlier, other in rules[:at]:
                if covers(earlier.scope, later.scope):
                    message = f"scope '{later.scope}' is always taken by the earlier scope '{earlier.scope}'"
                    is_same = earlier.type is later.type
                    help_ = "" if is_same else f"OpenSplice takes the last match, {later.type}"
                    fix = edits.remove_element(node, place)
                    related = (node.place(other, "this one wins"),)
                    yield node.found(place, message, advice=help_, related=related, fix=fix)
                    break


@rule("DUR404", "own-role-not-merged", Severity.WARNING)
def own_role_not_merged(node: NodeView) -> Iterator[Finding]:
    """No Merge matches the node's own role, although there are Merge elements.

    Why: Nodes of one role are the ones that most often meet again after a split. Without a match they
        keep different sets.

    Example:
        <Role>A</Role> with <Merge type="Merge" scope="B"/>
    Use instead:
        <Merge type="Merge" scope="A"/> <Merge type="Merge" scope="B"/>
    OpenSplice: Without a matching scope the merge type is Ignore.
    Reference: deployment guide 5.2.3.4
    """
    for policy, element in node.policies:
        if policy.merges and documented_rule(policy, node.role) is None:
            scopes = ", ".join(f"'{each.scope}'" for each in policy.merges)
            message = f"no scope matches the own role '{node.role}', only {scopes}"
            yield node.found(element, message)


@rule("DUR405", "ignores-own-role", Severity.INFO)
def ignores_own_role(node: NodeView) -> Iterator[Finding]:
    """A node ignores what nodes of its own role have after a split.

    Why: It is a decision: both sides keep different sets until the data is written again.

    Example:
        <Merge type="Ignore" scope="*"/>
    Use instead:
        <Merge type="Merge" scope="*"/>, or Catchup where the master's side is right
    OpenSplice: The same.
    Reference: deployment guide 5.2.3.4
    """
    for policy, element in node.policies:
        for each, place in merges(policy, element):
            if each.type is MergeType.IGNORE and documented_rule(policy, node.role) is each:
                message = f"nodes of the own role '{node.role}' keep different data after a split"
                yield node.found(place, message)


@rule("DUR406", "deletes-own-role", Severity.WARNING)
def deletes_own_role(node: NodeView) -> Iterator[Finding]:
    """A node deletes its data whenever it meets a node of its own role again.

    Why: When all nodes of the role say so, one cut of a cable empties the name-space on all of them.

    Example:
        <Merge type="Delete" scope="*"/>
    Use instead:
        <Merge type="Catchup" scope="*"/>, which keeps the data of the master's side
    OpenSplice: Configured on all nodes, it empties the whole system at the first reconnection.
    Reference: deployment guide 5.2.3.4
    """
    for policy, element in node.policies:
        for each, place in merges(policy, element):
            if each.type is MergeType.DELETE and documented_rule(policy, node.role) is each:
                message = f"a split between nodes of role '{node.role}' deletes the data of this node"
                yield node.found(place, message)


@rule("DUR407", "delete-transfers", Severity.INFO, targets=OPENSPLICE)
def delete_transfers(node: NodeView) -> Iterator[Finding]:
    """Merge type Delete moves all data in OpenSplice before it is deleted.

    Why: Where Delete is chosen to spare the network, it does not.

    Example:
        <Merge type="Delete" scope="*"/>
    Use instead:
        Ignore, when nothing should move. ospltool nodes move nothing for Delete.
    OpenSplice: Requests and receives the whole set of the other side first.
    Reference: deployment guide 5.2.3.4
    """
    for policy, element in node.policies:
        for each, place in merges(policy, element):
            if each.type is MergeType.DELETE:
                yield node.found(place, "OpenSplice transfers all data of the other side before it deletes")
