"""DUR80x and DUR81x: what keeps subscribers, or redundant persistence services, from ending alike."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from engine.config import ByteRange, Problem, ProblemKind, XmlElement
from engine.config.persistence import GroupSettings, PersistenceService
from engine.core import expressions
from engine.core.name_spaces import Durability
from ospltool.check.deployment import listed
from ospltool.check.registry import OPENSPLICE, OSPLTOOL, RuleInput, rule
from ospltool.check.views import FileView, FleetView, NodeView
from ospltool.diagnostics.model import Finding, Place, Severity

_NETWORK = ("NetworkService", "SNetworkService")
_NOT_KEEPING = (Durability.VOLATILE, Durability.TRANSIENT_LOCAL)
_CLOCKS = ("UserClock", "UserClockService")


@rule("DUR801", "no-reliable-channel", Severity.WARNING, targets=OPENSPLICE)
def no_reliable_channel(node: NodeView) -> Iterator[Finding]:
    """A network service has no reliable channel that is enabled.

    Why: A sample that is lost on the way is not sent again, so that subscribers on different nodes end with
        different states until the next update of the instance. Eventual consistency needs RELIABLE, or
        periodic updates of every instance.

    Example:
        <Channel name="all" reliable="false" enabled="true">
    Use instead:
        <Channel name="all" reliable="true" enabled="true">
    OpenSplice: Sends RELIABLE data over reliable channels; each channel says for itself whether it is one.
    Reference: //OpenSplice/NetworkService/Channels/Channel[@reliable]; eventual consistency, Reliability
    """
    for service in node.document.root.children:
        if service.name not in _NETWORK:
            continue
        channels = service.find_all("Channels/Channel")
        if channels and not any(_is_on(each, "reliable") and _is_on(each, "enabled") for each in channels):
            name = service.attribute("name")
            place = channels[0].attribute("reliable") or channels[0]
            message = f"no channel of '{name.text if name else service.name}' is both enabled and reliable"
            yield node.found(place, message)


def _is_on(channel: XmlElement, name: str) -> bool:
    given = channel.attribute(name)
    return given is not None and given.text.strip().lower() == "true"


@rule("DUR802", "kept-by-nobody", Severity.WARNING, takes=RuleInput.FLEET)
def kept_by_nobody(fleet: FleetView) -> Iterator[Finding]:
    """No node of the deployment keeps the data of a name-space: all weaken it to less than Transient.

    Why: Who joins late does not get what was written before, and ends with another state than those that
        were there. Eventual consistency needs TRANSIENT or PERSISTENT durability, or periodic updates of
        every instance.

    Example:
        <Policy nameSpace="ships" durability="Volatile" .../> on all nodes
    Use instead:
        <Policy nameSpace="ships" durability="Durable" .../> on at least one node
    OpenSplice: Knows no Volatile here; with Transient_Local it is the same.
    Reference: deployment guide 5.2.3.2; eventual consistency, Durability
    """
    for name, definitions in fleet.by_name_space.items():
        policies = [(each, each.policy) for each in definitions if each.policy is not None]
        if policies and all(policy.durability in _NOT_KEEPING for _, policy in policies):
            first, policy = policies[0]
            place = first.attribute("durability") or first.policy_node or first.node
            nodes = listed(each.view.shown_name for each, _ in policies)
            message = f"name-space '{name}' is {policy.durability} at most on all nodes that have it: {nodes}"
            yield first.view.found(place, message)


@rule("DUR803", "clocks-of-different-kinds", Severity.WARNING, takes=RuleInput.FLEET)
def clocks_of_different_kinds(fleet: FleetView) -> Iterator[Finding]:
    """Some nodes of a deployment stamp samples with a user clock, others with another clock.

    Why: Of two updates of an instance the one with the later source time wins. Stamps of different clocks
        cannot be compared: the clock that is ahead wins always, and late updates of the others are dropped.

    Example:
        n1: <UserClock><UserClockModule>simclock</UserClockModule></UserClock>; n2: none
    Use instead:
        The same UserClock on all nodes, or on none
    OpenSplice: Uses the user clock for all timestamps of its domain on that node. ospltool nodes do not load
        clocks; they keep the stamps that writers give.
    Reference: //OpenSplice/Domain/UserClock; eventual consistency, Destination Order
    """
    clocks: dict[str, list[NodeView]] = {}
    for node in fleet.nodes:
        clocks.setdefault(_clock(node), []).append(node)
    if len(clocks) < 2:
        return
    # What most files have is taken for meant; the name decides between equals, so that the report is the
    # same each time.
    usual, *others = sorted(clocks, key=lambda each: (-len(clocks[each]), each))
    for clock in others:
        # Where the others are the ones without a clock, what is to be seen is the clock of the usual ones.
        subject = clock or usual
        node = clocks[subject][0]
        element = _clock_module(node)
        assert element is not None, "this clock has a module"
        named = {each: f"user clock '{each}'" if each else "the clock of the system" for each in clocks}
        message = (
            f"{listed(each.shown_name for each in clocks[clock])} use {named[clock]}, "
            f"but {listed(each.shown_name for each in clocks[usual])} {named[usual]}"
        )
        yield node.found(element, message)


def _clock_module(node: NodeView) -> XmlElement | None:
    for name in _CLOCKS:
        element = node.domain_setting(f"{name}/UserClockModule")
        if element is not None:
            return element
    return None


def _clock(node: NodeView) -> str:
    """The module of a node's user clock; empty for the clock of the system."""
    element = _clock_module(node)
    return element.text.strip() if element is not None else ""


