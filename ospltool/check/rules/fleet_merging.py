"""DUR42x: whether the nodes of a deployment come together again after a split."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from engine.core import expressions
from engine.core.name_spaces import MergeType
from ospltool.check.deployment import TAKES, by_role, is_senseless, listed, merge_towards, names_of
from ospltool.check.registry import OPENSPLICE, RuleInput, rule
from ospltool.check.views import Definition, FleetView
from ospltool.diagnostics.model import Finding, Place, Severity


def _merge_place(definition: Definition, role: str, label: str = "") -> Place:
    """Where it stands what a node does with the data of a role."""
    policy, element = definition.policy, definition.policy_node
    if policy and element and element.name == "Policy":
        for each, node in zip(policy.merges, element.named("Merge"), strict=True):
            if expressions.matches(each.scope, role):
                return definition.view.place(node, label)
    return definition.policy_place(label)


def _role_pairs(fleet: FleetView) -> Iterator[tuple[str, Definition, Definition, MergeType, MergeType]]:
    """Name-space, one node of each of two roles, and what each does with the other's data.

    Within a role the types are the same or DUR421 says so; one node stands for its role and merge type.
    """
    for name, definitions in fleet.by_name_space.items():
        roles = by_role(definitions)
        for one, other in itertools.combinations(roles, 2):
            seen = set()
            for left, right in itertools.product(roles[one], roles[other]):
                types = (merge_towards(left, other), merge_towards(right, one))
                if types not in seen:
                    seen.add(types)
                    yield name, left, right, *types


def _pair_finding(left: Definition, right: Definition, message: str, help_: str = "") -> Finding:
    role, other = left.view.role, right.view.role
    place = _merge_place(right, role)
    return right.view.found(
        place.span or right.node,
        message,
        advice=help_,
        related=(_merge_place(left, other, f"{left.view.shown_name}, role '{role}'"),),
        subject="DurabilityService/NameSpaces/Policy/Merge",
    )


@rule("DUR420", "senseless-merge", Severity.ERROR, takes=RuleInput.FLEET)
def senseless_merge(fleet: FleetView) -> Iterator[Finding]:
    """Two roles apply merge types to each other's data that make no sense together.

    Why: Replace on both sides swaps the sets; Replace against Merge, Replace against Delete and Delete
        against Merge end in what depends on who is faster. Catchup ends in the same set as Replace.

    Example:
        role A: <Merge type="Replace" scope="B"/>; role B: <Merge type="Replace" scope="A"/>
    Use instead:
        Replace or Catchup on the side that follows, Ignore on the one that leads; or Merge on both
    OpenSplice: Known to be meaningless and not checked. ospltool nodes report it and treat both as Ignore.
    Reference: deployment guide 5.2.3.4
    """
    for name, left, right, here, there in _role_pairs(fleet):
        if is_senseless(here, there):
            message = (
                f"name-space '{name}': role '{left.view.role}' says {here} to role '{right.view.role}', "
                f"which says {there} in return"
            )
            yield _pair_finding(left, right, message, "one side should lead (Ignore), or both should Merge")


@rule("DUR421", "merge-differs-in-role", Severity.WARNING, takes=RuleInput.FLEET)
def merge_differs_in_role(fleet: FleetView) -> Iterator[Finding]:
    """Nodes of one role do different things with each other's data after a split.

    Why: Within a role one master is elected and the others take its set by their own policy. With
        different policies the sets stay different, or data is gone on one node only.

    Example:
        n1: <Merge type="Merge" scope="*"/>; n2: <Merge type="Ignore" scope="*"/>, both of role A
    Use instead:
        The same Merge elements on all nodes of a role
    OpenSplice: Does not compare policies.
    Reference: deployment guide 5.2.3.4
    """
    for name, definitions in fleet.by_name_space.items():
        for role, members in by_role(definitions).items():
            kinds: dict[MergeType, list[Definition]] = {}
            for each in members:
                kinds.setdefault(merge_towards(each, role), []).append(each)
            if len(kinds) > 1:
                parts = ", ".join(f"{kind} on {listed(names_of(having))}" for kind, having in kinds.items())
                (first, *_), *rest = kinds.values()
                other = rest[0][0]
                message = f"name-space '{name}' is merged differently within role '{role}': {parts}"
                related = (_merge_place(first, role, first.view.shown_name),)
                place = _merge_place(other, role)
                subject = "DurabilityService/NameSpaces/Policy/Merge"
                yield other.view.found(place.span or other.node, message, related=related, subject=subject)


@rule("DUR422", "one-sided-merge", Severity.WARNING, takes=RuleInput.FLEET)
def one_sided_merge(fleet: FleetView) -> Iterator[Finding]:
    """One role merges what another one has, but not the other way round.

    Why: The one that merges has the data of both, the other one only its own: readers on the two sides
        see different histories for good. Where that is meant, as for a collector, say so with a
        suppression.

    Example:
        role A: <Merge type="Merge" scope="B"/>; role B: <Merge type="Ignore" scope="A"/>
    Use instead:
        Merge on both sides, or Catchup on the side that should have what the other has
    OpenSplice: The same.
    Reference: deployment guide 5.2.3.4, eventual consistency
    """
    for name, left, right, here, there in _role_pairs(fleet):
        if {here, there} == {MergeType.MERGE, MergeType.IGNORE}:
            taker, giver = (left, right) if here is MergeType.MERGE else (right, left)
            message = (
                f"name-space '{name}': role '{taker.view.role}' merges the data of role '{giver.view.role}', "
                f"which ignores it in return"
            )
            yield _pair_finding(left, right, message)


@rule("DUR423", "roles-stay-apart", Severity.INFO, takes=RuleInput.FLEET)
def roles_stay_apart(fleet: FleetView) -> Iterator[Finding]:
    """Neither of two roles takes the data of the other after a split.

    Why: The system is not eventually consistent across the two roles: what was written during the split
        is seen on one side only.

    Example:
        role A: <Merge type="Ignore" scope="*"/>; role B: no Merge that matches A
    Use instead:
        Merge on both sides, or Catchup on one
    OpenSplice: The same.
    Reference: eventual consistency, disconnect/reconnect cycle
    """
    for name, left, right, here, there in _role_pairs(fleet):
        if not {here, there} & TAKES:
            message = (
                f"name-space '{name}': roles '{left.view.role}' ({here}) and '{right.view.role}' ({there}) "
                f"never take each other's data"
            )
            yield _pair_finding(left, right, message)


@rule("DUR424", "scope-matches-nobody", Severity.INFO, takes=RuleInput.FLEET)
def scope_matches_nobody(fleet: FleetView) -> Iterator[Finding]:
    """The scope of a Merge matches no role of the deployment.

    Why: A role is misspelt here or there, and its nodes are treated by another Merge or ignored.

    Example:
        <Merge type="Merge" scope="Brige"/> in a deployment with the roles Bridge and Engine
    Use instead:
        <Merge type="Merge" scope="Bridge"/>
    OpenSplice: Has no check for it.
    Reference: deployment guide 5.2.1
    """
    roles = list(dict.fromkeys(node.role for node in fleet.durable()))
    if len(fleet.nodes) < 2:
        return
    for node in fleet.durable():
        for policy, element in node.policies:
            for each, merge in zip(policy.merges, element.named("Merge"), strict=True):
                if not any(expressions.matches(each.scope, role) for role in roles):
                    attribute = merge.attribute("scope") or merge
                    message = f"no node has a role that matches '{each.scope}'"
                    help_ = f"the roles are {', '.join(map(repr, roles))}"
                    yield node.found(attribute, message, advice=help_, subject=f"{merge.path}@scope")


@rule("DUR425", "role-not-covered", Severity.WARNING, takes=RuleInput.FLEET)
def role_not_covered(fleet: FleetView) -> Iterator[Finding]:
    """A Policy has Merge elements, but none of them matches the role of another node.

    Why: The data of that role is ignored after a split, although merging was thought of.

    Example:
        <Merge type="Merge" scope="A"/> where a fellow has role B
    Use instead:
        A scope for every role, or `*` for the rest
    OpenSplice: Without a matching scope the merge type is Ignore.
    Reference: deployment guide 5.2.3.4
    """
    for name, definitions in fleet.by_name_space.items():
        roles = by_role(definitions)
        for each in definitions:
            policy = each.policy
            missing = [
                role
                for role in roles
                if role != each.view.role and policy and policy.merges and policy.merge_type(role) is None
            ]
            if missing:
                message = f"name-space '{name}': no Merge matches role {', '.join(map(repr, missing))}"
                yield each.view.found(each.policy_node or each.node, message)


@rule("DUR426", "one-scope-for-all-roles", Severity.WARNING, takes=RuleInput.FLEET, targets=OPENSPLICE)
def one_scope_for_all_roles(fleet: FleetView) -> Iterator[Finding]:
    """One Merge is for the own role and for another one, and the own role has several nodes.

    Why: In three of three runs of OpenSplice 6.9 with the scope `*` and two roles, the master of a role took
        the data of the other role, and its fellows never did: one had 270 instances, the other 200, for good.
        The reason is not known. `ospltool trace anomalies` shows it as set-diverged.

    Example:
        n1 and n2 of role A, n3 of role B, all with <Merge type="Merge" scope="*"/>
    Use instead:
        One role for all nodes of the name-space, if they are to hold the same data
    OpenSplice: Looks the policy up by the role of the state that it merges.
    Reference: deployment guide 5.2.3.4
    """
    for name, definitions in fleet.by_name_space.items():
        roles = by_role(definitions)
        for role, members in roles.items():
            others = [other for other in roles if other != role]
            if len(members) < 2 or not others:
                continue
            for each in members:
                merge = next(
                    (
                        one
                        for one in (each.policy.merges if each.policy else ())
                        if one.type in TAKES
                        and expressions.matches(one.scope, role)
                        and any(expressions.matches(one.scope, other) for other in others)
                    ),
                    None,
                )
                if merge is not None:
                    message = (
                        f"name-space '{name}': the scope '{merge.scope}' is for the own role '{role}', which "
                        f"has {len(members)} nodes, and for {listed([repr(other) for other in others])}"
                    )
                    place = _merge_place(each, role)
                    subject = "DurabilityService/NameSpaces/Policy/Merge"
                    yield each.view.found(place.span or each.node, message, subject=subject)
                    break  # the others of the role are alike, or DUR421 says so
