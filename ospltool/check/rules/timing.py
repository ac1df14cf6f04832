"""DUR50x: times that do not fit together."""

from __future__ import annotations

from collections.abc import Iterator

from engine.core.name_spaces import MAX_PRIORITY
from ospltool.check.registry import OPENSPLICE, rule
from ospltool.check.views import NodeView
from ospltool.diagnostics.model import Finding, Severity

_EXPIRIES = (
    ("DurabilityService", "Network/Heartbeat/ExpiryTime"),
    ("Domain", "Lease/ExpiryTime"),
    ("Domain", "Daemon/Heartbeat/ExpiryTime"),
)


@rule("DUR501", "heartbeat-without-reserve", Severity.WARNING)
def heartbeat_without_reserve(node: NodeView) -> Iterator[Finding]:
    """A lease is renewed so late that one lost or delayed message makes it expire.

    Why: With an update factor above 0.5 there is no second message before the expiry. A fellow is then
        lost, and found again with a merge, whenever a machine is busy.

    Example:
        <ExpiryTime update_factor="0.9">4.0</ExpiryTime>
    Use instead:
        <ExpiryTime update_factor="0.25">4.0</ExpiryTime>
    OpenSplice: Allows 0.1 to 0.9, and 0.01 to 1.0 for Domain/Lease.
    Reference: //OpenSplice/DurabilityService/Network/Heartbeat/ExpiryTime[@update_factor]
    """
    for section, path in _EXPIRIES:
        element = node.setting(path) if section == "DurabilityService" else node.domain_setting(path)
        attribute = element.attribute("update_factor") if element else None
        if element is None or attribute is None:
            continue
        try:
            factor = float(attribute.text)
        except ValueError:
            continue
        if 0.5 < factor <= 1.0:
            message = f"with update_factor {factor:g} one lost message is enough for an expiry"
            yield node.found(attribute, message, subject=f"{element.path}@update_factor")


@rule("DUR502", "discovery-shorter-than-heartbeat", Severity.WARNING)
def discovery_shorter_than_heartbeat(node: NodeView) -> Iterator[Finding]:
    """The discovery period ends before every fellow has had to send a heartbeat.

    Why: A node that has not heard its fellows elects itself, publishes its own stored data, and has to
        merge afterwards.

    Example:
        <ExpiryTime update_factor="0.5">10.0</ExpiryTime> with
        <InitialDiscoveryPeriod>1.0</InitialDiscoveryPeriod>
    Use instead:
        An InitialDiscoveryPeriod of at least ExpiryTime times update_factor.
    OpenSplice: Always waits the whole period, and elects with whom it has heard by then.
    Reference: deployment guide 5.4.1, 5.4.3
    """
    network = node.configuration.network
    element = node.setting("Network/InitialDiscoveryPeriod")
    heartbeat = node.setting("Network/Heartbeat/ExpiryTime")
    if element and heartbeat and network.initial_discovery_period_s < network.heartbeat.period_s:
        message = (
            f"discovery lasts {network.initial_discovery_period_s:g} s, "
            f"but heartbeats come every {network.heartbeat.period_s:g} s"
        )
        yield node.found(element, message, related=(node.place(heartbeat, "the heartbeat"),))


@rule("DUR503", "combine-period-order", Severity.WARNING)
def combine_period_order(node: NodeView) -> Iterator[Finding]:
    """Alignment requests are combined for longer in operation than at start.

    Why: At start many nodes ask at once and waiting pays. In operation one node asks, and waits for
        nothing.

    Example:
        <RequestCombinePeriod><Initial>0.1</Initial><Operational>2.0</Operational></RequestCombinePeriod>
    Use instead:
        <RequestCombinePeriod><Initial>0.5</Initial><Operational>0.01</Operational></RequestCombinePeriod>
    OpenSplice: Has no check for it.
    Reference: deployment guide 5.3.4
    """
    alignment = node.configuration.alignment
    element = node.setting("Network/Alignment/RequestCombinePeriod")
    if element and alignment.combine_operational_s > alignment.combine_initial_s:
        message = (
            f"requests are combined for {alignment.combine_operational_s:g} s in operation, "
            f"but for {alignment.combine_initial_s:g} s at start"
        )
        yield node.found(element.find("Operational") or element, message)