_service_rule = functools.partial(rule, takes=RuleInput.PERSISTENCE, targets=OSPLTOOL)

_BOUND = "max_remote_provider_change_period_count"
_COUNT = "stable_provider_period_count"
_SECTION = "persistence_service/synchronization"
_GROUP = "persistence_service/persistence_group"
_SUBSCRIPTION = "persistence_service/durable_subscriptions/element"
# Discovery takes a second or two; a shorter wait ends before it.
_HASTY_MS = 1_000


def _problems(file: FileView) -> Iterator[Problem]:
    if file.persistence is not None:
        yield from file.persistence.problems


def _finding(file: FileView, problem: Problem) -> Finding:
    return Finding(problem.message, file.place(problem), advice=problem.hint, subject=problem.subject)


def _is_order(problem: Problem) -> bool:
    return problem.kind is ProblemKind.OUT_OF_RANGE and problem.message.startswith(_BOUND)


def _is_deprecated(problem: Problem) -> bool:
    return problem.kind is ProblemKind.BAD_VALUE and problem.message.startswith("synchronize_data")


@_service_rule("DUR810", "bad-persistence-service", Severity.ERROR, blocks=OSPLTOOL)
def bad_persistence_service(file: FileView) -> Iterator[Finding]:
    """A setting of a persistence service is unknown, repeated, empty, or outside its range.

    Why: Periods are milliseconds from 1 on, counts of periods are 1 or more, switches are true or false.
        What is misspelt has no effect, and its default is used silently.

    Example:
        <remote_provider_selection_period>0</remote_provider_selection_period>
    Use instead:
        <remote_provider_selection_period>5000</remote_provider_selection_period>
    OpenSplice: Has no persistence service of this kind.
    Reference: persistence service, Synchronization Configuration
    """
    for problem in _problems(file):
        if not _is_order(problem) and not _is_deprecated(problem):
            yield _finding(file, problem)


@_service_rule("DUR811", "provider-bound-below-count", Severity.ERROR, blocks=OSPLTOOL)
def provider_bound_below_count(file: FileView) -> Iterator[Finding]:
    """The bound on waiting for stable providers is less than the periods that stability takes.

    Why: Every change would be forced at the bound, before it can be stable: the count has no effect, and an
        oscillating link makes readers again all the time.

    Example:
        <stable_provider_period_count>3</stable_provider_period_count>
    Use instead:
        <stable_provider_period_count>3</stable_provider_period_count>
        <max_remote_provider_change_period_count>6</max_remote_provider_change_period_count>
    OpenSplice: Has no persistence service of this kind.
    Reference: persistence service, Data Synchronization Tags
    """
    yield from (_finding(file, problem) for problem in _problems(file) if _is_order(problem))


