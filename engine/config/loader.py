"""Loading the typed configuration of one node from a URI.

`interpret` finds the sections of the document that concern one node, has `_SettingsBuilder` make typed
settings of them, one method for each part of the documentation, and collects all problems with their places:
a person corrects a file once, not once for each error. `_security_problems` finds what asks for protected
traffic. A node has none, and must not go on without: an unsecured node in a domain that is to be secured
would send to everyone what others encrypt.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from engine.config.fates import (
    WITHOUT_WARNING,
    Fate,
    SettingFate,
    WithoutEffect,
    in_vain,
    marked,
    without_effect,
)
from engine.config.name_space_reader import NameSpaceReader
from engine.config.problems import ByteRange, ConfigError, Position, Problem, ProblemKind, quoted
from engine.config.reader import read_document
from engine.config.scheduling import ORDINARY, schedules
from engine.config.schema import documented, engine_schema
from engine.config.sections import SettingsReader
from engine.config.settings import (
    MAX_DOMAIN_ID,
    AlignmentSettings,
    Configuration,
    ContentFilterSettings,
    DdsiSettings,
    DomainSettings,
    DurablePolicy,
    EntityNames,
    Ignored,
    NetworkSettings,
    PersistentSettings,
    ServiceEntry,
    SettingOrigin,
    TracingSettings,
    WaitForAttachment,
    WatchdogSettings,
)
from engine.config.tree import Document, Value, XmlElement
from engine.config.validate import STRANGE, as_settings, check_bounds, problem, schema_problems, strangers
from engine.config.values import ValueFault, did_you_mean, parse_memory
from engine.core.expressions import covers
from engine.core.name_spaces import Element
from engine.core.settings import LARGEST_SAMPLE_BYTES, MAX_SAMPLE_BYTES
from engine.dataset.content import Expression, ExpressionFault

if TYPE_CHECKING:
    from typing import TypeAlias

    Found: TypeAlias = tuple[str, ByteRange]
    """Path of a setting, and the place of its name."""

_SERVICE = "DurabilityService"
_CHARACTER: Final = re.compile(r"&[^;&]*;|.", re.DOTALL)
"""A character of a value in the file; an entity is one character."""


class Interpreted(msgspec.Struct, frozen=True):
    """A document in the interpretation of one node.

    With `problems` a node does not start; `configuration` then has defaults in unreadable places, so that the
    check can look at the rest. `schema_problems` has everything that the schema does not allow, whether or
    not it prevents an ospltool node from starting. `in_vain` has settings that others make ineffective, and
    `insecure` those of the problems that ask for security.
    """

    configuration: Configuration
    problems: tuple[Problem, ...]
    schema_problems: tuple[Problem, ...]
    in_vain: tuple[WithoutEffect, ...] = ()
    insecure: tuple[Problem, ...] = ()


def load(
    uri: str, environ: Mapping[str, str], *, role: str | None = None, service: str = "durability"
) -> Configuration:
    """Read the configuration of one node.

    Args:
        uri: a `file://` URI or a path.
        environ: the variables for `${VAR}`.
        role: replaces //OpenSplice/Domain/Role, as a fleet file may do.
        service: the name of the DurabilityService element to use.

    Raises:
        ConfigError: a node must not start; it has all problems.
    """
    interpreted = interpret(read_document(uri, environ), role=role, service=service)
    if interpreted.problems:
        raise ConfigError(interpreted.problems)
    return interpreted.configuration


def interpret(document: Document, *, role: str | None = None, service: str = "durability") -> Interpreted:
    """Interpret a document for the node that runs `service`, and collect all problems.

    `role` replaces the one in the document.

    Raises:
        ConfigError: the root element is not OpenSplice, or the expressions exceed the bounds.
    """
    problems = list(document.problems)
    found = list(schema_problems(document, engine_schema()))
    if found and found[0].kind is ProblemKind.ROOT:
        raise ConfigError(found)
    check_bounds(document)
    sections: dict[str, XmlElement | None] = {
        "Domain": document.root.find("Domain"),
        _SERVICE: _service_section(document, service, problems),
    }
    ddsi = _ddsi_section(document)
    sections["DDSI2Service"] = ddsi
    problems += [each for each in found if _matters(each, document, sections[_SERVICE])]
    reader = SettingsReader(document, engine_schema(), sections)
    name_spaces = NameSpaceReader(document, reader)
    builder = _SettingsBuilder(reader, document)
    configuration = builder.configuration(service, role, name_spaces, has_ddsi=ddsi is not None)
    problems += builder.problems + name_spaces.problems
    found_without = without_effect(sections["Domain"], sections[_SERVICE], service)
    problems += [_refusal(document, each) for each in found_without if each.entry.fate is Fate.REFUSED]
    ignored = [each for each in found_without if each.entry.fate is Fate.NOT_NEEDED]
    insecure = tuple(_security_problems(document))
    problems += insecure
    builder.scheduling_in_vain(configuration)
    in_vain = name_spaces.without_effect + builder.without_effect
    in_vain += _unused_networks(document, ddsi)
    ignored += in_vain
    unknown = strangers(document, found)
    without = [
        Ignored(documented(each.path), each.entry.reason, SettingOrigin(document.path, *each.thing.position))
        for each in ignored
        if each.warns
    ]
    configuration = msgspec.structs.replace(
        configuration,
        settings=(*marked(reader.settings, ignored), *as_settings(document, unknown)),
        ignored=(*without, *unknown),
    )
    # Several passes found them; a person reads them from the top of the file down.
    problems.sort(key=lambda each: (each.line, each.column))
    return Interpreted(configuration, tuple(problems), tuple(found), tuple(in_vain), insecure)


def _refusal(document: Document, found: WithoutEffect) -> Problem:
    message = f"{documented(found.path)} is refused: {found.entry.reason}"
    return problem(document, ProblemKind.REFUSED_SETTING, message, found.thing.name_span, found.path)


def _service_section(document: Document, service: str, problems: list[Problem]) -> XmlElement | None:
    """Find the DurabilityService element of that name."""
    nodes = document.root.named(_SERVICE)
    named = [node for node in nodes if (name := node.attribute("name")) and name.text == service]
    if len(named) == 1:
        return named[0]
    root = document.root
    if named:
        message = f"there are {len(named)} DurabilityService elements with the name '{service}'"
        hint = f"the first is in line {named[0].line}"
        span, other = named[1].name_span, named[0].position
        problems.append(problem(document, ProblemKind.SERVICE, message, span, _SERVICE, hint, other))
        return named[0]
    names = [f"'{name.text}'" for node in nodes if (name := node.attribute("name"))]
    hint = f"the file has {', '.join(names)}" if names else ""
    message = f"there is no DurabilityService with the name '{service}'"
    span = nodes[0].name_span if nodes else root.name_span
    for child in root.children if not nodes else ():
        if child.name not in engine_schema().children("") and did_you_mean(child.name, [_SERVICE]):
            span, hint = child.name_span, f"<{quoted(child.name)[1:-1]}>: did you mean {_SERVICE}?"
    problems.append(problem(document, ProblemKind.SERVICE, message, span, _SERVICE, hint))
    return nodes[0] if nodes else None


def _ddsi_section(document: Document) -> XmlElement | None:
    """Find the first DDSI2 or DDSI2E service that no Domain/Service disables."""
    services = document.root.named("DDSI2Service") + document.root.named("DDSI2EService")
    enabled = _enabled_services(document)
    usable = [node for node in services if enabled.get(_name_of(node), True)]
    return usable[0] if usable else None


NETWORKS: Final = {
    "DDSI2Service": "a node uses the first DDSI2 service only",
    "DDSI2EService": "a node uses the first DDSI2 service only",
    "NetworkService": "a node speaks DDSI2 only, and does not reach who uses this network",
    "SNetworkService": "a node speaks DDSI2 only, and does not reach who uses this network",
    "NetworkingBridgeService": "ospltool has no bridge between networks",
}
"""Services by which OpenSplice reaches other machines, and why a node does not follow them."""


def _unused_networks(document: Document, used: XmlElement | None) -> list[WithoutEffect]:
    """Return the enabled networking services that a node does not use."""
    enabled = _enabled_services(document)
    return [
        WithoutEffect(SettingFate(node.path, Fate.NOT_NEEDED, reason=NETWORKS[node.name]), node, ())
        for node in document.root.children
        if node.name in NETWORKS and node is not used and enabled.get(_name_of(node), False)
    ]


def _enabled_services(document: Document) -> dict[str, bool]:
    """Return the services that the domain lists, and whether it enables them."""
    found: dict[str, bool] = {}
    for entry in document.root.find_all("Domain/Service"):
        is_enabled = not _is(entry, "enabled", "false")
        found[_name_of(entry)] = found.get(_name_of(entry), True) and is_enabled
    return found


def _name_of(service: XmlElement) -> str:
    name = service.attribute("name")
    return name.text if name else ""


def _matters(found: Problem, document: Document, section: XmlElement | None) -> bool:
    """Tell whether a problem of the schema check prevents the node from starting."""
    subject = found.subject.removeprefix("//OpenSplice").lstrip("/")
    if subject == _SERVICE:  # several sections for several services are documented
        return found.kind is not ProblemKind.REPEATED_ELEMENT
    if subject.startswith((f"{_SERVICE}/", f"{_SERVICE}[")):
        if section is None or found.span is None:
            return False
        return section.span.start <= found.span.start < section.span.end
    if subject == "Domain" or subject.startswith("Domain/"):
        return found.kind not in STRANGE
    return False


class _SettingsBuilder:
    """Builds the parts of a configuration.

    `problems` has problems beyond the schema, `without_effect` settings that others make ineffective.
    """

    def __init__(self, reader: SettingsReader, document: Document) -> None:
        self.problems: list[Problem] = []
        self.without_effect: list[WithoutEffect] = []
        self.read = reader
        self.document = document

    def configuration(
        self, service: str, role: str | None, name_spaces: NameSpaceReader, *, has_ddsi: bool
    ) -> Configuration:
        """Read all settings, without the list of them: what is in vain is known afterwards."""
        entity_names = self.entity_names()
        filters = self.filters()
        return Configuration(
            path=self.document.path,
            service=service,
            domain=self.domain(role),
            name_spaces=name_spaces.read(filters),
            network=self.read.part(NetworkSettings),
            alignment=self.read.part(AlignmentSettings),
            wait_for_attachment=self.wait_for_attachment(),
            master_election_wait_s=self.read.number(f"{_SERVICE}/MasterElection/WaitTime"),
            persistent=self.persistent(),
            entity_names=entity_names,
            client_durability=self.client_durability(entity_names),
            watchdog=self.read.part(WatchdogSettings),
            tracing=self.tracing(),
            ddsi=self.ddsi(has_ddsi),
            durable_policies=self.durable_policies(),
            filters=filters,
            settings=(),
        )

    def domain(self, role: str | None) -> DomainSettings:
        """Read //OpenSplice/Domain; `role`, unless None, replaces that of the file."""
        read = self.read
        domain_id = read.whole("Domain/Id")
        node = read.node("Domain/Id")
        if domain_id > MAX_DOMAIN_ID and node and node.value:
            message = f"Id: {domain_id} is more than {MAX_DOMAIN_ID}, the last domain that DDSI has ports for"
            self.problems.append(
                problem(self.document, ProblemKind.OUT_OF_RANGE, message, node.value.span, node.path)
            )
        if role is not None:
            read.record("Domain/Role", role, None, SettingOrigin("role override"))
        own_role = read.text("Domain/Role") if role is None else role
        return read.part(
            DomainSettings,
            id=lambda: domain_id,
            role=lambda: own_role,
            services=lambda: tuple(
                read.part(ServiceEntry, node, origin=functools.partial(read.origin, node))
                for node in read.nodes("Domain/Service")
            ),
        )

    def wait_for_attachment(self) -> WaitForAttachment | None:
        """Read …/Network/WaitForAttachment, if the file has it."""
        node = self.read.node(f"{_SERVICE}/Network/WaitForAttachment")
        if node is None:
            return None
        names = node.named("ServiceName")
        return self.read.part(WaitForAttachment, service_names=lambda: self.read.texts(names))

    def persistent(self) -> PersistentSettings | None:
        """Read …/Persistent, if the file has it; without it nothing is stored."""
        node = self.read.node(f"{_SERVICE}/Persistent")
        if node is None:
            return None
        directory = node.find("StoreDirectory")
        if directory is not None and not directory.text:
            message = "StoreDirectory is empty, so nothing could be stored"
            self.problems.append(
                problem(self.document, ProblemKind.EMPTY_VALUE, message, directory.tag_span, directory.path)
            )
        return self.read.part(PersistentSettings)

    def entity_names(self) -> EntityNames:
        """Read …/EntityNames."""
        base = f"{_SERVICE}/EntityNames"
        return EntityNames(
            self.read.text(f"{base}/Publisher"),
            self.read.text(f"{base}/Subscriber"),
            self.read.text(f"{base}/Partition"),
        )

    def client_durability(self, above: EntityNames) -> EntityNames | None:
        """Read the names of client durability; its partition defaults to that of the service."""
        base = f"{_SERVICE}/ClientDurability"
        if self.read.node(base) is None or not self.read.flag(f"{base}@enabled"):
            return None
        names = f"{base}/EntityNames"
        partition = f"{names}/Partition"
        return EntityNames(
            self.read.text(f"{names}/Publisher"),
            self.read.text(f"{names}/Subscriber"),
            self.read.text(partition) if self.read.has(partition) else above.partition,
        )

    def tracing(self) -> TracingSettings:
        """Read …/Tracing; it is off without an OutputFile, and an empty one means the documented name."""
        path = f"{_SERVICE}/Tracing/OutputFile"
        return self.read.part(
            TracingSettings, output_file=lambda: self.read.text(path) if self.read.node(path) else None
        )

    def ddsi(self, is_configured: bool) -> DdsiSettings:
        """Read the parts of the DDSI2 service that determine Cyclone settings."""
        base = "DDSI2Service"
        peers = self.read.nodes(f"{base}/Discovery/Peers/Peer")
        peers += self.read.nodes(f"{base}/Discovery/Peers/Group/Peer")
        # Peers and groups of peers are two lists of elements, but one order in the file, which Cyclone DDS
        # gets.
        peers.sort(key=lambda node: node.span.start)
        found = self.read.part(
            DdsiSettings,
            is_configured=lambda: is_configured,
            peers=lambda: tuple(address.text for node in peers if (address := node.attribute("Address"))),
            max_sample_bytes=lambda: self._max_sample_bytes(f"{base}/Internal/MaxSampleSize"),
        )
        return msgspec.structs.replace(found, allow_multicast=found.allow_multicast.lower())

    def _max_sample_bytes(self, path: str) -> int:
        """Read the largest payload to keep; a value that is none is noted, and the default applies."""
        for node in self.read.nodes(path):
            reason = f"it is not a size from 1 B to {LARGEST_SAMPLE_BYTES} B, such as 300 MB"
            # A text that is no size is the same problem as a size out of range, noted below.
            with contextlib.suppress(ValueFault):
                if 0 < (given := parse_memory(node.text)) <= LARGEST_SAMPLE_BYTES:
                    return given
            reason += f"; samples of up to {MAX_SAMPLE_BYTES} bytes are kept"
            if node.value:
                self.without_effect.append(in_vain(node, reason, (node.path, node.value)))
        return MAX_SAMPLE_BYTES

    def durable_policies(self) -> tuple[DurablePolicy, ...]:
        """Read //OpenSplice/Domain/DurablePolicies."""
        return tuple(
            self.read.part(DurablePolicy, node, origin=functools.partial(self.read.origin, node))
            for node in self.read.nodes("Domain/DurablePolicies/Policy")
        )

    def filters(self) -> tuple[ContentFilterSettings, ...]:
        """Read //OpenSplice/Domain/Filters."""
        path = "Domain/Filters/Filter"
        found = []
        for node in self.read.nodes(path):
            content = self.read.text(f"{path}@content", node)
            self._check_condition(node, content)
            written = node.named("PartitionTopic")
            self.read.texts(written)
            sound = [child for child in written if self._is_sound(child)]
            topics = tuple(child.text for child in sound)
            made = ContentFilterSettings(content, topics, self.read.origin(node))
            found.append(made)
            given = node.attribute("content")
            if given and made.why_ignored:
                values = [(f"{path}@content", given.value)]
                values += [(child.path, child.value) for child in written if child.value]
                self.without_effect.append(
                    in_vain(given, made.why_ignored, *values, accepted=WITHOUT_WARNING)
                )
            else:
                self._note_shadowed(sound, [one for each in found[:-1] for one in each.elements])
        return tuple(found)

    def _note_shadowed(self, topics: list[XmlElement], earlier: list[Element]) -> None:
        """Note topics that an earlier filter covers: the first filter that matches a group applies."""
        for child in topics:
            partition, topic = Element.parse(child.text)
            is_shadowed = any(
                covers(one.partition, partition) and covers(one.topic, topic) for one in earlier
            )
            if child.value and is_shadowed:
                reason = "an earlier Filter applies to all of it"
                self.without_effect.append(in_vain(child, reason, (child.path, child.value)))

    def scheduling_in_vain(self, configuration: Configuration) -> None:
        """Note Scheduling elements that are impossible in an ordinary process of Linux."""
        places = {node.value.position: node for node in self.document.root.walk() if node.value}
        for _, asked, _, fault in schedules(configuration, ORDINARY):
            node = places.get(Position(asked.origin.line, asked.origin.column))
            if fault and node and node.value:
                self.without_effect.append(
                    in_vain(node, fault, (node.path, node.value), accepted=WITHOUT_WARNING)
                )

    def _check_condition(self, node: XmlElement, content: str) -> None:
        """Refuse a condition that cannot be parsed, at the place of the fault in the file."""
        written = node.attribute("content")
        try:
            if content.strip():
                Expression(content)
        except ExpressionFault as fault:
            assert written is not None
            place = _place_in(written.value, fault.column)
            message = f"cannot parse the condition of the Filter: {fault}"
            subject = f"{node.path}@content"
            self.problems.append(problem(self.document, ProblemKind.FILTER, message, place, subject))

    def _is_sound(self, child: XmlElement) -> bool:
        fault = ""
        try:
            Element.parse(child.text)
        except ValueError as error:
            fault = str(error)
        if not fault and "." not in child.text:  # without a dot it is a partition, and filters nothing
            fault = f"PartitionTopic {quoted(child.text)} names no topic; write PARTITION.TOPIC, such as *.T"
        if fault:
            span = child.value.span if child.value else child.tag_span
            self.problems.append(problem(self.document, ProblemKind.FILTER, fault, span, child.path))
        return not fault


