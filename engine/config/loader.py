"""Loading the typed configuration of one node from a URI."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from engine.config.builder import SettingsBuilder
from engine.config.fates import Fate, SettingFate, WithoutEffect, marked, without_effect
from engine.config.name_space_reader import NameSpaceReader
from engine.config.problems import ConfigError, Problem, ProblemKind, quoted
from engine.config.reader import read_document
from engine.config.schema import documented, engine_schema
from engine.config.sections import SettingsReader
from engine.config.security import security_problems
from engine.config.settings import Configuration, Ignored, SettingOrigin
from engine.config.tree import Document, XmlElement
from engine.config.validate import STRANGE, as_settings, check_bounds, problem, schema_problems, strangers
from engine.config.values import did_you_mean
from engine.core.lazy_dataclass import lazy_dataclass

_SERVICE = "DurabilityService"


@lazy_dataclass(frozen=True, slots=True)
class Interpreted:
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
    builder = SettingsBuilder(reader, document)
    entity_names = builder.entity_names()
    filters = builder.filters()
    configuration = Configuration(
        path=document.path,
        service=service,
        domain=builder.domain(role),
        name_spaces=name_spaces.read(filters),
        network=builder.network(),
        alignment=builder.alignment(),
        wait_for_attachment=builder.wait_for_attachment(),
        master_election_wait_s=reader.number(f"{_SERVICE}/MasterElection/WaitTime"),
        persistent=builder.persistent(),
        entity_names=entity_names,
        client_durability=builder.client_durability(entity_names),
        watchdog=builder.watchdog(),
        tracing=builder.tracing(),
        ddsi=builder.ddsi(ddsi is not None),
        durable_policies=builder.durable_policies(),
        filters=filters,
        settings=(),
    )
    problems += builder.problems + name_spaces.problems
    found_without = without_effect(sections["Domain"], sections[_SERVICE], service)
    problems += [_refusal(document, each) for each in found_without if each.entry.fate is Fate.REFUSED]
    ignored = [each for each in found_without if each.entry.fate is Fate.NOT_NEEDED]
    insecure = tuple(security_problems(document))
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
    configuration = dataclasses.replace(
        configuration,
        settings=(*marked(reader.settings, ignored), *as_settings(document, unknown)),
        ignored=(*without, *unknown),
    )
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


_NETWORKS: Final = {
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
        WithoutEffect(SettingFate(node.path, Fate.NOT_NEEDED, reason=_NETWORKS[node.name]), node, ())
        for node in document.root.children
        if node.name in _NETWORKS and node is not used and enabled.get(_name_of(node), False)
    ]


def _enabled_services(document: Document) -> dict[str, bool]:
    """Return the services that the domain lists, and whether it enables them."""
    found: dict[str, bool] = {}
    for entry in document.root.find_all("Domain/Service"):
        enabled = entry.attribute("enabled")
        is_enabled = enabled is None or enabled.text.strip().lower() != "false"
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
