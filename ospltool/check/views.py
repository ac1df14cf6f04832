"""The views that rules take: a file, a node with its interpreted file, a deployment."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from engine.config import (
    Attribute,
    ByteRange,
    Configuration,
    Document,
    Problem,
    ProblemKind,
    SourceFile,
    Value,
    XmlElement,
)
from engine.config.loader import NETWORKS, Interpreted
from engine.config.persistence import InterpretedServices
from engine.config.schema import documented
from engine.core import expressions
from engine.core.name_spaces import NameSpace, Policy
from ospltool.diagnostics.model import Finding, Fix, Place, Severity, Target

Thing: TypeAlias = XmlElement | Attribute | Value | ByteRange


@dataclasses.dataclass(frozen=True, slots=True)
class FileView:
    """One file as it was read: of a node, of persistence services, of Cyclone DDS, or of QoS profiles."""

    path: str
    """Path as the user named it."""
    source: SourceFile | None
    """Its text with the positions of lines; None if it could not be read."""
    problems: tuple[Problem, ...]
    """What the reader found wrong, in the order of the file."""
    node_name: str = ""
    """Name of the node that it configures; empty if it configures none or cannot be read."""
    persistence: InterpretedServices | None = None
    """Settings, if the file configures persistence services."""
    cyclone: Document | None = None
    """Elements, if the file has settings of Cyclone DDS itself (CYCLONEDDS_URI)."""
    is_file: bool = True
    """False for text of CYCLONEDDS_URI, which is in no file."""
    profiles: Document | None = None
    """Elements, if the file has QoS profiles."""
    faults: tuple[Finding, ...] = ()
    """What is wrong in settings of Cyclone DDS or in QoS profiles; empty for any other file."""

    @property
    def is_known(self) -> bool:
        """Whether it is a file of a kind that has rules of its own."""
        return any(each is not None for each in (self.persistence, self.cyclone, self.profiles))

    def place(self, problem: Problem) -> Place:
        """Return the place of a problem; without the file's content if it could not be read."""
        if self.source and problem.span:
            return Place.from_span(self.source, problem.span)
        column = problem.column
        return Place(self.path, problem.line, column, problem.line, column, None, self.source)


