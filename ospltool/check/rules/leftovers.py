"""DUR12x to DUR132: settings that are deprecated, commercial, without any effect, or refused."""

from __future__ import annotations

from collections.abc import Iterator

from engine.config import Attribute, ByteRange, XmlElement
from engine.config.fates import Fate, WithoutEffect, without_effect
from engine.config.schema import schema
from ospltool.check import edits
from ospltool.check.registry import OPENSPLICE, OSPLTOOL, rule
from ospltool.check.views import NodeView
from ospltool.diagnostics.model import Finding, Severity

_NOTATION = ("durabilityKind", "alignmentKind")


@rule("DUR120", "deprecated-setting", Severity.WARNING)
def deprecated_setting(node: NodeView) -> Iterator[Finding]:
    """A setting is deprecated: the schema hides it from its users.

    Why: It is accepted without any word, and gone from the documentation that could explain it.

    Example:
        <Persistent><QueueSize>100</QueueSize>...</Persistent>
    Use instead:
        Nothing: leave it out.
    OpenSplice: Accepts hidden settings; its validator has no diagnostic for them. NameSpace[@mergePolicy]
        is never read. QueueSize still bounds the queue of the persistent reader.
    Reference: //OpenSplice/DurabilityService/Persistent/QueueSize
    """
    known = schema()
    for element in node.elements:
        item = known.get(element.path)
        if item and item.hidden and element.path:
            yield node.found(element.name_span, f"<{element.name}> is deprecated", subject=element.path)
        for attribute in element.attributes:
            item = known.get(f"{element.path}@{attribute.name}")
            if item and item.hidden and attribute.name not in _NOTATION and element.path:
                ignored = " and never read" if attribute.name == "mergePolicy" else ""
                fix = edits.remove_attribute(node, attribute) if ignored else None
                message = f"{attribute.name} is deprecated{ignored}"
                yield node.found(attribute, message, fix=fix)


@rule("DUR121", "commercial-setting", Severity.INFO, targets=OPENSPLICE)
def commercial_setting(node: NodeView) -> Iterator[Finding]:
    """A setting belongs to the commercial edition of OpenSplice.

    Why: With the community edition, and with ospltool nodes, it has no effect.

    Example:
        <Domain><Database><Size>10485760</Size></Database>...</Domain>
    Use instead:
        Leave it out where the community edition runs; <SingleProcess>true</SingleProcess> needs no
        Database.
    OpenSplice: The validator accepts it without a word in every edition.
    Reference: //OpenSplice/Domain/Database
    """
    known = schema()
    stack: list[XmlElement] = [node.document.root]
    while stack:
        element = stack.pop()
        item = known.get(element.path)
        if item and item.commercial:
            message = f"<{element.name}> is a setting of the commercial edition"
            yield node.found(element.name_span, message, subject=element.path)
            continue
        stack.extend(reversed(element.children))


@rule("DUR122", "alignment-partition-ignored", Severity.WARNING, targets=OPENSPLICE)
def alignment_partition_ignored(node: NodeView) -> Iterator[Finding]:
    """Alignment/Partition is configured, which OpenSplice never reads.

    Why: Someone expects one partition to be aligned before another, and it is not.

    Example:
        <Alignment><Partition Name="p" alignment_priority="10"/></Alignment>
    Use instead:
        Name-spaces of their own for what must not wait.
    OpenSplice: The schema documents it; the durability service has no code that reads it.
    Reference: //OpenSplice/DurabilityService/Network/Alignment/Partition
    """
    for element in node.service.find_all("Network/Alignment/Partition") if node.service else ():
        fix = edits.remove_element(node, element)
        yield node.found(element, "OpenSplice never reads Alignment/Partition", fix=fix)


