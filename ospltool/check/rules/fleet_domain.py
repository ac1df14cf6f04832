"""DUR23x and DUR74x: what keeps nodes of a deployment from meeting, and where their name-spaces differ."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from engine.config import XmlElement
from engine.config.name_space_reader import conflict_text
from engine.core import expressions
from engine.core.name_spaces import Element, NameSpace, Policy, compare, find_policy, overlap
from engine.dds.proofs import SecretError, fingerprints
from ospltool.check.deployment import host_of, listed, names_of
from ospltool.check.registry import OPENSPLICE, OSPLTOOL, RuleInput, rule
from ospltool.check.views import Definition, FleetView, NodeView, Thing
from ospltool.diagnostics.model import Finding, Severity


def _groups(nodes: list[NodeView], key: Callable[[NodeView], object]) -> list[list[NodeView]]:
    """The nodes by a property, the largest group first."""
    found: dict[object, list[NodeView]] = {}
    for node in nodes:
        found.setdefault(key(node), []).append(node)
    # The largest group first: what most nodes have is taken for meant.
    return sorted(found.values(), key=len, reverse=True)


def _place(node: NodeView, element: XmlElement | None) -> Thing:
    return element or (node.domain or node.document.root).name_span


def _names(nodes: list[NodeView]) -> str:
    return listed(node.shown_name for node in nodes)


@rule("DUR740", "domains-differ", Severity.ERROR, takes=RuleInput.FLEET)
def domains_differ(fleet: FleetView) -> Iterator[Finding]:
    """Nodes of one deployment use different domain ids.

    Why: They never meet.

    Example:
        n1: <Id>0</Id>; n2: <Id>1</Id>
    Use instead:
        One id, for example ${DOMAIN_ID:-0} in all files. If several are meant: `domain` of each node in the
        fleet file
    OpenSplice: The same.
    Reference: //OpenSplice/Domain/Id
    """
    nodes = [node for node in fleet.nodes if node.intended_domain != node.configuration.domain.id]
    first, *rest = _groups(nodes, lambda node: node.configuration.domain.id) or [[]]
    for group in rest:
        node, usual = group[0], first[0]
        here, there = node.configuration.domain.id, usual.configuration.domain.id
        message = f"{_names(group)} use domain {here}, but {_names(first)} use {there}"
        related = (usual.place(_place(usual, usual.domain_setting("Id")), f"domain {there}"),)
        place = _place(node, node.domain_setting("Id"))
        yield node.found(place, message, related=related, subject="Domain/Id")


@rule("DUR741", "protocol-partition-differs", Severity.ERROR, takes=RuleInput.FLEET)
def protocol_partition_differs(fleet: FleetView) -> Iterator[Finding]:
    """Nodes use different partitions for the durability protocol.

    Why: They never hear each other: each believes to be alone.

    Example:
        n1: <EntityNames><Partition>dur1</Partition></EntityNames>; n2: the default
    Use instead:
        The default, durabilityPartition, on all nodes
    OpenSplice: The same.
    Reference: //OpenSplice/DurabilityService/EntityNames/Partition
    """
    groups = _groups(fleet.durable(), lambda node: node.configuration.entity_names.partition) or [[]]
    first, *rest = groups
    for group in rest:
        node, usual = group[0], first[0]
        here, there = (each.configuration.entity_names.partition for each in (node, usual))
        message = f"{_names(group)} talk in partition '{here}', but {_names(first)} in '{there}'"
        element, other = (each.setting("EntityNames/Partition") for each in (node, usual))
        related = (usual.place(other or _service(usual), f"partition '{there}'"),)
        yield node.found(
            element or _service(node),
            message,
            related=related,
            subject="DurabilityService/EntityNames/Partition",
        )


def _service(node: NodeView) -> Thing:
    return (node.service or node.document.root).name_span


def _same_place(
    fleet: FleetView, value: Callable[[NodeView], str]
) -> Iterator[tuple[NodeView, NodeView, bool, list[NodeView]]]:
    """Nodes that use one path: the first two of each machine, or of those of which no machine is known.

    The flag says whether they are surely on one machine; the list has all of them.
    """
    by_place: dict[tuple[str, str | None], list[NodeView]] = {}
    for node in fleet.durable():
        path = value(node)
        if path:
            by_place.setdefault((path, host_of(node)), []).append(node)
    for (path, host), nodes in by_place.items():
        if host is None:
            others = [node for (other, _), having in by_place.items() if other == path for node in having]
            nodes = [*nodes, *(node for node in others if node not in nodes)]
        if len(nodes) > 1:
            first, second = (node for node in fleet.nodes if node in nodes[:2])
            yield first, second, host is not None, nodes


def _shared(
    found: tuple[NodeView, NodeView, bool, list[NodeView]], path: str, what: str, severity: Severity
) -> Finding:
    """A finding about two nodes with one path."""
    earlier, node, is_known, nodes = found
    element, other = (_where_written(each, path) for each in (node, earlier))
    where = "on one machine" if is_known else "which is wrong if they share a machine"
    return node.found(
        element,
        f"{_names(nodes)} {what} '{element.text}', {where}",
        related=(earlier.place(other, earlier.shown_name),),
        severity=severity if is_known else Severity.INFO,
    )


def _where_written(node: NodeView, path: str) -> XmlElement:
    """The first element at a path that has a value; its parent may be written twice."""
    parent, _, name = path.rpartition("/")
    assert node.service, "the path has a value, so it is written"
    found = (each.find(name) for each in node.service.children if each.name == parent)
    return next(one for one in found if one and one.text)


@rule("DUR742", "shared-store", Severity.ERROR, takes=RuleInput.FLEET)
def shared_store(fleet: FleetView) -> Iterator[Finding]:
    """Two nodes have the same store directory.

    Why: On one machine the second node finds the store in use and does not start, or destroys it. On two
        machines it is two directories, and all is well: where the files do not say, this is information
        only.

    Example:
        n1 and n2: <StoreDirectory>/var/lib/durability</StoreDirectory>
    Use instead:
        <StoreDirectory>/var/lib/durability/${NODE:?}</StoreDirectory>
    OpenSplice: Has no check for it.
    Reference: //OpenSplice/DurabilityService/Persistent/StoreDirectory
    """

    def directory(node: NodeView) -> str:
        persistent, element = node.configuration.persistent, node.setting("Persistent/StoreDirectory")
        return persistent.store_directory.rstrip("/") if persistent and element and element.text else ""

    for found in _same_place(fleet, directory):
        yield _shared(found, "Persistent/StoreDirectory", "store in", Severity.ERROR)


@rule("DUR743", "shared-trace", Severity.WARNING, takes=RuleInput.FLEET)
def shared_trace(fleet: FleetView) -> Iterator[Finding]:
    """Two nodes write their traces into one file.

    Why: On one machine their lines mix, and cannot be told apart afterwards.

    Example:
        n1 and n2: <OutputFile>/tmp/durability.log</OutputFile>
    Use instead:
        <OutputFile>/var/log/durability-${NODE:?}.log</OutputFile>
    OpenSplice: Appends without looking at who else does.
    Reference: //OpenSplice/DurabilityService/Tracing/OutputFile
    """

    def file(node: NodeView) -> str:
        name = node.configuration.tracing.output_file or ""
        return "" if name.lower() in ("stdout", "stderr") else name

    for found in _same_place(fleet, file):
        yield _shared(found, "Tracing/OutputFile", "trace into", Severity.WARNING)


@rule("DUR744", "heartbeats-do-not-fit", Severity.WARNING, takes=RuleInput.FLEET)
def heartbeats_do_not_fit(fleet: FleetView) -> Iterator[Finding]:
    """One node waits for heartbeats for a shorter time than another one takes between them.

    Why: It takes that fellow for lost, finds it again, and merges, over and over.

    Example:
        n1: ExpiryTime 1.0; n2: ExpiryTime 10.0 with update_factor 0.2, a heartbeat every 2 s
    Use instead:
        The same ExpiryTime and update_factor on all nodes
    OpenSplice: Uses Domain/Daemon/Heartbeat for the same purpose.
    Reference: deployment guide 5.4.1
    """
    nodes = fleet.durable()
    if len(nodes) < 2:
        return
    slow = max(nodes, key=lambda node: node.configuration.network.heartbeat.period_s)
    period_s = slow.configuration.network.heartbeat.period_s
    hasty = [
        node
        for node in nodes
        if node.configuration.network.heartbeat.expiry_s <= period_s and node is not slow
    ]
    if hasty:
        node = hasty[0]
        expiry_s = node.configuration.network.heartbeat.expiry_s
        message = (
            f"{_names(hasty)} lose a fellow after {expiry_s:g} s of silence, "
            f"but {slow.shown_name} is silent for {period_s:g} s between heartbeats"
        )
        path = "Network/Heartbeat/ExpiryTime"
        related = (slow.place(slow.setting(path) or _service(slow), f"every {period_s:g} s"),)
        subject = f"DurabilityService/{path}"
        yield node.found(node.setting(path) or _service(node), message, related=related, subject=subject)


@rule("DUR745", "client-partitions-differ", Severity.WARNING, takes=RuleInput.FLEET)
def client_partitions_differ(fleet: FleetView) -> Iterator[Finding]:
    """Nodes serve durability clients in different partitions.

    Why: A client asks in one of them, and is answered by some of the nodes only.

    Example:
        n1: <ClientDurability/>; n2: <ClientDurability><EntityNames><Partition>c</Partition>...
    Use instead:
        The same partition on all nodes that serve clients
    OpenSplice: The default is the partition of the durability protocol.
    Reference: //OpenSplice/DurabilityService/ClientDurability/EntityNames/Partition
    """
    serving = [node for node in fleet.durable() if node.configuration.client_durability]

    def partition(node: NodeView) -> str:
        client = node.configuration.client_durability
        return client.partition if client else ""

    first, *rest = _groups(serving, partition) or [[]]
    for group in rest:
        node = group[0]
        here, there = partition(node), partition(first[0])
        message = f"{_names(group)} serve clients in '{here}', {_names(first)} in '{there}'"
        element = node.setting("ClientDurability/EntityNames/Partition") or node.setting("ClientDurability")
        yield node.found(element or _service(node), message)


@rule("DUR746", "y2038-differs", Severity.ERROR, takes=RuleInput.FLEET, targets=OPENSPLICE)
def y2038_differs(fleet: FleetView) -> Iterator[Finding]:
    """Some nodes advertise timestamps beyond 2038, others understand legacy timestamps only.

    Why: Services that differ in it cannot be in one system.

    Example:
        n1: <y2038Ready>true</y2038Ready>; n2: without it
    Use instead:
        The same value on all nodes
    OpenSplice: `I advertise timestamps that go beyond 2038, but federation with systemid ... can only
        understand legacy timestamps` is fatal.
    Reference: //OpenSplice/Domain/y2038Ready
    """

    def ready(node: NodeView) -> bool:
        element = node.domain_setting("y2038Ready")
        return element is not None and element.text.strip().lower() == "true"

    groups = _groups(fleet.durable(), ready)
    if len(groups) > 1:
        # Those that are ready first, whichever are more.
        on, off = sorted(groups, key=lambda group: not ready(group[0]))
        message = f"y2038Ready is on for {_names(on)} and off for {_names(off)}"
        yield on[0].found(on[0].domain_setting("y2038Ready") or _service(on[0]), message)


@rule("DUR747", "node-without-network", Severity.WARNING, takes=RuleInput.FLEET, targets=OPENSPLICE)
def node_without_network(fleet: FleetView) -> Iterator[Finding]:
    """A node of a deployment runs no network service.

    Why: It never meets the others.

    Example:
        <Domain> with <Service name="durability"> only
    Use instead:
        <Service name="ddsi2"><Command>ddsi2</Command></Service> and <DDSI2Service name="ddsi2"/>
    OpenSplice: Needs a network service to leave the machine. ospltool nodes always have a network.
    Reference: deployment guide 5.3.2
    """
    if len(fleet.nodes) < 2:
        return
    for node in fleet.nodes:
        if not node.networks:
            yield node.found(
                _place(node, None), f"{node.shown_name} has no network service", subject="Domain/Service"
            )


@rule("DUR748", "one-name-for-two-nodes", Severity.INFO, takes=RuleInput.FLEET)
def one_name_for_two_nodes(fleet: FleetView) -> Iterator[Finding]:
    """Two nodes on one machine have the same Domain/Name.

    Why: `stop`, `status` and `list` find nodes by that name, and OpenSplice allows one domain of a name
        on a machine.

    Example:
        n1 and n2: <Name>radar</Name>, both on 127.0.0.1
    Use instead:
        <Name>radar-${NODE:?}</Name>
    OpenSplice: Requires different names for domains that run at the same time on one machine.
    Reference: //OpenSplice/Domain/Name
    """
    first: dict[tuple[str, str], NodeView] = {}
    for node in fleet.nodes:
        host, name = host_of(node), node.configuration.domain.name
        element = node.domain_setting("Name")
        if host is None or element is None or not name:
            continue
        earlier = first.setdefault((host, name), node)
        if earlier is not node:
            other = earlier.domain_setting("Name")
            related = (earlier.place(other, earlier.shown_name),) if other else ()
            message = f"{earlier.shown_name} and {node.shown_name} are both called '{name}' on one machine"
            yield node.found(element.value or element, message, related=related)


@rule("DUR749", "secret-differs", Severity.ERROR, takes=RuleInput.FLEET, targets=OSPLTOOL)
def secret_differs(fleet: FleetView) -> Iterator[Finding]:
    """Some nodes of a domain have a secret and others none, or another one.

    Why: They refuse the messages of each other: each believes to be alone with those of its kind.

    Example:
        n1: <DomainSecret>/etc/opt/secret</DomainSecret>; n2: without it
    Use instead:
        The same secret on all nodes. Files that can be read here are compared by their contents: the first
        secret of each must be in the others. Of other files it is only known that there is a secret.
    OpenSplice: Does not know the element.
    Reference: //OpenSplice/Domain/DomainSecret
    """
    domains: dict[int | None, list[NodeView]] = {}
    for node in fleet.nodes:
        domains.setdefault(node.intended_domain, []).append(node)
    for nodes in domains.values():
        first, *rest = _groups(nodes, _secrets) or [[]]
        for group in rest:
            if _communicate(_secrets(group[0]), _secrets(first[0])):
                continue
            kinds = [_kind(one[0]) for one in (group, first)]
            message = f"{_names(group)}: {kinds[0]}; {_names(first)}: {kinds[1]}"
            element = group[0].domain_setting("DomainSecret")
            yield group[0].found(_place(group[0], element), message, subject="Domain/DomainSecret")


_UNREAD: Final = ("unread",)
"""In place of the secrets of a file that cannot be read here."""


def _secrets(node: NodeView) -> tuple[str, ...]:
    """What tells the secrets of nodes apart, that which proves first; none without a secret."""
    path = node.configuration.domain.secret
    if not path:
        return ()
    try:
        return fingerprints(path)
    except SecretError:
        return _UNREAD


def _communicate(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether nodes with these secrets may accept the messages of each other."""
    if not one or not other:
        return one == other
    return _UNREAD in (one, other) or (one[0] in other and other[0] in one)


def _kind(node: NodeView) -> str:
    path = node.configuration.domain.secret
    return f"secret of {path}" if path else "no secret (//OpenSplice/Domain/DomainSecret is not set)"


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
                    yield node.found(place, message, related=related)
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
                # The loader reports the filter; here it only keeps nothing out.
                except ValueError:
                    continue
                if overlap(filtered, definitions[0].name_space):
                    message = (
                        f"{node.shown_name} adopts name-space '{name}', filters it, and may be its master"
                    )
                    yield node.found(child, message, related=(definitions[0].place("defined here"),))