class NodeView:
    """A node of a deployment, or a single file, with all that rules need.

    The name is that of the node; empty for a single file. `intended_domain` is that which the fleet file
    gives it, None if it gives none.
    """

    def __init__(
        self,
        name: str,
        document: Document,
        interpreted: Interpreted,
        environ: Mapping[str, str],
        intended_domain: int | None = None,
    ) -> None:
        self.name = name
        self.document = document
        self.interpreted = interpreted
        self.environ = environ
        self.intended_domain = intended_domain
        self.trial: tuple[Finding, ...] = ()
        """What the installed Cyclone DDS says of the settings that it derives; empty without a trial."""

    @property
    def path(self) -> str:
        """The file."""
        return self.document.path

    @property
    def shown_name(self) -> str:
        """The name of the node for messages: its name, or its file."""
        return self.name or self.path

    @property
    def configuration(self) -> Configuration:
        """The typed settings, with defaults where the file is wrong."""
        return self.interpreted.configuration

    @property
    def role(self) -> str:
        """The role that fellows see."""
        return self.configuration.domain.role

    @property
    def source(self) -> SourceFile:
        """The content of the file."""
        return self.document.source

    @functools.cached_property
    def elements(self) -> list[XmlElement]:
        """Every element of the file, in document order."""
        return list(self.document.root.walk())

    @functools.cached_property
    def values(self) -> list[Value]:
        """Every attribute value and text, in document order."""
        return list(self.document.values())

    @functools.cached_property
    def domain(self) -> XmlElement | None:
        """The Domain element."""
        return self.document.root.find("Domain")

    @functools.cached_property
    def service(self) -> XmlElement | None:
        """The DurabilityService element that the node uses."""
        nodes = self.document.root.named("DurabilityService")
        name = self.configuration.service
        for node in nodes:
            given = node.attribute("name")
            if given and given.text == name:
                return node
        return nodes[0] if nodes else None

    @functools.cached_property
    def has_durability(self) -> bool:
        """Whether the file configures a durability service."""
        return self.service is not None

    @functools.cached_property
    def networks(self) -> list[XmlElement]:
        """The services by which it reaches other machines.

        A node uses a DDSI2 service that the Domain does not disable; OpenSplice starts those that it lists.
        """
        listed = {entry.name: entry.enabled for entry in self.configuration.domain.services}
        found = []
        for each in self.document.root.children:
            name = each.attribute("name")
            is_ddsi = each.name in ("DDSI2Service", "DDSI2EService")
            if each.name in NETWORKS and listed.get(name.text if name else "", is_ddsi):
                found.append(each)
        return found

    def setting(self, path: str) -> XmlElement | None:
        """The first element at a path below DurabilityService."""
        return self.service.find(path) if self.service else None

    def domain_setting(self, path: str) -> XmlElement | None:
        """The first element at a path below Domain."""
        return self.domain.find(path) if self.domain else None

    @functools.cached_property
    def name_space_nodes(self) -> list[XmlElement]:
        """The NameSpace elements, in document order."""
        return self.service.find_all("NameSpaces/NameSpace") if self.service else []

    @functools.cached_property
    def policy_nodes(self) -> list[XmlElement]:
        """The Policy elements, in document order."""
        return self.service.find_all("NameSpaces/Policy") if self.service else []

    @functools.cached_property
    def policies(self) -> list[tuple[Policy, XmlElement]]:
        """The policies of the current notation with their elements, in document order."""
        policies = self.configuration.name_spaces.policies
        written = policies[len(policies) - len(self.policy_nodes) :]
        return list(zip(written, self.policy_nodes, strict=True))

    @functools.cached_property
    def deprecated_name_spaces(self) -> list[XmlElement]:
        """NameSpace elements in the notation that carries its own policy."""
        return [
            node
            for node in self.name_space_nodes
            if not node.attribute("name")
            or node.attribute("durabilityKind")
            or node.attribute("alignmentKind")
        ]

    @functools.cached_property
    def definitions(self) -> list[Definition]:
        """The name-spaces with the policy that applies to each, without those of built-in topics."""
        name_spaces = self.configuration.name_spaces
        at = {(origin.line, origin.column): each for each, origin in
              zip(name_spaces.name_spaces, name_spaces.name_space_origins, strict=True)}  # fmt: skip
        by_policy = {id(policy): node for policy, node in self.policies}
        found = []
        for node in self.name_space_nodes:
            name_space = at.get((node.line, node.column))
            if name_space is None:
                continue
            policy = next(
                (p for p in name_spaces.policies if expressions.matches(p.name_space, name_space.name)), None
            )
            policy_node = by_policy.get(id(policy), node) if policy else None
            found.append(Definition(self, name_space, node, policy, policy_node))
        return found

    def release(self) -> None:
        """Drop the definitions, which refer to this view, so that memory is freed at once."""
        self.__dict__.pop("definitions", None)

    def definition(self, name: str) -> Definition | None:
        """The definition of a name-space."""
        return next((each for each in self.definitions if each.name_space.name == name), None)

    def place(self, thing: Thing, label: str = "") -> Place:
        """Return the place of the value or start tag of an element, of an attribute, or of a value."""
        if isinstance(thing, XmlElement):
            is_leaf = thing.value is not None and not thing.children
            span = thing.value.span if thing.value and is_leaf else thing.tag_span
        elif isinstance(thing, ByteRange):
            span = thing
        else:
            span = thing.span
        return Place.from_span(self.source, span, label)

    def found(
        self,
        thing: Thing,
        message: str,
        *,
        advice: str = "",
        related: tuple[Place, ...] = (),
        subject: str = "",
        severity: Severity | None = None,
        blocks: frozenset[Target] | None = None,
        fix: Fix | None = None,
    ) -> Finding:
        """Make a finding at a place of this node's file.

        Args:
            thing: element, attribute, value or range to look at first.
            message: one sentence about this case.
            advice: remedy; empty without one.
            related: further places.
            subject: documentation path of the setting; by default that of `thing`, unless that is a range.
            severity: replaces that of the rule; None keeps it.
            blocks: replaces the services that refuse to start; None keeps those of the rule.
            fix: repair; None if there is none.
        """
        if not subject and not isinstance(thing, ByteRange):
            subject = thing.path
        nodes = (self.name,) if self.name else ()
        shown = documented(subject) if subject and not subject.startswith("//") else subject
        return Finding(message, self.place(thing), related, advice, shown, nodes, severity, blocks, fix)

    def problems(self, *kinds: ProblemKind) -> Iterator[Problem]:
        """Return the problems of these kinds that the comparison with the schema found."""
        return (problem for problem in self.interpreted.schema_problems if problem.kind in kinds)

    def from_problem(
        self,
        problem: Problem,
        *,
        message: str = "",
        advice: str = "",
        blocks: frozenset[Target] = frozenset({Target.OPENSPLICE}),
        severity: Severity | None = None,
        fix: Fix | None = None,
    ) -> Finding:
        """Make a finding of a problem of the loader; `blocks` gets ospltool if its nodes refuse to start.

        The problem's own message and advice are shown unless others are given.
        """
        assert problem.span is not None, "problems of a document have a range"
        related: tuple[Place, ...] = ()
        if problem.other:
            line, column = problem.other
            related = (Place(self.path, line, column, line, column + 1, None, self.source, "the first one"),)
        if problem in self.interpreted.problems:
            blocks |= {Target.OSPLTOOL}
        text = "; ".join(part for part in (problem.hint, advice) if part)
        return Finding(
            message or problem.message,
            self.place(problem.span),
            related,
            text,
            problem.subject,
            (self.name,) if self.name else (),
            severity,
            blocks,
            fix,
        )

    @functools.cached_property
    def _by_span(self) -> dict[ByteRange, XmlElement | Attribute | Value]:
        found: dict[ByteRange, XmlElement | Attribute | Value] = {}
        for node in self.elements:
            found[node.name_span] = node
            if node.value:
                found[node.value.span] = node.value
            for attribute in node.attributes:
                found[attribute.name_span] = attribute
                found[attribute.value.span] = attribute.value
        return found

    def node_at(self, problem: Problem) -> XmlElement | None:
        """The element whose name a problem underlines."""
        found = self._by_span.get(problem.span) if problem.span else None
        return found if isinstance(found, XmlElement) else None

    def attribute_at(self, problem: Problem) -> Attribute | None:
        """The attribute whose name a problem underlines."""
        found = self._by_span.get(problem.span) if problem.span else None
        return found if isinstance(found, Attribute) else None

    def value_at(self, problem: Problem) -> Value | None:
        """The value that a problem underlines."""
        found = self._by_span.get(problem.span) if problem.span else None
        return found if isinstance(found, Value) else None


