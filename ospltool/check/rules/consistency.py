"""DUR80x: what configurations show that keeps subscribers from ending with the same state."""

from __future__ import annotations

from collections.abc import Iterator

from engine.config import XmlElement
from engine.core.name_spaces import Durability
from ospltool.check.deployment import listed
from ospltool.check.registry import OPENSPLICE, RuleInput, rule
from ospltool.check.views import FleetView, NodeView
from ospltool.diagnostics.model import Finding, Severity

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
            yield node.found(place, message, subject=f"{service.name}/Channels/Channel@reliable")


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
            yield first.view.found(place, message, subject="DurabilityService/NameSpaces/Policy@durability")


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