def _place_in(value: Value, column: int) -> ByteRange:
    """Return the span from a column of a value to its end; the whole value if variables were expanded."""
    if value.uses:
        return value.span
    text = value.source.text(value.span)
    characters = [found.start() for found in _CHARACTER.finditer(text)]
    at = characters[column - 1] if column <= len(characters) else max(0, len(text) - 1)
    return ByteRange(
        value.span.start + len(text[:at].encode(value.source.encoding, "replace")), value.span.end
    )


WHY: Final = (
    "asks for security, but Cyclone DDS of a node is built without DDS Security and knows no profiles of"
    " OpenSplice, so a node cannot take part in a secured domain"
)
_NAMES: Final = ("Security", "DDSSecurity")
_OPEN: Final = ("", "null", "nullprofile")
"""Profiles and ciphers that protect nothing."""


def _security_problems(document: Document) -> Iterator[Problem]:
    """Find what asks for security in the domain and in its networking services that are not disabled."""
    enabled = _enabled_services(document)
    for section in document.root.children:
        find = _FINDERS.get(section.name)
        if find is None or not enabled.get(_name_of(section), True):
            continue
        for subject, span in find(section):
            message = f"{documented(subject)} {WHY}"
            yield problem(document, ProblemKind.REFUSED_SETTING, message, span, subject)