@rule("DUR123", "client-names-ignored", Severity.INFO, targets=OPENSPLICE)
def client_names_ignored(node: NodeView) -> Iterator[Finding]:
    """The names of the client-durability publisher or subscriber are set, which has no effect.

    Why: Someone will look for the configured name in a tool and not find it.

    Example:
        <ClientDurability><EntityNames><Publisher>p</Publisher></EntityNames></ClientDurability>
    Use instead:
        The partition only, which is read.
    OpenSplice: Creates both entities with fixed names, clientDurabilityPublisher and
        clientDurabilitySubscriber.
    Reference: //OpenSplice/DurabilityService/ClientDurability/EntityNames
    """
    for name in ("Publisher", "Subscriber"):
        element = node.setting(f"ClientDurability/EntityNames/{name}")
        if element:
            fix = edits.remove_element(node, element)
            yield node.found(
                element, f"OpenSplice ignores the configured {name} of client durability", fix=fix
            )


@rule("DUR124", "priority-kind-ignored", Severity.INFO, targets=OPENSPLICE)
def priority_kind_ignored(node: NodeView) -> Iterator[Finding]:
    """priority_kind is set for a thread of the durability service, which ignores it.

    Why: Relative and Absolute end in the same priority.

    Example:
        <Watchdog><Scheduling><Priority priority_kind="Absolute">7</Priority>...
    Use instead:
        <Watchdog><Scheduling><Priority>7</Priority>...
    OpenSplice: Every thread of the service is started with the plain number.
    Reference: //OpenSplice/DurabilityService/Watchdog/Scheduling/Priority[@priority_kind]
    """
    for element in node.service.walk() if node.service else ():
        attribute = element.attribute("priority_kind")
        if attribute and element.name == "Priority":
            fix = edits.remove_attribute(node, attribute)
            message = "the durability service ignores priority_kind"
            yield node.found(attribute, message, fix=fix)


@rule("DUR125", "heartbeat-default-differs", Severity.INFO, targets=OPENSPLICE)
def heartbeat_default_differs(node: NodeView) -> Iterator[Finding]:
    """Network/Heartbeat is left out, and the documented default is not the one that OpenSplice uses.

    Why: A calculation with the documented 10 s and 0.2 is wrong.

    Example:
        <Network><InitialDiscoveryPeriod>3.0</InitialDiscoveryPeriod></Network>
    Use instead:
        <Network><Heartbeat><ExpiryTime update_factor="0.2">10.0</ExpiryTime></Heartbeat>...</Network>
    OpenSplice: Takes 4.0 s and 0.25 when the element is absent. ospltool nodes take the documented values.
    Reference: //OpenSplice/DurabilityService/Network/Heartbeat/ExpiryTime
    """
    if node.service and not node.setting("Network/Heartbeat"):
        thing = node.setting("Network") or node.service
        message = "without Heartbeat, OpenSplice takes 4.0 s * 0.25, and not the documented 10.0 s * 0.2"
        yield node.found(thing.name_span, message, subject="DurabilityService/Network/Heartbeat/ExpiryTime")


@rule("DUR126", "equality-check-ineffective", Severity.WARNING, targets=OPENSPLICE)
def equality_check_ineffective(node: NodeView) -> Iterator[Finding]:
    """EqualityCheck is on, which in OpenSplice hardly ever saves anything.

    Why: It is set so that equal sets are not sent again, and costs a hash over every set that is
        compared.

    Example:
        <Policy equalityCheck="true" .../>
    Use instead:
        Nothing: leave it out. ospltool nodes never move equal data, whatever is set; with false they show
        what merge type Replace does to instances although the sets are equal.
    OpenSplice: Compares the hash only when the numbers of messages differ, which is evidently inverted:
        equal sets without a living writer are always sent in full. The payload is not part of the hash
        either.
    Reference: deployment guide 5.2.3.5
    """
    for policy, element in node.policies:
        attribute = element.attribute("equalityCheck")
        if policy.equality_check and attribute:
            message = "OpenSplice sends equal sets in spite of equalityCheck unless they have a living writer"
            yield node.found(attribute, message)