@_service_rule("DUR812", "deprecated-synchronize-data", Severity.ERROR, blocks=OSPLTOOL)
def deprecated_synchronize_data(file: FileView) -> Iterator[Finding]:
    """The old synchronization protocol is switched on, which is refused.

    Why: Every replica would send what it receives to all other replicas, whether they have it or not.

    Example:
        <synchronize_data>true</synchronize_data>
    Use instead:
        <data_synchronization><enable>true</enable></data_synchronization>
    OpenSplice: Has no persistence service of this kind.
    Reference: persistence service, synchronize_data (DEPRECATED)
    """
    yield from (_finding(file, problem) for problem in _problems(file) if _is_deprecated(problem))


def _services(file: FileView) -> Iterator[PersistenceService]:
    """The services that synchronize data."""
    if file.persistence is not None:
        yield from (each for each in file.persistence.services if each.synchronization.enable)


def _place(file: FileView, span: ByteRange) -> Place:
    assert file.source is not None, "a file that was interpreted has a source"
    return Place.from_span(file.source, span)


@_service_rule("DUR813", "replicas-cannot-converge", Severity.WARNING)
def replicas_cannot_converge(file: FileView) -> Iterator[Finding]:
    """Data is synchronized, but the QoS of a group does not let replicas end with the same last value.

    Why: Eventual consistency is guaranteed for KEEP_LAST 1 and DESTINATION_ORDER by source timestamp on
        writer and reader. With a deeper history, or in the order of arrival, replicas may keep different
        samples for ever.

    Example:
        <persistence_group name="all" filter="*"> without destination_order
    Use instead:
        <destination_order><kind>BY_SOURCE_TIMESTAMP_DESTINATIONORDER_QOS</kind></destination_order> in
        datawriter_qos and datareader_qos, and KEEP_LAST_HISTORY_QOS with depth 1
    OpenSplice: Has no persistence service of this kind.
    Reference: persistence service, Data Synchronization Protocol Overview
    """
    for service in _services(file):
        for group in service.groups:
            if not group.converges:
                reasons = "; ".join(_reasons(group))
                message = f"replicas may end with different values of group '{group.name}': {reasons}"
                yield Finding(message, _place(file, group.node.tag_span), subject=_GROUP)


def _reasons(group: GroupSettings) -> Iterator[str]:
    if group.history_depth != 1:
        kept = "KEEP_ALL" if group.history_depth is None else f"KEEP_LAST {group.history_depth}"
        yield f"its history is {kept}, not KEEP_LAST 1"
    for which, is_good in (("writer", group.writer_by_source), ("reader", group.reader_by_source)):
        if not is_good:
            yield f"its {which} is not ordered by source timestamp"


@_service_rule("DUR814", "hasty-providers", Severity.INFO)
def hasty_providers(file: FileView) -> Iterator[Finding]:
    """A change of providers is made within less than a second.

    Why: Each change makes a new reader with another filter, which costs bandwidth. A link that is lost for
        a moment is not worth it.

    Example:
        <remote_provider_selection_period>100</remote_provider_selection_period>
    Use instead:
        The default, 5000, or a stable_provider_period_count that makes a second of it
    OpenSplice: Has no persistence service of this kind.
    Reference: persistence service, remote_provider_selection_period
    """
    for service in _services(file):
        settings = service.synchronization
        wait_ms = settings.period_ms * settings.stable_periods
        node = service.node.find("synchronization/data_synchronization/remote_provider_selection_period")
        if wait_ms < _HASTY_MS and node is not None and node.value is not None:
            message = f"providers change after {wait_ms} ms, with {_COUNT} {settings.stable_periods}"
            yield Finding(message, _place(file, node.value.span), subject=f"{_SECTION}/{node.name}")