@rule("DUR504", "slow-late-alignment", Severity.INFO)
def slow_late_alignment(node: NodeView) -> Iterator[Finding]:
    """Every alignment in operation waits for more than a second before it begins.

    Why: A late reader, or a node that comes back, waits that long for nothing.

    Example:
        <Operational>5.0</Operational>
    Use instead:
        <Operational>0.01</Operational>
    OpenSplice: Waits the whole period for each request that is not combined with another.
    Reference: deployment guide 5.3.4
    """
    seconds = node.configuration.alignment.combine_operational_s
    element = node.setting("Network/Alignment/RequestCombinePeriod/Operational")
    if element and seconds > 1.0:
        yield node.found(element, f"each alignment in operation begins {seconds:g} s late")


@rule("DUR505", "heartbeat-detects-nothing", Severity.INFO, targets=OPENSPLICE)
def heartbeat_detects_nothing(node: NodeView) -> Iterator[Finding]:
    """Network/Heartbeat is set, which does not decide when OpenSplice takes a fellow for lost.

    Why: It is shortened to notice failures sooner, in vain.

    Example:
        <Network><Heartbeat><ExpiryTime update_factor="0.25">1.0</ExpiryTime></Heartbeat></Network>
    Use instead:
        <Domain><Daemon><Heartbeat><ExpiryTime update_factor="0.25">1.0</ExpiryTime>... as well
    OpenSplice: Takes a fellow for lost when the heartbeat of its splice-daemon expires,
        Domain/Daemon/Heartbeat, 4.0 s by default. The one of the service paces status messages and rounds
        of the legacy election. ospltool nodes use Network/Heartbeat, as documented.
    Reference: deployment guide 5.4.1, //OpenSplice/Domain/Daemon/Heartbeat
    """
    element = node.setting("Network/Heartbeat/ExpiryTime")
    if not element or node.domain_setting("Daemon/Heartbeat/ExpiryTime"):
        return
    network, daemon = node.configuration.network.heartbeat, node.configuration.domain.daemon_heartbeat
    if network.expiry_s != daemon.expiry_s:
        lost = "OpenSplice takes a fellow for lost"
        message = f"{lost} after {daemon.expiry_s:g} s, not after {network.expiry_s:g} s"
        yield node.found(element, message, advice="Domain/Daemon/Heartbeat decides there")


@rule("DUR506", "election-wait-ignored", Severity.INFO, targets=OPENSPLICE)
def election_wait_ignored(node: NodeView) -> Iterator[Finding]:
    """MasterElection/WaitTime is set, but the legacy election does not look at it.

    Why: Someone expects the election to wait.

    Example:
        <MasterElection><WaitTime>2.0</WaitTime></MasterElection> without any masterPriority
    Use instead:
        masterPriority from 0 to 254 in every Policy
    OpenSplice: Only the election by priority waits.
    Reference: //OpenSplice/DurabilityService/MasterElection/WaitTime
    """
    element = node.setting("MasterElection/WaitTime")
    policies = node.configuration.name_spaces.policies
    is_legacy = bool(policies) and all(policy.master_priority == MAX_PRIORITY for policy in policies)
    if element and node.configuration.master_election_wait_s and is_legacy:
        yield node.found(element, "WaitTime is ignored: all priorities are 255, the legacy election")


@rule("DUR507", "aligner-wait-rounded", Severity.WARNING, targets=OPENSPLICE)
def aligner_wait_rounded(node: NodeView) -> Iterator[Finding]:
    """TimeToWaitForAligner is neither 0 nor 1, the only values that mean something.

    Why: It is no time: 0 ends the service when there is no aligner, everything else waits for ever.

    Example:
        <TimeToWaitForAligner>0.5</TimeToWaitForAligner>
    Use instead:
        <TimeToWaitForAligner>1.0</TimeToWaitForAligner>
    OpenSplice: Warns that it `currently only supports 0.0 and 1.0 (infinite), using 1.0 for now`.
    Reference: //OpenSplice/DurabilityService/Network/Alignment/TimeToWaitForAligner
    """
    seconds = node.configuration.alignment.wait_for_aligner_s
    element = node.setting("Network/Alignment/TimeToWaitForAligner")
    if element and seconds not in (0.0, 1.0):
        yield node.found(element, f"{seconds:g} means waiting for ever, like 1.0")


