"""Findings of the check's rules, run on what the nodes of a live system advertise of their configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from engine.core.name_spaces import Element
from engine.runtime.monitor import NameSpaceView, NodeSnapshot
from ospltool.check.inputs import DeploymentInput, NodeInput
from ospltool.check.runner import Choice, examine, run
from ospltool.diagnostics.model import Finding, Target
from ospltool.views import text

RULES: Final = frozenset(
    f"DUR{number}"
    for number in (
        *(201, 202, 203, 208, 209, 210, 230, 231, 232, 233),
        *(320, 321, 322, 323, 324, 325, 328, 330),
        *(401, 402, 403, 404, 405, 406, 420, 421, 422, 423, 424, 425),
    )
)
"""The rules about name-spaces, masters and merging: what they look at is advertised, nothing else is."""

Advertised = tuple[tuple[object, ...], ...]


def advertised(snapshots: Iterable[NodeSnapshot]) -> Advertised:
    """Return the input of the findings; equal inputs have equal findings."""
    return tuple(
        (
            one.name,
            one.role,
            one.domain_id,
            tuple(
                (s.name, s.elements, s.aligner, s.alignee, s.durability, s.master_priority, s.merges)
                for s in one.name_spaces
            ),
        )
        for one in snapshots
    )


def findings_of(snapshots: Iterable[NodeSnapshot]) -> tuple[Finding, ...]:
    """Return the findings about the advertised system. This takes long for large systems.

    Nodes that advertise equal settings share a document, which is written and read once.
    """
    nodes = []
    paths: dict[tuple[object, ...], str] = {}
    contents: dict[str, bytes] = {}
    snapshots = list(snapshots)
    for snapshot, (_, *settings) in zip(snapshots, advertised(snapshots), strict=True):
        path = paths.setdefault(tuple(settings), f"advertised/{len(paths) + 1}")
        if path not in contents:
            contents[path] = document(snapshot)
        name = text.visible(snapshot.name)
        nodes.append(NodeInput(path, {}, name, role=text.visible(snapshot.role)))
    examined = examine(DeploymentInput(tuple(nodes), is_fleet=True), contents)
    report = run([examined], Choice(codes=RULES, targets=frozenset({Target.OSPLTOOL})))
    # The gravest first: the screen has no places in files to sort by.
    return tuple(sorted(report.diagnostics, key=lambda each: (each.severity, each.code, each.message)))


def document(snapshot: NodeSnapshot) -> bytes:
    """Return a configuration with the settings that the node advertises, and no others."""
    lines = ["<OpenSplice><Domain>"]
    lines.append(f"<Id>{snapshot.domain_id}</Id>")
    lines.append(f"<Role>{_text(snapshot.role)}</Role>")
    lines.append('<Service name="durability"><Command>durability</Command></Service></Domain>')
    lines.append('<DurabilityService name="durability"><NameSpaces>')
    lines += map(_name_space, snapshot.name_spaces)
    lines += map(_policy, snapshot.name_spaces)
    lines.append("</NameSpaces></DurabilityService></OpenSplice>")
    return "\n".join(lines).encode()


def _name_space(space: NameSpaceView) -> str:
    elements = []
    for each in space.elements:
        element = Element.parse(each)
        if element.topic == "*":
            elements.append(f"<Partition>{_text(element.partition)}</Partition>")
        else:
            elements.append(f"<PartitionTopic>{_text(each)}</PartitionTopic>")
    return f"<NameSpace name={_value(space.name)}>{''.join(elements)}</NameSpace>"


def _policy(space: NameSpaceView) -> str:
    merges = []
    for each in space.merges:
        kind, _, scope = each.partition(" ")
        merges.append(f"<Merge type={_value(kind)} scope={_value(scope or '*')}/>")
    aligner = "true" if space.aligner else "false"
    attributes = {
        "nameSpace": space.name,
        "durability": space.durability,
        "aligner": aligner,
        "alignee": space.alignee,
        "masterPriority": str(space.master_priority),
    }
    told = " ".join(f"{name}={_value(value)}" for name, value in attributes.items())
    return f"<Policy {told}>{''.join(merges)}</Policy>"


def _text(value: str) -> str:
    """Return text for an element, with escapes for characters outside XML and for variables."""
    return escape(text.visible(value).replace("${", "$ {"))


def _value(value: str) -> str:
    return quoteattr(text.visible(value).replace("${", "$ {"))
