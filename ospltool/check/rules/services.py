"""DUR50x, DUR70x and DUR72x: the services of a domain, times that do not fit together, and traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from engine.config import XmlElement
from engine.config.schema import SERVICE_COMMANDS
from engine.config.settings import FailureAction, Verbosity
from engine.core.name_spaces import MAX_PRIORITY
from engine.dds.uri import incomplete_part
from ospltool.check.deployment import has_address, has_interface
from ospltool.check.registry import OPENSPLICE, OSPLTOOL, rule
from ospltool.check.views import NodeView
from ospltool.diagnostics.model import Finding, Severity

_ELEMENTS = frozenset(SERVICE_COMMANDS.values())
_DDSI = ("DDSI2Service", "DDSI2EService")


def _entries(node: NodeView) -> list[XmlElement]:
    return node.domain.named("Service") if node.domain else []


def _name(element: XmlElement) -> str | None:
    attribute = element.attribute("name")
    return attribute.text if attribute else None


def _is_enabled(entry: XmlElement) -> bool:
    attribute = entry.attribute("enabled")
    return attribute is None or attribute.text.strip().lower() != "false"


def _configurations(node: NodeView) -> list[XmlElement]:
    return [child for child in node.document.root.children if child.name in _ELEMENTS]


@rule("DUR701", "service-not-listed", Severity.ERROR, targets=OPENSPLICE, blocks=OPENSPLICE)
def service_not_listed(node: NodeView) -> Iterator[Finding]:
    """A service is configured, but the domain does not list it.

    Why: It is never started.

    Example:
        <DDSI2Service name="net"> with <Service name="ddsi2"> only
    Use instead:
        <Service name="net"><Command>ddsi2</Command></Service>
    OpenSplice: `No matching service with name="..." found under Domain`, and the domain does not start.
        ospltool nodes do not start other services.
    Reference: //OpenSplice/Domain/Service
    """
    listed = {_name(entry) for entry in _entries(node)}
    for element in _configurations(node):
        name = _name(element)
        if name is not None and name not in listed:
            message = f"no Domain/Service is called '{name}', so that this {element.name} is never started"
            yield node.found(element.attribute("name") or element, message)


@rule("DUR702", "service-not-configured", Severity.ERROR, targets=OPENSPLICE, blocks=OPENSPLICE)
def service_not_configured(node: NodeView) -> Iterator[Finding]:
    """The domain lists an enabled service that has no configuration of its name.

    Why: The service cannot start.

    Example:
        <Service name="ddsi2"><Command>ddsi2</Command></Service> without <DDSI2Service name="ddsi2"/>
    Use instead:
        <DDSI2Service name="ddsi2"/>, or <Service name="ddsi2" enabled="false">
    OpenSplice: `No configuration found for the <Service name="...">`, and the domain does not start.
    Reference: //OpenSplice/Domain/Service[@name]
    """
    configured = {_name(element) for element in _configurations(node)}
    for entry in _entries(node):
        name = _name(entry)
        if name is not None and name not in configured and _is_enabled(entry):
            yield node.found(entry, f"there is no configuration for service '{name}'")


@rule("DUR703", "wrong-command", Severity.ERROR, targets=OPENSPLICE, blocks=OPENSPLICE)
def wrong_command(node: NodeView) -> Iterator[Finding]:
    """The Command of a service starts another one than its configuration is for, or nothing known.

    Why: The program that is started does not find its configuration.

    Example:
        <Service name="durability"><Command>durabilty</Command></Service>
    Use instead:
        <Service name="durability"><Command>durability</Command></Service>
    OpenSplice: `Element <Service name="..."><Command>...</Command></Service> command '...' is incorrect`.
        A command that it does not know is accepted when it is an executable file, which cannot be seen
        here: such a command is a warning.
    Reference: //OpenSplice/Domain/Service/Command
    """
    by_name = {_name(element): element for element in _configurations(node)}
    for entry in _entries(node):
        element = by_name.get(_name(entry))
        command = entry.find("Command")
        if element is None or command is None:
            continue
        if command.value and (command.value.is_broken or command.value.is_left_empty):  # DUR011
            continue
        stem = PurePosixPath(command.text.strip()).stem
        known = SERVICE_COMMANDS.get(stem)
        if known == element.name:
            continue
        expected = next(word for word, name in SERVICE_COMMANDS.items() if name == element.name)
        help_ = f"{element.name} is started by '{expected}'"
        if not stem:
            yield node.found(command, "the command is empty", advice=help_)
        elif known:
            yield node.found(
                command, f"'{stem}' starts the service of {known}, not of {element.name}", advice=help_
            )
        else:
            message = f"'{stem}' is not a command of OpenSplice"
            yield node.found(command, message, advice=help_, severity=Severity.WARNING, blocks=frozenset())


@rule("DUR704", "durability-disabled", Severity.WARNING)
def durability_disabled(node: NodeView) -> Iterator[Finding]:
    """The durability service is configured but switched off.

    Why: The file looks like that of a node that keeps data.

    Example:
        <Service name="durability" enabled="false">
    Use instead:
        <Service name="durability" enabled="true">
    OpenSplice: Does not start it.
    Reference: //OpenSplice/Domain/Service[@enabled]
    """
    for entry in _entries(node):
        attribute = entry.attribute("enabled")
        if (
            _name(entry) == node.configuration.service
            and node.has_durability
            and attribute
            and not _is_enabled(entry)
        ):
            yield node.found(attribute, "the durability service is switched off")


@rule("DUR705", "waits-for-unknown-service", Severity.WARNING, targets=OPENSPLICE)
def waits_for_unknown_service(node: NodeView) -> Iterator[Finding]:
    """WaitForAttachment names a service that the domain does not run.

    Why: It will never be attached, so that every start takes the longest possible time.

    Example:
        <WaitForAttachment><ServiceName>networking</ServiceName></WaitForAttachment> with ddsi2 only
    Use instead:
        <WaitForAttachment><ServiceName>ddsi2</ServiceName></WaitForAttachment>
    OpenSplice: Waits maxWaitCount times 100 ms for each of its nine writers, one after the other: three
        minutes with the default of 200.
    Reference: deployment guide 5.3.2
    """
    settings = node.configuration.wait_for_attachment
    if settings is None or node.service is None:
        return
    running = [name for entry in _entries(node) if (name := _name(entry)) and _is_enabled(entry)]
    for element in node.service.find_all("Network/WaitForAttachment/ServiceName"):
        if element.text not in running:
            seconds = settings.max_wait_count * 0.1 * 9
            message = (
                f"the domain runs no service '{element.text}': OpenSplice starts up to {seconds:g} s later"
            )
            others = [name for name in running if name != node.configuration.service]
            help_ = f"the domain runs {', '.join(map(repr, others))}" if others else ""
            yield node.found(element, message, advice=help_)


@rule("DUR706", "waits-for-itself", Severity.WARNING, targets=OPENSPLICE)
def waits_for_itself(node: NodeView) -> Iterator[Finding]:
    """WaitForAttachment names the durability service itself.

    Why: It waits for the networking services; itself it is not one.

    Example:
        <WaitForAttachment><ServiceName>durability</ServiceName></WaitForAttachment>
    Use instead:
        <WaitForAttachment><ServiceName>ddsi2</ServiceName></WaitForAttachment>
    OpenSplice: Has no check for it.
    Reference: deployment guide 5.3.2
    """
    for element in node.service.find_all("Network/WaitForAttachment/ServiceName") if node.service else ():
        if element.text == node.configuration.service:
            yield node.found(element, "the service would wait for itself")


@rule("DUR707", "no-wait-for-network", Severity.INFO, targets=OPENSPLICE)
def no_wait_for_network(node: NodeView) -> Iterator[Finding]:
    """A network service runs, but the durability service does not wait for it.

    Why: Data that is sent before the network service is attached may be missing in an alignment.

    Example:
        <Service name="ddsi2">... without <WaitForAttachment>
    Use instead:
        <WaitForAttachment><ServiceName>ddsi2</ServiceName></WaitForAttachment>
    OpenSplice: Needs to be told which services to wait for.
    Reference: deployment guide 5.3.2
    """
    if node.service is None or node.setting("Network/WaitForAttachment"):
        return
    network = {"NetworkService", "SNetworkService", "DDSI2Service", "DDSI2EService"}
    running = {_name(entry) for entry in _entries(node) if _is_enabled(entry)}
    names = [
        name for each in _configurations(node) if each.name in network and (name := _name(each)) in running
    ]
    if names:
        thing = node.setting("Network") or node.service
        message = f"the service does not wait for {', '.join(map(repr, names))} to be attached"
        yield node.found(thing.name_span, message, subject="DurabilityService/Network/WaitForAttachment")


@rule("DUR708", "domain-without-name", Severity.WARNING, targets=OPENSPLICE)
def domain_without_name(node: NodeView) -> Iterator[Finding]:
    """The name of the domain is empty, which makes OpenSplice overlook its id.

    Why: The node runs in domain 0 instead.

    Example:
        <Name></Name><Id>5</Id>
    Use instead:
        <Name>radar</Name><Id>5</Id>
    OpenSplice: Reads Id and InProcessExceptionHandling only when the name is not empty.
    Reference: //OpenSplice/Domain/Name
    """
    element = node.domain_setting("Name")
    if element and not element.text:
        domain_id = node.configuration.domain.id
        message = "the domain has no name"
        message += f": OpenSplice overlooks its id, {domain_id}" if domain_id else ""
        yield node.found(element, message)


@rule("DUR709", "not-restarted", Severity.INFO)
def not_restarted(node: NodeView) -> Iterator[Finding]:
    """When the durability service dies, nothing happens.

    Why: FailureAction is skip by default. The node goes on without durability until someone notices.

    Example:
        <Service name="durability"><Command>durability</Command></Service>
    Use instead:
        <Service
        name="durability"><Command>durability</Command><FailureAction>restart</FailureAction></Service>
    OpenSplice: Knows kill, restart, skip and systemhalt.
    Reference: //OpenSplice/Domain/Service/FailureAction
    """
    service = node.configuration.domain.service(node.configuration.service)
    if not node.has_durability or service is None or not service.enabled:
        return
    if service.failure_action is FailureAction.SKIP:
        entry = next((each for each in _entries(node) if _name(each) == service.name), None)
        if entry is None:  # an entry without a name is taken for the durability service
            return
        thing = entry.find("FailureAction") or entry
        message = "the durability service is not started again when it dies"
        yield node.found(thing, message, subject="Domain/Service/FailureAction")


@rule("DUR710", "service-listed-twice", Severity.WARNING)
def service_listed_twice(node: NodeView) -> Iterator[Finding]:
    """The domain lists two services of one name.

    Why: Both have the same configuration, and it is not defined which of them counts.

    Example:
        <Service name="durability">... <Service name="durability">...
    Use instead:
        One entry for each service.
    OpenSplice: Its schema allows any number of services.
    Reference: //OpenSplice/Domain/Service[@name]
    """
    first: dict[str, XmlElement] = {}
    for entry in _entries(node):
        name = _name(entry)
        if name is not None and first.setdefault(name, entry) is not entry:
            related = (node.place(first[name], "listed here first"),)
            yield node.found(entry, f"service '{name}' is listed a second time", related=related)


@rule("DUR711", "system-id-range", Severity.ERROR)
def system_id_range(node: NodeView) -> Iterator[Finding]:
    """The range of system ids is empty: its minimum is above its maximum.

    Why: The system id decides elections that are otherwise equal.

    Example:
        <SystemId><Range min="200" max="100"/></SystemId>
    Use instead:
        <SystemId><Range min="100" max="200"/></SystemId>
    OpenSplice: Checks each bound alone.
    Reference: //OpenSplice/Domain/SystemId/Range
    """
    element = node.domain_setting("SystemId/Range")
    low = element.attribute("min") if element else None
    high = element.attribute("max") if element else None
    if (
        element
        and low
        and high
        and low.text.isdigit()
        and high.text.isdigit()
        and int(low.text) > int(high.text)
    ):
        yield node.found(element, f"no system id lies between {low.text} and {high.text}")


@rule("DUR712", "only-this-machine", Severity.INFO, targets=OSPLTOOL)
def only_this_machine(node: NodeView) -> Iterator[Finding]:
    """No DDSI2 service is configured and enabled, so that an ospltool node uses loopback only.

    Why: The node never meets nodes on other machines, and reports no error.

    Example:
        a file without <DDSI2Service>
    Use instead:
        <DDSI2Service name="ddsi2"><General><NetworkInterfaceAddress>AUTO</NetworkInterfaceAddress></General>
    OpenSplice: Has no network without a networking service either.
    Reference: //OpenSplice/DDSI2Service
    """
    if node.service is not None and not node.configuration.ddsi.is_configured:
        message = (
            "without a DDSI2 service an ospltool node talks over loopback only, unless CYCLONEDDS_URI is set"
        )
        yield node.found(node.service.attribute("name") or node.service, message)


_MULTICAST = frozenset({"spdp", "asm", "ssm"})


@rule("DUR713", "ddsi-keyword", Severity.ERROR, targets=OPENSPLICE, blocks=OPENSPLICE)
def ddsi_keyword(node: NodeView) -> Iterator[Finding]:
    """AllowMulticast of a DDSI2 service is neither true, false nor a list of spdp, asm and ssm.

    Why: The networking service refuses its configuration, and the domain stops.

    Example:
        <DDSI2Service name="ddsi2"><General><AllowMulticast>yes</AllowMulticast></General></DDSI2Service>
    Use instead:
        <DDSI2Service name="ddsi2"><General><AllowMulticast>true</AllowMulticast></General></DDSI2Service>
    OpenSplice: The networking service reports the value and ends.
    Reference: //OpenSplice/DDSI2Service/General/AllowMulticast
    """
    for element in _ddsi_settings(node, "General/AllowMulticast"):
        words = {word.strip().lower() for word in element.text.split(",")}
        if not (words <= _MULTICAST or words in ({"true"}, {"false"})):
            message = f"{element.text.strip()!r} is none of true, false, or a list of spdp, asm and ssm"
            yield node.found(element, message)


@rule("DUR715", "incomplete-cyclone-settings", Severity.ERROR, targets=OSPLTOOL, blocks=OSPLTOOL)
def incomplete_cyclone_settings(node: NodeView) -> Iterator[Finding]:
    """The CYCLONEDDS_URI of the environment ends before its elements do, or names an empty file.

    Why: Cyclone DDS takes it, without what is missing: a node would speak on another interface than the
        settings name. ospltool does not start with it.

    Example:
        CYCLONEDDS_URI='<CycloneDDS><Domain>'
    Use instead:
        CYCLONEDDS_URI='<CycloneDDS><Domain>...</Domain></CycloneDDS>'
    OpenSplice: Does not read this variable.
    Reference: Cyclone DDS, configuration guide; observed with 11.0.1
    """
    lack = incomplete_part(node.environ.get("CYCLONEDDS_URI", ""))
    if lack:
        yield node.found(node.document.root.name_span, f"CYCLONEDDS_URI of this node is incomplete: {lack}")


@rule("DUR714", "interface-not-here", Severity.INFO)
def interface_not_here(node: NodeView) -> Iterator[Finding]:
    """NetworkInterfaceAddress names an interface or an address that this machine does not have.

    Why: On this machine the service would not start. Where the file is for another machine, this is as it
        should be.

    Example:
        <General><NetworkInterfaceAddress>192.0.2.7</NetworkInterfaceAddress></General>
    Use instead:
        AUTO, or an address or a name that `ip address` lists on the machine of the node
    OpenSplice: The networking service reports that no interface matches, and ends.
    Reference: //OpenSplice/DDSI2Service/General/NetworkInterfaceAddress
    """
    for element in _ddsi_settings(node, "General/NetworkInterfaceAddress"):
        name = element.text.strip()
        if name and name.upper() != "AUTO" and not (has_interface(name) or has_address(name)):
            yield node.found(element, f"this machine has no interface and no address {name!r}")


def _ddsi_settings(node: NodeView, path: str) -> Iterator[XmlElement]:
    """A setting of all DDSI services, where it has a value."""
    for service in _configurations(node):
        element = service.find(path) if service.name in _DDSI else None
        if element is not None and element.value and not element.value.is_broken:
            yield element


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
        except ValueError:  # the loader reports a text that is no number
            continue
        if 0.5 < factor <= 1.0:
            message = f"with update_factor {factor:g} one lost message is enough for an expiry"
            yield node.found(attribute, message)


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
            # The reader of another product refuses it, too: the value has no duration to compare.
            except ValueError:
                return None
    return None


_STREAMS = ("stdout", "stderr")


@rule("DUR721", "finest-tracing", Severity.INFO)
def finest_tracing(node: NodeView) -> Iterator[Finding]:
    """The trace is as detailed as it can be.

    Why: Every step of an alignment is a line, and in OpenSplice every sample. The file grows without bound,
        unless OSPLTOOL_TRACE_ROTATION is set for an ospltool node, and the service slows down.

    Example:
        <Verbosity>FINEST</Verbosity>
    Use instead:
        <Verbosity>INFO</Verbosity> in production, FINEST to find a fault
    OpenSplice: Appends to the file at every start.
    Reference: deployment guide 5.3.5
    """
    tracing = node.configuration.tracing
    element = node.setting("Tracing/Verbosity")
    if element and tracing.output_file is not None and tracing.verbosity is Verbosity.FINEST:
        yield node.found(element, "FINEST traces every step, into a file that grows without bound")


@rule("DUR722", "tracing-nowhere", Severity.WARNING)
def tracing_nowhere(node: NodeView) -> Iterator[Finding]:
    """Tracing is configured, but without an output file nothing is traced.

    Why: It is noticed when the trace is needed.

    Example:
        <Tracing><Verbosity>FINE</Verbosity></Tracing>
    Use instead:
        <Tracing><OutputFile>durability.log</OutputFile><Verbosity>FINE</Verbosity></Tracing>
    OpenSplice: Traces only when OutputFile is there; the default of the schema does not apply.
    Reference: //OpenSplice/DurabilityService/Tracing/OutputFile
    """
    element = node.setting("Tracing")
    if element and not element.find("OutputFile"):
        yield node.found(
            element.name_span, "there is no OutputFile, so nothing is traced", subject=element.path
        )


@rule("DUR723", "empty-output-file", Severity.WARNING)
def empty_output_file(node: NodeView) -> Iterator[Finding]:
    """The output file of the trace is empty; durability.log in the current directory is taken.

    Why: Several services, or nodes, started in one directory write into one file.

    Example:
        <OutputFile></OutputFile>
    Use instead:
        <OutputFile>/var/log/durability.log</OutputFile>
    OpenSplice: Warns: `OutputFile configuration-parameter is empty, using default value
        "durability.log"`.
    Reference: //OpenSplice/DurabilityService/Tracing/OutputFile
    """
    element = node.setting("Tracing/OutputFile")
    if element and not element.text and not (element.value and element.value.is_left_empty):  # DUR011
        yield node.found(element, "the output file is empty; durability.log is taken")


@rule("DUR724", "synchronous-tracing", Severity.WARNING)
def synchronous_tracing(node: NodeView) -> Iterator[Finding]:
    """Every line of the trace is brought to the disk before the service goes on.

    Why: With FINE or more the service does little else.

    Example:
        <Tracing synchronous="true">
    Use instead:
        <Tracing synchronous="false">
    OpenSplice: Calls fsync for each line.
    Reference: //OpenSplice/DurabilityService/Tracing[@synchronous]
    """
    tracing = node.configuration.tracing
    element = node.setting("Tracing")
    attribute = element.attribute("synchronous") if element else None
    if attribute and tracing.synchronous and tracing.output_file is not None:
        severity = Severity.WARNING if tracing.verbosity >= Verbosity.FINE else Severity.INFO
        message = f"each line of a {tracing.verbosity.name} trace waits for the disk"
        yield node.found(attribute, message, severity=severity)


@rule("DUR725", "traces-cannot-be-merged", Severity.INFO)
def traces_cannot_be_merged(node: NodeView) -> Iterator[Finding]:
    """The trace has no timestamps, or they count from the start of the service.

    Why: The traces of several nodes can then not be put in one order.

    Example:
        <Timestamps absolute="false">true</Timestamps>
    Use instead:
        <Timestamps absolute="true">true</Timestamps>
    OpenSplice: Traces absolute timestamps by default.
    Reference: //OpenSplice/DurabilityService/Tracing/Timestamps[@absolute]
    """
    tracing = node.configuration.tracing
    element = node.setting("Tracing/Timestamps")
    if (
        element
        and tracing.output_file is not None
        and not (tracing.has_timestamps and tracing.absolute_timestamps)
    ):
        what = "relative timestamps" if tracing.has_timestamps else "no timestamps"
        yield node.found(element, f"{what}: the trace cannot be merged with those of other nodes")


@rule("DUR726", "trace-on-a-stream", Severity.INFO)
def trace_on_a_stream(node: NodeView) -> Iterator[Finding]:
    """The trace goes to the standard output or the standard error stream.

    Why: A service has neither, unless it runs in the foreground; several nodes on one terminal mix their
        lines.

    Example:
        <OutputFile>stdout</OutputFile>
    Use instead:
        <OutputFile>/var/log/durability.log</OutputFile>
    OpenSplice: Knows stdout and stderr in any case.
    Reference: //OpenSplice/DurabilityService/Tracing/OutputFile
    """
    element = node.setting("Tracing/OutputFile")
    if element and element.value and element.text.strip().lower() in _STREAMS:
        yield node.found(element.value, f"the trace goes to {element.text.strip().lower()}")


@rule("DUR727", "reports-off", Severity.WARNING)
def reports_off(node: NodeView) -> Iterator[Finding]:
    """The reports of the domain are switched off, and with them its errors.

    Why: Name-space conflicts, lost stores and refused fellows are reported nowhere else.

    Example:
        <Report verbosity="NONE"/>
    Use instead:
        <Report verbosity="INFO"/>
    OpenSplice: ospl-info.log and ospl-error.log stay empty; OSPL_VERBOSITY of the environment has its own
        say.
    Reference: //OpenSplice/Domain/Report[@verbosity]
    """
    element = node.domain_setting("Report")
    attribute = element.attribute("verbosity") if element else None
    if (
        element
        and attribute
        and node.configuration.domain.report_verbosity in ("NONE", "REPAIRED", "FATAL", "CRITICAL")
    ):
        message = f"errors are not reported with verbosity {node.configuration.domain.report_verbosity}"
        yield node.found(attribute, message)