@dataclasses.dataclass(frozen=True, slots=True)
class Definition:
    """A name-space of a node; `policy_node` is the NameSpace itself in the deprecated notation."""

    view: NodeView
    name_space: NameSpace
    node: XmlElement
    policy: Policy | None
    policy_node: XmlElement | None

    def place(self, label: str = "") -> Place:
        """The place of its definition."""
        return self.view.place(self.node, label)

    def policy_place(self, label: str = "") -> Place:
        """The place of its policy."""
        return self.view.place(self.policy_node or self.node, label)

    def attribute(self, name: str) -> Attribute | None:
        """An attribute of its policy."""
        return self.policy_node.attribute(name) if self.policy_node else None


@dataclasses.dataclass(frozen=True)
class FleetView:
    """All readable nodes of a deployment; `path` is the fleet file, or empty."""

    nodes: tuple[NodeView, ...]
    path: str = ""

    def durable(self) -> list[NodeView]:
        """The nodes that run the durability service."""
        return [node for node in self.nodes if node.has_durability]

    def pairs(self) -> Iterator[tuple[NodeView, NodeView]]:
        """Yield each pair of nodes once."""
        nodes = self.durable()
        for at, left in enumerate(nodes):
            for right in nodes[at + 1 :]:
                yield left, right

    @functools.cached_property
    def by_name_space(self) -> dict[str, list[Definition]]:
        """The definitions of every name-space, by name in order of appearance."""
        found: dict[str, list[Definition]] = {}
        for node in self.durable():
            for definition in node.definitions:
                found.setdefault(definition.name_space.name, []).append(definition)
        return found
