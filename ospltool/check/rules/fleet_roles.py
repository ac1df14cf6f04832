"""DUR32x and DUR42x: masters and aligners across the nodes of a deployment, and merges between roles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from engine.core import expressions
from engine.core.name_spaces import MAX_PRIORITY, Alignee, Durability, MergeType
from ospltool.check.deployment import (
    TAKES,
    by_role,
    expected_masters,
    is_senseless,
    listed,
    merge_towards,
    names_of,
)
from ospltool.check.registry import OPENSPLICE, RuleInput, rule
from ospltool.check.views import Definition, FleetView
from ospltool.diagnostics.model import Finding, Place, Severity


def _found(
    definition: Definition,
    attribute: str,
    message: str,
    *,
    advice: str = "",
    others: tuple[Definition, ...] = (),
) -> Finding:
    """A finding on an attribute of a policy; further policies are related places."""
    place = definition.attribute(attribute) or definition.policy_node or definition.node
    related = tuple(
        each.view.place(each.attribute(attribute) or each.policy_node or each.node, each.view.shown_name)
        for each in others[:3]
    )
    return definition.view.found(place, message, advice=advice, related=related)


def _shared(fleet: FleetView) -> Iterator[tuple[str, list[Definition]]]:
    """Name-spaces that at least two nodes keep."""
    for name, definitions in fleet.by_name_space.items():
        if len(names_of(definitions)) > 1:
            yield name, definitions


@rule("DUR320", "no-aligner", Severity.ERROR, takes=RuleInput.FLEET)
def no_aligner(fleet: FleetView) -> Iterator[Finding]:
    """No node aligns a name-space.

    Why: Nobody ever has the complete set, and everybody waits for it.

    Example:
        <Policy nameSpace="a" aligner="false" .../> on every node
    Use instead:
        <Policy nameSpace="a" aligner="true" .../> on at least one, better on two nodes
    OpenSplice: The legacy election waits for ever; the election by priority confirms nobody.
    Reference: deployment guide 5.2.3.1
    """
    for name, definitions in fleet.by_name_space.items():
        if all(each.policy and not each.policy.aligner for each in definitions):
            message = (
                f"no node aligns name-space '{name}': {listed(names_of(definitions))} all have aligner false"
            )
            yield _found(definitions[0], "aligner", message, others=tuple(definitions[1:]))


@rule("DUR321", "no-master", Severity.ERROR, takes=RuleInput.FLEET)
def no_master(fleet: FleetView) -> Iterator[Finding]:
    """Nodes align a name-space, but none of them may be its master: all have masterPriority 0.

    Why: Without a master nobody publishes the stored data at start, and nobody settles a split.

    Example:
        <Policy nameSpace="a" aligner="true" masterPriority="0" .../> on every node
    Use instead:
        A priority from 1 to 254 on at least one aligner
    OpenSplice: Confirms that `Fellow '0' is the master`, which means nobody.
    Reference: deployment guide 5.4.3
    """
    for name, definitions in fleet.by_name_space.items():
        policies = [each.policy for each in definitions if each.policy]
        if any(policy.aligner for policy in policies) and not any(
            policy.may_be_master for policy in policies
        ):
            message = f"nobody may be master of name-space '{name}': every aligner has masterPriority 0"
            aligner = next(each for each in definitions if each.policy and each.policy.aligner)
            yield _found(aligner, "masterPriority", message)


@rule("DUR322", "role-without-master", Severity.WARNING, takes=RuleInput.FLEET)
def role_without_master(fleet: FleetView) -> Iterator[Finding]:
    """A role has no node that may be master of a name-space, although another role has.

    Why: Masters are elected for each role. The nodes of this one get their data from others only.

    Example:
        n1: <Role>A</Role>, masterPriority 100; n2: <Role>B</Role>, masterPriority 0
    Use instead:
        A candidate in every role, or one role
    OpenSplice: Only fellows of the same role are candidates.
    Reference: deployment guide 5.4.3
    """
    for expected in expected_masters(dict(_shared(fleet))):
        every = fleet.by_name_space[expected.name_space]
        if not expected.candidates and any(each.policy and each.policy.may_be_master for each in every):
            members = by_role(every)[expected.role]
            message = f"no node of role '{expected.role}' may be master of name-space '{expected.name_space}'"
            yield _found(members[0], "masterPriority", message, others=tuple(members[1:]))


@rule("DUR323", "mixed-priorities", Severity.WARNING, takes=RuleInput.FLEET)
def mixed_priorities(fleet: FleetView) -> Iterator[Finding]:
    """One node has masterPriority 255 for a name-space, another one has not.

    Why: 255 asks for the legacy election, any other value for the election by priority; the two do not
        understand each other. Between ospltool nodes 255 then is the highest priority.

    Example:
        n1: <Policy nameSpace="a" .../> (255); n2: <Policy nameSpace="a" masterPriority="100" .../>
    Use instead:
        A priority from 0 to 254 on all nodes
    OpenSplice: `I use priorities for namespace '...' while fellow ... uses the legacy master selection
        algorithm, this is an incompatible and unsupported configuration`, and goes on.
    Reference: deployment guide 5.4.3
    """
    for name, definitions in _shared(fleet):
        legacy = [each for each in definitions if each.policy and each.policy.master_priority == MAX_PRIORITY]
        ranked = [each for each in definitions if each.policy and each.policy.master_priority != MAX_PRIORITY]
        if legacy and ranked:
            message = (
                f"name-space '{name}' has masterPriority 255 on {listed(names_of(legacy))}, "
                f"but another one on {listed(names_of(ranked))}"
            )
            yield _found(legacy[0], "masterPriority", message, others=tuple(ranked))


@rule("DUR324", "tied-masters", Severity.INFO, takes=RuleInput.FLEET)
def tied_masters(fleet: FleetView) -> Iterator[Finding]:
    """Several nodes of a role share the highest masterPriority.

    Why: Which of them becomes master depends on the age of the stored data and on ids, not on the files.

    Example:
        <Policy masterPriority="100" .../> on two nodes
    Use instead:
        Different priorities where it matters who is master
    OpenSplice: Draws the system id by chance at every start. It compares the stored data wrongly at equal
        priority, so that two nodes that have some may elect each other and merge afterwards.
    Reference: deployment guide 5.4.3
    """
    for expected in expected_masters(dict(_shared(fleet))):
        tied = expected.candidates
        if len(tied) > 1 and tied[0].policy and tied[0].policy.master_priority != MAX_PRIORITY:
            priority = tied[0].policy.master_priority
            message = (
                f"{listed(names_of(tied))} share the highest masterPriority, {priority}, "
                f"for name-space '{expected.name_space}' in role '{expected.role}'"
            )
            yield _found(tied[0], "masterPriority", message, others=tied[1:])


@rule("DUR325", "single-candidate", Severity.WARNING, takes=RuleInput.FLEET)
def single_candidate(fleet: FleetView) -> Iterator[Finding]:
    """Several nodes keep a name-space, but only one of them may be its master.

    Why: When it is lost there is no master: nobody aligns newcomers, and no split is settled.

    Example:
        n1: masterPriority="100"; n2: masterPriority="0"; n3: aligner="false"
    Use instead:
        A second aligner with a priority above 0
    OpenSplice: The same.
    Reference: deployment guide 5.4.3
    """
    for name, definitions in _shared(fleet):
        able = [each for each in definitions if each.policy and each.policy.may_be_master]
        if len(able) == 1:
            message = f"only {able[0].view.shown_name} may be master of name-space '{name}'"
            others = tuple(each for each in definitions if each is not able[0])
            yield _found(able[0], "masterPriority", message, others=others)


@rule("DUR326", "election-live-lock", Severity.WARNING, takes=RuleInput.FLEET, targets=OPENSPLICE)
def election_live_lock(fleet: FleetView) -> Iterator[Finding]:
    """A node has two fellows with different, higher priorities, among which OpenSplice cannot choose.

    Why: Half of all draws of the system ids end in an election that never settles: masters conflict, and
        each conflict is a merge of everything, about two in a second, until a restart draws other ids.

    Example:
        masterPriority 200, 100 and 50 on three nodes of one role
    Use instead:
        Two values at most: one for the preferred master, one lower for all others. ospltool nodes do not
        have the fault and take any values.
    OpenSplice: Compares fellows with the priority of the node itself instead of that of the best
        candidate so far, so that the highest system id among the higher priorities wins.
    Reference: deployment guide 5.4.3
    """
    for name, definitions in _shared(fleet):
        for role, members in by_role(definitions).items():
            able = [
                (each, each.policy.master_priority)
                for each in members
                if each.policy and each.policy.may_be_master
            ]
            if all(priority == MAX_PRIORITY for _, priority in able):
                continue
            # From the lowest priority up, as the message names those above.
            able.sort(key=lambda pair: pair[1])
            for each, priority in able:
                higher = [(other, theirs) for other, theirs in able if theirs > priority]
                if len({theirs for _, theirs in higher}) > 1:
                    values = listed(str(theirs) for theirs in sorted({theirs for _, theirs in higher}))
                    message = (
                        f"{each.view.shown_name} has priority {priority} for name-space '{name}' "
                        f"in role '{role}' and may follow any of the fellows with {values}"
                    )
                    yield _found(each, "masterPriority", message, others=tuple(other for other, _ in higher))
                    break


@rule("DUR327", "delayed-alignment-differs", Severity.WARNING, takes=RuleInput.FLEET)
def delayed_alignment_differs(fleet: FleetView) -> Iterator[Finding]:
    """Nodes do not agree on delayedAlignment of a name-space.

    Why: What happens to the stored set of a node that starts late depends on that node. Without the
        setting, the set joins that of the domain. With false, a set of another lineage becomes a back-up.
        With true, it is used if the domain has no data and no writer, and the master says true, too.

    Example:
        n1: delayedAlignment="true"; n2: delayedAlignment="false"
    Use instead:
        The same value on all nodes, or no value on any
    OpenSplice: The documentation requires the same value and nothing checks it.
    Reference: deployment guide 5.2.3.3
    """
    for name, definitions in _shared(fleet):
        by_value = {
            value: [each for each in definitions if each.policy and each.policy.delayed_alignment is value]
            for value in (True, False, None)
        }
        first, *others = [(value, found) for value, found in by_value.items() if found] or [(None, [])]
        if others:
            told = [
                f"{'not given' if value is None else str(value).lower()} for {listed(names_of(found))}"
                for value, found in (first, *others)
            ]
            message = f"delayedAlignment of name-space '{name}' is {listed(told)}"
            rest = tuple(each for _, found in others for each in found)
            yield _found(first[1][0], "delayedAlignment", message, others=rest)


@rule("DUR328", "durability-differs", Severity.INFO, takes=RuleInput.FLEET)
def durability_differs(fleet: FleetView) -> Iterator[Finding]:
    """Nodes keep a name-space with different durability.

    Why: It is allowed, to spare disks. After a power cut only the nodes with a store have the data.

    Example:
        n1: durability="Persistent"; n2: durability="Transient"
    Use instead:
        At least two nodes that store
    OpenSplice: Does not compare it.
    Reference: deployment guide 5.2.3.2
    """
    for name, definitions in _shared(fleet):
        kinds: dict[Durability, list[Definition]] = {}
        for each in definitions:
            if each.policy:
                kinds.setdefault(each.policy.durability, []).append(each)
        if len(kinds) > 1:
            parts = "; ".join(f"{kind} on {listed(names_of(having))}" for kind, having in kinds.items())
            first, *rest = (having[0] for having in kinds.values())
            yield _found(first, "durability", f"name-space '{name}' is {parts}", others=tuple(rest))


def _stores(definition: Definition) -> bool:
    policy = definition.policy
    kinds = (Durability.PERSISTENT, Durability.DURABLE)
    return (
        policy is not None
        and policy.durability in kinds
        and definition.view.configuration.persistent is not None
    )


@rule("DUR329", "master-without-store", Severity.WARNING, takes=RuleInput.FLEET)
def master_without_store(fleet: FleetView) -> Iterator[Finding]:
    """The expected master of a name-space stores nothing, but other nodes do.

    Why: At start the master publishes its stored set, which is empty, and all others set their stored
        data aside to align with it. What was persistent is gone, and lies in a back-up.

    Example:
        n1: masterPriority="200" durability="Transient"; n2: masterPriority="100" durability="Persistent"
    Use instead:
        The highest priority on a node that stores, or masterPriority="0" on one that does not
    OpenSplice: Priority goes before the quality of the stored data, too.
    Reference: deployment guide 5.4.3, 5.4.4
    """
    for expected in expected_masters(dict(_shared(fleet))):
        others = [each for each in fleet.by_name_space[expected.name_space] if _stores(each)]
        if expected.candidates and others and not any(_stores(each) for each in expected.candidates):
            master = expected.candidates[0]
            message = (
                f"{master.view.shown_name} is the expected master of name-space '{expected.name_space}' "
                f"and stores nothing, but {listed(names_of(others))} would"
            )
            yield _found(master, "masterPriority", message, others=tuple(others))


@rule("DUR330", "nobody-fetches", Severity.WARNING, takes=RuleInput.FLEET)
def nobody_fetches(fleet: FleetView) -> Iterator[Finding]:
    """No node keeps a name-space from the beginning: all are Lazy or On_Request.

    Why: Data that is written while nobody reads is cached nowhere, and lost for all late joiners.

    Example:
        <Policy alignee="Lazy" .../> on every node
    Use instead:
        <Policy alignee="Initial" .../> on at least one aligner
    OpenSplice: The same over native networking; over DDSI it treats Lazy as Initial.
    Reference: deployment guide 5.2.3.1
    """
    for name, definitions in _shared(fleet):
        if all(each.policy and each.policy.alignee is not Alignee.INITIAL for each in definitions):
            message = f"no node keeps name-space '{name}' from the start"
            yield _found(definitions[0], "alignee", message, others=tuple(definitions[1:]))


@rule("DUR331", "nobody-stores", Severity.WARNING, takes=RuleInput.FLEET)
def nobody_stores(fleet: FleetView) -> Iterator[Finding]:
    """No node of the deployment stores a name-space, so that nothing survives when all are down.

    Why: Data written as PERSISTENT is then no more than TRANSIENT.

    Example:
        <Policy durability="Transient" .../> on every node
    Use instead:
        <Policy durability="Persistent" .../> and a Persistent/StoreDirectory on two nodes
    OpenSplice: The same.
    Reference: deployment guide 5.1, 5.2.3.2
    """
    for name, definitions in _shared(fleet):
        if not any(_stores(each) for each in definitions):
            message = f"no node stores name-space '{name}': its data is lost when all nodes are down"
            yield _found(definitions[0], "durability", message, others=tuple(definitions[1:]))


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
                    yield node.found(attribute, message, advice=help_)


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