@rule("DUR508", "no-time-to-stop", Severity.WARNING)
def no_time_to_stop(node: NodeView) -> Iterator[Finding]:
    """The service gets no time to stop, and cannot bring its data to the disk.

    Why: What has been received but not yet stored is lost at an orderly stop.

    Example:
        <ServiceTerminatePeriod>0</ServiceTerminatePeriod>
    Use instead:
        <ServiceTerminatePeriod>10.0</ServiceTerminatePeriod>
    OpenSplice: Uses 70 % of the period to empty the queue of the store.
    Reference: //OpenSplice/Domain/ServiceTerminatePeriod
    """
    element = node.domain_setting("ServiceTerminatePeriod")
    seconds = node.configuration.domain.service_terminate_period_s
    if element and seconds < 1.0 and node.configuration.persistent:
        yield node.found(element, f"{seconds:g} s are not enough to bring data to the disk")


@rule("DUR509", "clocks-not-watched", Severity.INFO, targets=OPENSPLICE)
def clocks_not_watched(node: NodeView) -> Iterator[Finding]:
    """TimeAlignment is off, so that nobody says when the clocks of two nodes differ.

    Why: Which of two values is newer is decided by source timestamps. With clocks that differ, the older
        one may win everywhere, and systems with writers on several nodes are not eventually consistent in
        the way that users expect.

    Example:
        <TimeAlignment>false</TimeAlignment>
    Use instead:
        <TimeAlignment>true</TimeAlignment> and synchronised clocks
    OpenSplice: Warns about more than one second of difference only when it is on. Off, requests have no
        end time. ospltool nodes always measure and show the difference.
    Reference: eventual consistency, Destination Order;
        //OpenSplice/DurabilityService/Network/Alignment/TimeAlignment
    """
    element = node.setting("Network/Alignment/TimeAlignment")
    if element and not node.configuration.alignment.time_alignment:
        yield node.found(element, "clocks that differ between nodes stay unnoticed")


@rule("DUR510", "discovery-shorter-than-announcement", Severity.INFO)
def discovery_shorter_than_announcement(node: NodeView) -> Iterator[Finding]:
    """The discovery period is shorter than the interval at which DDSI announces participants.

    Why: Two nodes that start together usually find each other at once; where the first announcement is
        lost, the next one comes only after the interval, when both have elected themselves.

    Example:
        <SPDPInterval>30s</SPDPInterval> with <InitialDiscoveryPeriod>3.0</InitialDiscoveryPeriod>
    Use instead:
        <SPDPInterval>2s</SPDPInterval>
    OpenSplice: DDSI2 announces every 30 s by default.
    Reference: //OpenSplice/DDSI2Service/Discovery/SPDPInterval
    """
    for service in node.document.root.named("DDSI2Service") + node.document.root.named("DDSI2EService"):
        element = service.find("Discovery/SPDPInterval")
        interval_s = _seconds(element.text) if element else None
        discovery_s = node.configuration.network.initial_discovery_period_s
        if element and node.has_durability and interval_s and interval_s > discovery_s:
            message = (
                f"participants are announced every {interval_s:g} s, but discovery lasts {discovery_s:g} s"
            )
            yield node.found(element, message)


def _seconds(text: str) -> float | None:
    """A DDSI duration such as `2s`, `30 s` or `500ms`."""
    body = text.strip().lower()
    for unit, factor in (("ms", 0.001), ("us", 0.000_001), ("min", 60.0), ("hr", 3600.0), ("s", 1.0)):
        if body.endswith(unit):
            try:
                return float(body.removesuffix(unit)) * factor
            except ValueError:
                return None
    return None