@rule("DUR127", "y2038-partly-ready", Severity.WARNING, targets=OPENSPLICE)
def y2038_partly_ready(node: NodeView) -> Iterator[Finding]:
    """Timestamps beyond 2038 are on for the domain but not for its user clock, or the other way round.

    Why: The clock is what makes the timestamps.

    Example:
        <y2038Ready>true</y2038Ready><UserClock><UserClockModule>c</UserClockModule></UserClock>
    Use instead:
        <y2038Ready>true</y2038Ready><UserClock y2038Ready="true">...</UserClock>
    OpenSplice: Has two switches, Domain/y2038Ready and Domain/UserClock[@y2038Ready], both off by
        default.
    Reference: //OpenSplice/Domain/y2038Ready
    """
    clock = node.domain_setting("UserClock")
    if clock is None:
        return
    element = node.domain_setting("y2038Ready")
    ready = element is not None and element.text.strip().lower() == "true"
    attribute = clock.attribute("y2038Ready")
    clock_ready = attribute is not None and attribute.text.strip().lower() == "true"
    if ready != clock_ready:
        where, other = ("the domain", "its user clock") if ready else ("the user clock", "the domain")
        yield node.found(clock, f"{where} is ready for 2038, {other} is not")


@rule("DUR128", "no-effect-on-a-node", Severity.WARNING, targets=OSPLTOOL)
def no_effect_on_a_node(node: NodeView) -> Iterator[Finding]:
    """A setting has no effect on an ospltool node.

    Why: The setting looks as if it did something. docs/settings.md has a table of every setting.

    Example:
        <Persistent>...<KeyValueStore type="leveldb"/></Persistent>
    Use instead:
        Remove the setting where only ospltool nodes read the file.
    OpenSplice: Follows it, unless another rule says otherwise.
    Reference: //OpenSplice/DurabilityService/Persistent/KeyValueStore
    """
    for each in _without_effect(node, Fate.NOT_NEEDED):
        if each.warns:
            message = f"{_called(each)} has no effect on a node: {each.entry.reason}"
            yield node.found(_place(each), message, subject=each.path)


@rule("DUR129", "needless-on-a-node", Severity.INFO, targets=OSPLTOOL, alone=True)
def needless_on_a_node(node: NodeView) -> Iterator[Finding]:
    """A setting has no effect on an ospltool node, and nothing is lost by that.

    Why: A change of its value makes no difference. As it stands in almost every file of OpenSplice, a
        node says nothing of it at its start, nor does this rule where OpenSplice reads the file, too.

    Example:
        <WaitForAttachment><ServiceName>ddsi2</ServiceName></WaitForAttachment>
    Use instead:
        Nothing: leave it out.
    OpenSplice: Follows it, unless another rule says otherwise.
    Reference: //OpenSplice/DurabilityService/Network/WaitForAttachment
    """
    for each in _without_effect(node, Fate.NOT_NEEDED):
        if not each.warns:
            message = f"{_called(each)} has no effect on a node: {each.entry.reason}"
            yield node.found(_place(each), message, subject=each.path)


@rule("DUR130", "refused-setting", Severity.ERROR, targets=OSPLTOOL, blocks=OSPLTOOL)
def refused_setting(node: NodeView) -> Iterator[Finding]:
    """An ospltool node refuses this setting, because ignoring it would do harm.

    Why: Without it, the data would not be what the setting promises. What asks for security is refused, too:
        a node would send and take in everything unprotected.

    Example:
        <Domain><GIDKey groups="ships"/>...</Domain>
    Use instead:
        Remove the setting; docs/settings.md gives the reason.
    OpenSplice: Follows it.
    Reference: //OpenSplice/Domain/GIDKey
    """
    for each in _without_effect(node, Fate.REFUSED):
        message = f"a node refuses {_called(each)}: {each.entry.reason}"
        yield node.found(_place(each), message, subject=each.path)
    for problem in node.interpreted.insecure:
        yield node.from_problem(problem, blocks=OSPLTOOL)


