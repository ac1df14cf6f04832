"""DUR23x: name-spaces on which the nodes of a deployment do not agree."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator, Sequence

from engine.config.name_space_reader import conflict_text
from engine.core import expressions
from engine.core.name_spaces import Element, NameSpace, Policy, compare, find_policy, overlap
from ospltool.check.deployment import listed, names_of
from ospltool.check.registry import OPENSPLICE, RuleInput, rule
from ospltool.check.views import Definition, FleetView
from ospltool.diagnostics.model import Finding, Severity


def _distinct(fleet: FleetView) -> dict[NameSpace, list[Definition]]:
    """Every different definition with the nodes that have it."""
    found: dict[NameSpace, list[Definition]] = {}
    for definitions in fleet.by_name_space.values():
        for each in definitions:
            found.setdefault(each.name_space, []).append(each)
    return found


def _between(one: list[Definition], other: list[Definition]) -> tuple[Definition, Definition] | None:
    """A definition of each on two different nodes; None when both are on one node only."""
    for left in one:
        for right in other:
            if left.view is not right.view:
                return left, right
    return None


def _are_clearly_apart(left: NameSpace, right: NameSpace) -> bool:
    """Whether the partitions begin so differently that nothing can lie in both: cheap, and not exact."""
    return not any(a.startswith(b) or b.startswith(a) for a in _beginnings(left) for b in _beginnings(right))


@functools.lru_cache(maxsize=4096)
def _beginnings(name_space: NameSpace) -> tuple[str, ...]:
    """What the partitions begin with before their first wildcard."""
    return tuple({re.split(r"[*?]", each.partition, maxsplit=1)[0] for each in name_space.elements})


@rule("DUR230", "definitions-differ", Severity.ERROR, takes=RuleInput.FLEET)
def definitions_differ(fleet: FleetView) -> Iterator[Finding]:
    """Two nodes define a name-space of one name differently.

    Why: They do not communicate: each believes that the other would store and align other data under this
        name.

    Example:
        n1: <NameSpace name="a"><Partition>p</Partition></NameSpace>
        n2: <NameSpace name="a"><Partition>p</Partition><Partition>q</Partition></NameSpace>
    Use instead:
        The same definition on all nodes, best in one shared file.
    OpenSplice: `NameSpace configuration of remote durability service '...' for NameSpace '...' is
        incompatible with local NameSpace '...'`; a service that is starting then ends.
    Reference: deployment guide 5.2.2, 5.4.2
    """
    by_name: dict[str, list[tuple[NameSpace, list[Definition]]]] = {}
    for name_space, having in _distinct(fleet).items():
        by_name.setdefault(name_space.name, []).append((name_space, having))
    pairs = (pair for each in by_name.values() for pair in itertools.combinations(each, 2))
    for (ours, one), (theirs, other) in pairs:
        both = _between(one, other)
        if both and compare(ours, theirs):
            left, right = both
            message = (
                f"name-space '{ours.name}' is defined differently: {listed(names_of(one))} have '{ours}', "
                f"{listed(names_of(other))} have '{theirs}'"
            )
            related = (left.place(f"the definition of {left.view.shown_name}"),)
            finding = right.view.found(right.node, message, related=related)
            yield dataclasses.replace(finding, nodes=names_of([*one, *other]))


@rule("DUR231", "overlap-between-nodes", Severity.ERROR, takes=RuleInput.FLEET)
def overlap_between_nodes(fleet: FleetView) -> Iterator[Finding]:
    """Name-spaces of different names overlap on two nodes.

    Why: The nodes do not communicate. The same data would belong to two sets with two masters.

    Example:
        n1: <NameSpace name="a"><Partition>ship*</Partition></NameSpace>
        n2: <NameSpace name="b"><Partition>ships</Partition></NameSpace>
    Use instead:
        Expressions without anything in common, or the same name and definition.
    OpenSplice: Compares name-spaces of equal names only and communicates all the same; the documentation
        says otherwise.
    Reference: deployment guide 5.2.2, 5.4.2
    """
    for (ours, one), (theirs, other) in itertools.combinations(_distinct(fleet).items(), 2):
        if ours.name == theirs.name or _are_clearly_apart(ours, theirs):
            continue
        both = _between(one, other)
        conflict = compare(ours, theirs) if both else None
        if both and conflict:
            left, right = both
            nodes = f"{listed(names_of(one))} and {listed(names_of(other))}"
            related = (left.place(f"the name-space of {left.view.shown_name}"),)
            message = f"{conflict_text(conflict)}, between {nodes}"
            finding = right.view.found(right.node, message, related=related)
            yield dataclasses.replace(finding, nodes=names_of([*one, *other]))


@rule("DUR232", "name-space-on-one-node", Severity.INFO, takes=RuleInput.FLEET)
def name_space_on_one_node(fleet: FleetView) -> Iterator[Finding]:
    """Only one node of the deployment keeps a name-space.

    Why: When that node is lost, so is its data; when it is cut off, nobody else can serve late readers.

    Example:
        n1 alone has <NameSpace name="a">, and no Policy of another node matches `a`
    Use instead:
        The name-space, or a Policy that matches its name, on a second node.
    OpenSplice: The same.
    Reference: deployment guide 5.2.2, 5.2.3.6
    """
    nodes = fleet.durable()
    if len(nodes) < 2:
        return
    for name, definitions in fleet.by_name_space.items():
        if len({id(each.view) for each in definitions}) == 1:
            home = definitions[0].view
            learners = [node for node in nodes if node is not home and _learns(node.policies, name)]
            if not learners:
                message = f"only {home.shown_name} keeps name-space '{name}'"
                yield home.found(definitions[0].node, message)


def _learns(policies: Sequence[tuple[Policy, object]], name: str) -> bool:
    return any(expressions.matches(policy.name_space, name) for policy, _ in policies)


@rule("DUR233", "learned-name-space", Severity.INFO, takes=RuleInput.FLEET)
def learned_name_space(fleet: FleetView) -> Iterator[Finding]:
    """A node does not define a name-space, but a Policy of it matches the name and will adopt it.

    Why: The node keeps, aligns and perhaps masters data that its own file does not mention.

    Example:
        n1: <NameSpace name="a">...; n2: <Policy nameSpace="*" .../> without name-space a
    Use instead:
        The definition on both nodes, or a policy expression that does not match the name.
    OpenSplice: Learns it while running; persistent data of it is probably not stored there.
    Reference: deployment guide 5.2.3.6
    """
    for name, definitions in fleet.by_name_space.items():
        homes = {id(each.view) for each in definitions}
        for node in fleet.durable():
            if id(node) in homes:
                continue
            for policy, element in node.policies:
                if expressions.matches(policy.name_space, name):
                    message = (
                        f"{node.shown_name} adopts name-space '{name}' from {listed(names_of(definitions))}"
                    )
                    place = element.attribute("nameSpace") or element
                    related = (definitions[0].place("defined here"),)
                    yield node.found(place, message, related=related, subject=element.path)
                    break


@rule("DUR234", "filter-on-learned-name-space", Severity.WARNING, takes=RuleInput.FLEET, targets=OPENSPLICE)
def filter_on_learned_name_space(fleet: FleetView) -> Iterator[Finding]:
    """A node filters data of a name-space that it adopts from others and may become master of.

    Why: A master that keeps a part of the data only makes the others lose the rest.

    Example:
        n1: <NameSpace name="a"><Partition>p</Partition></NameSpace>
        n2: <Policy nameSpace="*" .../> and a Filter for p.T
    Use instead:
        masterPriority="0" in the policy of the node that filters
    OpenSplice: `Received nameSpace '...' from fellow ... is incompatible with local configured filters,
        cannot be the master of this namespace`, and goes on.
    Reference: //OpenSplice/Domain/Filters, deployment guide 5.2.3.6
    """
    for name, definitions in fleet.by_name_space.items():
        homes = {id(each.view) for each in definitions}
        for node in fleet.durable():
            policy = find_policy(tuple(each for each, _ in node.policies), name)
            if id(node) in homes or policy is None or not policy.may_be_master or node.domain is None:
                continue
            for child in node.domain.find_all("Filters/Filter/PartitionTopic"):
                try:
                    filtered = NameSpace("", (Element.parse(child.text),))
                except ValueError:
                    continue
                if overlap(filtered, definitions[0].name_space):
                    message = (
                        f"{node.shown_name} adopts name-space '{name}', filters it, and may be its master"
                    )
                    yield node.found(child, message, related=(definitions[0].place("defined here"),))
