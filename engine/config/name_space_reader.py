"""Name-spaces and policies of one file, and their problems (guide 5.2.2, 5.2.3)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import msgspec

from engine.config.fates import WITHOUT_WARNING, WithoutEffect, in_vain
from engine.config.problems import Problem, ProblemKind, quoted
from engine.config.sections import SettingsReader
from engine.config.settings import ContentFilterSettings, NameSpaceSettings, SettingOrigin
from engine.config.tree import Document, XmlElement
from engine.config.validate import problem
from engine.core.name_spaces import (
    Alignee,
    DefinitionConflict,
    Durability,
    Element,
    Group,
    MergeRule,
    MergeType,
    NameSpace,
    Policy,
    compare,
    find_policy,
    overlap,
)

_BASE = "DurabilityService/NameSpaces"
BUILT_IN_PARTITION = "__BUILT-IN PARTITION__"
"""The partition of built-in topics, which an ospltool node leaves to Cyclone DDS."""


class _Defined(msgspec.Struct, frozen=True):
    """A name-space with the element that defines it, and its private policy in the deprecated notation."""

    name_space: NameSpace
    node: XmlElement
    private: Policy | None


class NameSpaceReader:
    """Reads //OpenSplice/DurabilityService/NameSpaces; `problems` prevent a node from starting.

    `without_effect` has settings that others make ineffective.
    """

    def __init__(self, document: Document, reader: SettingsReader) -> None:
        self.problems: list[Problem] = []
        self.without_effect: list[WithoutEffect] = []
        self._document = document
        self._reader = reader

    def read(self, filters: Iterable[ContentFilterSettings] = ()) -> NameSpaceSettings:
        """Read the name-spaces and policies; unusable parts become problems.

        Args:
            filters: the content filters of the node, which lower its masterPriority.
        """
        nodes = self._reader.nodes(f"{_BASE}/NameSpace")
        defined = [self._name_space(node, len(nodes) - 1 - at) for at, node in enumerate(nodes)]
        policies = [(self._policy(node), node) for node in self._reader.nodes(f"{_BASE}/Policy")]
        private = [(each.private, each.node) for each in defined if each.private]
        policies = private + policies
        own = [each for each in defined if not _is_builtin(each.name_space)]
        self._check_names(own)
        self._check_overlap(own)
        self._check_policies(own, tuple(policy for policy, _ in policies))
        self._note_filtered(own, policies, tuple(element for one in filters for element in one.elements))
        return NameSpaceSettings(
            tuple(each.name_space for each in own),
            tuple(self._origin(each.node) for each in own),
            tuple(policy for policy, _ in policies),
            tuple(each.name_space for each in defined if _is_builtin(each.name_space)),
        )

    def _origin(self, node: XmlElement) -> SettingOrigin:
        return self._reader.origin(node)

    def _found(
        self,
        kind: ProblemKind,
        message: str,
        node: XmlElement,
        hint: str = "",
        other: XmlElement | None = None,
    ) -> None:
        place = other.position if other else None
        self.problems.append(problem(self._document, kind, message, node.tag_span, node.path, hint, place))

    def _name_space(self, node: XmlElement, following: int) -> _Defined:
        """Read one NameSpace; without a name it gets OpenSplice's, with the number of those that follow."""
        path = f"{_BASE}/NameSpace"
        given = node.attribute("name")
        deprecated = ("durabilityKind", "alignmentKind")
        is_deprecated = given is None or any(node.attribute(name) for name in deprecated)
        name = given.text if given else f"NoName{following}"
        origin = self._origin(node)
        self._reader.record(f"{path}@name", name, given.value.raw if given else None, origin)
        elements = [element for child in node.children if (element := self._element(child))]
        if not elements:
            message = f"name-space '{name}' has no elements"
            self._found(
                ProblemKind.EMPTY_NAME_SPACE, message, node, "give it a Partition or a PartitionTopic"
            )
        name_space = NameSpace(name, tuple(sorted(set(elements))))
        return _Defined(name_space, node, self._private_policy(node, name) if is_deprecated else None)

    def _element(self, child: XmlElement) -> Element | None:
        if child.name not in ("Partition", "PartitionTopic"):
            return None
        self._reader.texts([child])
        if child.name == "Partition":
            return Element(child.text, "*")
        try:
            return Element.parse(child.text)
        except ValueError as error:
            span = child.value.span if child.value else child.tag_span
            self.problems.append(
                problem(self._document, ProblemKind.BLANK_TOPIC, str(error), span, child.path)
            )
            return None

    def _private_policy(self, node: XmlElement, name: str) -> Policy:
        """Read the policy of a NameSpace in the deprecated notation, with the defaults of the schema."""
        path = f"{_BASE}/NameSpace"
        alignment = self._reader.text(f"{path}@alignmentKind", node)
        is_aligner = alignment == "Initial_And_Aligner"
        return Policy(
            name_space=name,
            durability=Durability(self._reader.text(f"{path}@durabilityKind", node)),
            aligner=is_aligner,
            alignee=Alignee.INITIAL if is_aligner else Alignee(alignment),
        )

    def _policy(self, node: XmlElement) -> Policy:
        path = f"{_BASE}/Policy"
        read = self._reader
        policy = Policy(
            name_space=read.text(f"{path}@nameSpace", node),
            durability=Durability(read.text(f"{path}@durability", node)),
            aligner=read.flag(f"{path}@aligner", node),
            alignee=Alignee(read.text(f"{path}@alignee", node)),
            delayed_alignment=self._given_flag(node, "delayedAlignment"),
            equality_check=self._given_flag(node, "equalityCheck"),
            master_priority=read.whole(f"{path}@masterPriority", node),
            merges=tuple(
                MergeRule(
                    MergeType(read.text(f"{path}/Merge@type", merge)), read.text(f"{path}/Merge@scope", merge)
                )
                for merge in node.named("Merge")
            ),
        )
        if policy.may_be_master and not policy.may_lead_others:
            reason = f"a node with alignee {policy.alignee} is never master of others"
            self._in_vain(node, "masterPriority", reason)
        if policy.equality_check is False and MergeType.REPLACE not in {rule.type for rule in policy.merges}:
            reason = "false only changes what readers see of merge type Replace, which no Merge here has"
            self._in_vain(node, "equalityCheck", reason, WITHOUT_WARNING)
        return policy

    def _given_flag(self, node: XmlElement, name: str) -> bool | None:
        """Read a boolean of which it matters whether it is given; None if it is not."""
        path = f"{_BASE}/Policy@{name}"
        if node.attribute(name):
            return self._reader.flag(path, node)
        self._reader.record(path, "not given", None, SettingOrigin())
        return None

    def _in_vain(self, node: XmlElement, name: str, reason: str, accepted: str = "") -> None:
        given = node.attribute(name)
        if given:
            path = f"{_BASE}/Policy@{name}"
            self.without_effect.append(in_vain(given, reason, (path, given.value), accepted=accepted))

    def _note_filtered(
        self,
        defined: list[_Defined],
        policies: list[tuple[Policy, XmlElement]],
        filtered: tuple[Element, ...],
    ) -> None:
        """Note a masterPriority that a content filter lowers; the node reports it itself at its start."""
        partial = [each for each in defined if overlap(each.name_space, NameSpace("", filtered))]
        every = tuple(policy for policy, _ in policies) if partial else ()
        found = [(find_policy(every, each.name_space.name), each) for each in partial]
        for policy, node in policies:
            lowered = [quoted(each.name_space.name) for chosen, each in found if chosen is policy]
            priority = policy.with_filter().master_priority
            if lowered and policy.may_lead_others and priority < policy.master_priority:
                names = ", ".join(lowered)
                reason = f"with a content filter the node ranks with {priority} in name-space {names}"
                self._in_vain(node, "masterPriority", reason, WITHOUT_WARNING)

    def _check_names(self, defined: list[_Defined]) -> None:
        first: dict[str, _Defined] = {}
        for each in defined:
            earlier = first.setdefault(each.name_space.name, each)
            if earlier is not each:
                message = f"name-space '{each.name_space.name}' is defined a second time"
                hint = f"the first definition is in line {earlier.node.line}"
                self._found(ProblemKind.DUPLICATE_NAME, message, each.node, hint, earlier.node)

    def _check_overlap(self, defined: list[_Defined]) -> None:
        """Refuse overlapping name-spaces: no two nodes can agree on them, not even with equal files."""
        for left, right in itertools.combinations(defined, 2):
            conflict = compare(left.name_space, right.name_space)
            if conflict and left.name_space.name != right.name_space.name:
                hint = f"the other one is in line {left.node.line}"
                self._found(ProblemKind.OVERLAP, conflict_text(conflict), right.node, hint, left.node)

    def _check_policies(self, defined: list[_Defined], policies: tuple[Policy, ...]) -> None:
        for each in defined:
            if find_policy(policies, each.name_space.name) is None:
                message = f"no Policy matches name-space '{each.name_space.name}'"
                hint = "a policy must say which nodes keep and align its data"
                self._found(ProblemKind.NO_POLICY, message, each.node, hint)


def conflict_text(conflict: DefinitionConflict) -> str:
    """Describe a conflict, with a group that is in both definitions.

    `x` stands for any topic or partition.
    """
    ours, theirs, witness = conflict.ours, conflict.theirs, conflict.witness
    both = f"name-space '{ours.name}' = {ours} and name-space '{theirs.name}' = {theirs}"
    if ours.name == theirs.name or witness is None:
        return f"{both}: the same name is defined differently"
    topic = witness.topic or "x"
    anywhere = Group("x", topic)
    is_free = not witness.partition and ours.contains(anywhere) and theirs.contains(anywhere)
    return f"{both} overlap: both contain '{'x' if is_free else witness.partition}.{topic}'"


def _is_builtin(name_space: NameSpace) -> bool:
    return bool(name_space.elements) and all(
        element.partition == BUILT_IN_PARTITION for element in name_space.elements
    )