@rule("DUR131", "impossible-scheduling", Severity.WARNING, targets=OSPLTOOL)
def impossible_scheduling(node: NodeView) -> Iterator[Finding]:
    """Scheduling class and priority together are not what Linux has.

    Why: The threads run as Domain/Service/Scheduling says, or else as the process does. Realtime has the
        priorities 1 to 99; Timeshare has nice values from -20 to 19, which are negative priorities. A
        Relative priority is added to that of the process, which is taken for an ordinary one here.

    Example:
        <Scheduling><Class>Realtime</Class><Priority>400</Priority></Scheduling>
    Use instead:
        <Scheduling><Class>Realtime</Class><Priority>40</Priority></Scheduling>
    OpenSplice: Not tried.
    Reference: deployment guide 5.5
    """
    for each in node.interpreted.in_vain:
        if each.path.rpartition("/")[0].endswith("Scheduling"):
            yield node.found(_place(each), each.entry.reason, subject=each.path)


@rule("DUR132", "sample-size", Severity.WARNING, targets=OSPLTOOL)
def sample_size(node: NodeView) -> Iterator[Finding]:
    """MaxSampleSize is not a size that a node can keep.

    Why: The node then keeps samples of up to 127 MiB only, and tells of larger ones. The value is a number
        with B, kB, MB or GB, of 1 byte to 999 million bytes, which is what a row of the store can have. A
        node needs memory for its set and three samples of the largest size that is written.

    Example:
        <DDSI2Service name="ddsi2"><Internal><MaxSampleSize>2 GB</MaxSampleSize></Internal></DDSI2Service>
    Use instead:
        <DDSI2Service name="ddsi2"><Internal><MaxSampleSize>300 MB</MaxSampleSize></Internal></DDSI2Service>
    OpenSplice: The networking service drops larger samples.
    Reference: //OpenSplice/DDSI2Service/Internal/MaxSampleSize
    """
    for each in node.interpreted.in_vain:
        if each.path.endswith("Internal/MaxSampleSize"):
            yield node.found(_place(each), each.entry.reason, subject=each.path)


def _without_effect(node: NodeView, fate: Fate) -> Iterator[WithoutEffect]:
    found = without_effect(node.domain, node.service, node.configuration.service)
    return (each for each in found if each.entry.fate is fate)


def _called(found: WithoutEffect) -> str:
    element, _, attribute = found.path.rpartition("/")[2].partition("@")
    return f"{attribute} of <{element}>" if attribute else f"<{element}>"


def _place(found: WithoutEffect) -> XmlElement | Attribute | ByteRange:
    """The name of an element with others in it, the value of a simple one, a whole attribute."""
    thing = found.thing
    return thing.name_span if isinstance(thing, XmlElement) and thing.value is None else thing


@rule("DUR133", "unused-network", Severity.WARNING, targets=OSPLTOOL)
def unused_network(node: NodeView) -> Iterator[Finding]:
    """A networking service or a bridge is enabled that an ospltool node does not use.

    Why: A node speaks DDSI2 with one configuration. It does not meet nodes and applications that are reached
        by another network, and no error says so.

    Example:
        <Service name="net"><Command>networking</Command></Service> and <NetworkService name="net">
    Use instead:
        <Service name="ddsi2"><Command>ddsi2</Command></Service> and <DDSI2Service name="ddsi2">
    OpenSplice: Runs each service that the domain lists.
    Reference: //OpenSplice/NetworkService
    """
    for each in node.interpreted.in_vain:
        if "/" not in each.path and "@" not in each.path:
            message = f"{_called(each)} has no effect on a node: {each.entry.reason}"
            yield node.found(_place(each), message, subject=each.path)