@_service_rule("DUR815", "durable-subscription-unkept", Severity.WARNING)
def durable_subscription_of_nothing(file: FileView) -> Iterator[Finding]:
    """A durable subscription is for a topic that no persistence_group keeps.

    Why: Samples are kept for a durable subscription by the service that persists their topic. Its readers
        would get nothing of what was written while they were away.

    Example:
        <persistence_group name="ships" filter="Ship*"> and
        <element><role_name>log</role_name><topic_name>Track</topic_name></element>
    Use instead:
        <persistence_group name="ships" filter="Ship*,Track">
    OpenSplice: Has no persistence service of this kind.
    Reference: persistence service, Configuring Durable Subscriptions
    """
    for service in file.persistence.services if file.persistence is not None else ():
        filters = [one.strip() for group in service.groups for one in group.filter.split(",")]
        for each in service.subscriptions:
            if not any(expressions.matches(one, each.topic) for one in filters if one):
                message = (
                    f"durable subscription '{each.name}': no persistence_group keeps topic '{each.topic}'"
                )
                yield Finding(message, _place(file, each.node.tag_span), subject=_SUBSCRIPTION)


@_service_rule("DUR816", "durable-subscriptions-apart", Severity.WARNING)
def durable_subscriptions_apart(file: FileView) -> Iterator[Finding]:
    """Replicas exchange samples, and not what durable subscriptions have acknowledged.

    Why: A replica that did not hear an acknowledgement keeps the sample, and sends it again. When the only
        replica that knows a durable subscription is lost, nothing is kept for it any more.

    Example:
        <synchronize_durable_subscription>false</synchronize_durable_subscription>
    Use instead:
        <synchronize_durable_subscription>true</synchronize_durable_subscription>
    OpenSplice: Has no persistence service of this kind.
    Reference: persistence service, synchronize_durable_subscription
    """
    for service in _services(file):
        if service.subscriptions and not service.synchronization.synchronize_durable_subscriptions:
            node = service.node.find("synchronization/synchronize_durable_subscription")
            span = node.value.span if node is not None and node.value is not None else service.node.tag_span
            message = (
                "synchronize_durable_subscription is not on: replicas do not tell each other what durable "
                "subscriptions have acknowledged"
            )
            yield Finding(message, _place(file, span), subject=f"{_SECTION}/synchronize_durable_subscription")


@_service_rule("DUR817", "no-effect-on-a-service", Severity.WARNING)
def no_effect_on_a_service(file: FileView) -> Iterator[Finding]:
    """A tag has no effect on a persistence service of ospltool.

    Why: The tag looks as if it did something. The service reports the same when it starts.

    Example:
        <persistence_service name="p"><administration>...</administration></persistence_service>
    Use instead:
        No such tag
    OpenSplice: Has no persistence service of this kind.
    Reference: persistence service, Synchronization Configuration
    """
    for service in file.persistence.services if file.persistence is not None else ():
        for problem in service.without_effect():
            yield _finding(file, problem)


@_service_rule("DUR818", "persistence-service-refused", Severity.ERROR, blocks=OSPLTOOL)
def persistence_service_refused(file: FileView) -> Iterator[Finding]:
    """A persistence service asks for something that ospltool does not do, and refuses to start.

    Why: It keeps the last sample of each instance of the topics of its groups. A group that should keep more,
        or only a part of it, would not get what it asks for.

    Example:
        <persistence_group name="g"><filter>A*</filter><deny_filter>AB*</deny_filter></persistence_group>
    Use instead:
        <persistence_group name="g"><filter>AA*,AC*</filter></persistence_group>
    OpenSplice: Has no persistence service of this kind.
    Reference: persistence service, Synchronization Configuration
    """
    for service in file.persistence.services if file.persistence is not None else ():
        for problem in service.refusals():
            yield _finding(file, problem)
