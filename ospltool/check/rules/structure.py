"""DUR02x: elements and attributes that the schema does not have, or has elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.config import Problem, ProblemKind
from ospltool.check import edits
from ospltool.check.registry import EVERYWHERE, NOWHERE, OPENSPLICE, OSPLTOOL, rule
from ospltool.check.views import NodeView
from ospltool.diagnostics.model import Finding, Severity

_MEANT = re.compile(r"did you mean (\w+)\?")

REMOVED = {
    "//OpenSplice/DurabilityService/Persistent/MemoryMappedFileStore": (
        "the memory-mapped store was removed from OpenSplice"
    ),
    "//OpenSplice/DurabilityService/Persistent/SmpCount": (
        "it was removed from OpenSplice and has no successor"
    ),
    "//OpenSplice/Domain/Watchdog": (
        "the real service reads Watchdog[@deadlockDetection] here, but the validator refuses it before"
    ),
}
"""Elements that OpenSplice once had, or that one part of it reads and another refuses."""
MOVED = {
    f"//OpenSplice/{service}/{old}": new
    for service in ("DDSI2Service", "DDSI2EService")
    for old, new in {
        "Internal/MaxMessageSize": "General/MaxMessageSize",
        "Internal/FragmentSize": "General/FragmentSize",
        "Internal/AggressiveKeepLast1Whc": "Internal/AggressiveKeepLastWhc",
        "Unsupported": "Internal",
    }.items()
}
"""Settings whose old place or name the networking service still reads, and the new one."""


def _suggestion(problem: Problem) -> str:
    """The name that was meant; empty if none is known."""
    found = _MEANT.search(problem.hint)
    return found[1] if found else ""


@rule("DUR020", "unknown-element", Severity.ERROR, blocks=OPENSPLICE)
def unknown_element(node: NodeView) -> Iterator[Finding]:
    """An element is not in the schema at this place.

    Why: A misspelt or misplaced setting has no effect, and its author believes that it has one.

    Example:
        <DurabilityService name="durability"><Presistent>...</Presistent></DurabilityService>
    Use instead:
        <DurabilityService name="durability"><Persistent>...</Persistent></DurabilityService>
    OpenSplice: Its validator compares names with case, reports `For element '...' the child element '...'
        is not allowed` without a line, and the domain does not start. ospltool nodes refuse it below
        DurabilityService, start with a WARNING elsewhere, and leave other services alone.
    Reference: //OpenSplice
    """
    for problem in node.problems(ProblemKind.UNKNOWN_ELEMENT):
        if problem.subject in REMOVED or problem.subject in MOVED:
            continue
        element = node.node_at(problem)
        name = _suggestion(problem)
        fix = edits.rename_element(node, element, name) if element and name else None
        yield node.from_problem(problem, fix=fix)


@rule("DUR021", "unknown-attribute", Severity.ERROR, blocks=OPENSPLICE)
def unknown_attribute(node: NodeView) -> Iterator[Finding]:
    """An attribute is not in the schema at this place.

    Why: A misspelt setting has no effect, and its author believes that it has one.

    Example:
        <Policy namespace="*" ...>
    Use instead:
        <Policy nameSpace="*" ...>
    OpenSplice: `Element '...': attribute '...' not allowed`, and the domain does not start.
    Reference: //OpenSplice
    """
    for problem in node.problems(ProblemKind.UNKNOWN_ATTRIBUTE):
        attribute = node.attribute_at(problem)
        name = _suggestion(problem)
        owner = next((each for each in node.elements if attribute in each.attributes), None)
        is_free = owner is not None and owner.attribute(name) is None
        fix = None
        if attribute and name and is_free:
            fix = edits.rename_attribute(node, attribute, name)
        yield node.from_problem(problem, fix=fix)


@rule("DUR026", "removed-setting", Severity.ERROR, blocks=OPENSPLICE)
def removed_setting(node: NodeView) -> Iterator[Finding]:
    """An element belongs to another version of OpenSplice, or one part of it reads what another refuses.

    Why: It was right once or stands in some documentation, so it does not look wrong.

    Example:
        <Persistent><StoreDirectory>/s</StoreDirectory><SmpCount>4</SmpCount></Persistent>
    Use instead:
        <Persistent><StoreDirectory>/s</StoreDirectory></Persistent>
    OpenSplice: The validator of 6.9 refuses the file. DDSI2 itself reads settings in the place that they
        once had, such as Internal/MaxMessageSize for General/MaxMessageSize, with a warning.
    Reference: //OpenSplice/DurabilityService/Persistent
    """
    for problem in node.problems(ProblemKind.UNKNOWN_ELEMENT):
        why, moved = REMOVED.get(problem.subject), MOVED.get(problem.subject)
        element = node.node_at(problem)
        if why and element:
            fix = edits.remove_element(node, element)
            yield node.from_problem(problem, message=f"<{element.name}>: {why}", fix=fix)
        elif moved and element:
            message = (
                f"<{element.name}> has moved: DDSI2 reads it as {moved}, but the validator refuses it before"
            )
            yield node.from_problem(problem, message=message)


@rule("DUR027", "no-durability-service", Severity.WARNING, targets=OSPLTOOL, blocks=OSPLTOOL)
def no_durability_service(node: NodeView) -> Iterator[Finding]:
    """A file has no DurabilityService, so that no ospltool node can run with it.

    Why: Durable data is kept by other nodes only, and lost when none of them is connected.

    Example:
        <OpenSplice><Domain>...</Domain><DDSI2Service name="ddsi2"/></OpenSplice>
    Use instead:
        A DurabilityService and the Domain/Service of its name, or leave the file out of the deployment.
    OpenSplice: Runs without a durability service when the domain lists none.
    Reference: //OpenSplice/DurabilityService
    """
    if not node.has_durability:
        yield node.found(node.document.root.name_span, "the file has no DurabilityService")


@rule("DUR028", "wrong-service-name", Severity.ERROR, blocks=EVERYWHERE)
def wrong_service_name(node: NodeView) -> Iterator[Finding]:
    """No DurabilityService has the name of the service to run, or two have it.

    Why: The name says which configuration applies to which Domain/Service.

    Example:
        <DurabilityService name="dur"> with Domain/Service name="durability"
    Use instead:
        <DurabilityService name="durability">
    OpenSplice: `No DurabilityService configurations found for serviceName '...'` ends the service; of two
        with one name the last is used with a warning, while the validator allows one DurabilityService
        only.
    Reference: //OpenSplice/DurabilityService[@name]
    """
    for problem in node.interpreted.problems:
        if problem.kind is ProblemKind.SERVICE and node.has_durability:
            wanted = node.configuration.service
            listed = {entry.name for entry in node.configuration.domain.services}
            names = [
                each.text
                for n in node.document.root.named("DurabilityService")
                if (each := n.attribute("name"))
            ]
            fits_domain = len(names) == 1 and names[0] in listed
            if fits_domain and wanted not in listed:
                hint = f"OpenSplice runs it as '{names[0]}'; an ospltool node needs to be told that name"
                yield node.from_problem(problem, advice=hint, blocks=NOWHERE, severity=Severity.WARNING)
            else:
                yield node.from_problem(problem)
