"""DUR70x: the services of a domain and their configurations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from engine.config import XmlElement
from engine.config.schema import SERVICE_COMMANDS
from engine.config.settings import FailureAction
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
            yield node.found(element.attribute("name") or element, message, subject=element.path)


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
            yield node.found(attribute, "the durability service is switched off", subject=entry.path)


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