def _of_any_element(section: XmlElement) -> Iterator[Found]:
    """The domain and DDSI2 have no such elements, so each of them asks for something."""
    for child in section.children:
        if child.name in _NAMES:
            yield child.path, child.name_span


def _of_network(section: XmlElement) -> Iterator[Found]:
    """OpenSplice's own network has a switch."""
    for child in section.named("Security"):
        if _is(child, "enabled", "true"):
            yield child.path, child.name_span


def _of_ddsi2e(section: XmlElement) -> Iterator[Found]:
    """A profile counts where a network partition uses it, unless its cipher is null."""
    profiles = {}
    for child in section.children:
        if child.name == "DDSSecurity" or (
            child.name == "Security" and any(each.name != "SecurityProfile" for each in child.children)
        ):
            yield child.path, child.name_span
    for profile in section.find_all("Security/SecurityProfile"):
        if name := profile.attribute("Name"):
            profiles[name.text] = profile.attribute("Cipher")
    for partition in section.find_all("Partitioning/NetworkPartitions/NetworkPartition"):
        used = partition.attribute("SecurityProfile")
        if used is None or used.text.strip().lower() in _OPEN:
            continue
        cipher = profiles.get(used.text)
        if used.text not in profiles or (cipher and cipher.value.text.strip().lower() not in _OPEN):
            yield f"{partition.path}@SecurityProfile", used.name_span


def _is(element: XmlElement, name: str, value: str) -> bool:
    attribute = element.attribute(name)
    return attribute is not None and attribute.text.strip().lower() == value


_FINDERS: Final[Mapping[str, Callable[[XmlElement], Iterator[Found]]]] = {
    "Domain": _of_any_element,
    "DDSI2Service": _of_any_element,
    "DDSI2EService": _of_ddsi2e,
    "SNetworkService": _of_network,
}
