"""DUR40x: what one node does with its data after a split."""

from __future__ import annotations

from collections.abc import Iterator

from engine.config import XmlElement
from engine.core import expressions
from engine.core.expressions import covers
from engine.core.name_spaces import MergeRule, MergeType, Policy
from ospltool.check import edits
from ospltool.check.registry import OPENSPLICE, rule
from ospltool.check.views import NodeView
from ospltool.diagnostics.model import Finding, Severity


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
