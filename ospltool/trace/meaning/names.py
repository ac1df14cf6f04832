"""Names of nodes by address, and the settings that nodes report about themselves.

OpenSplice draws a random address at every start, so that a node has one for each run. An ospltool node keeps
its id, and its fellows call it by the Name of its configuration, which is its address here.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Final

from engine.core.name_spaces import Element, Group, NameSpace
from ospltool.trace.reading.record import RecordKind, TraceRecord, is_whole, number

NOBODY: Final = "0"
NAME_SETTING: Final = "//OpenSplice/Domain/Name"
PRIORITY_SETTING: Final = "//OpenSplice/DurabilityService/NameSpaces/Policy[@masterPriority]"
_NAME_SPACE: Final = re.compile(
    r"^- //OpenSplice/DurabilityService/NameSpaces/NameSpace(\S+): (.*)$", re.MULTILINE
)
_ORIGIN: Final = re.compile(r" \((?:default|[^()]*:\d+:\d+)\)$")
"""The origin of a setting, which ospltool prints."""

_SETTING: Final = re.compile(r"^( *)- ([^:]+?) *: ?(.*)$", re.MULTILINE)
TAUGHT_BY: Final = frozenset(
    {
        "lifecycle.address",
        "lifecycle.configuration",
        "namespace.learned",
        "namespace.received",
        "namespace.remembered",
    }
)
"""Events from which names are learned; reports are another source."""

IDENTIFIED: Final = re.compile(r"The durability service can b[ey] identified by ID: (\S+)")


@dataclasses.dataclass(slots=True)
class Names:
    """Names of nodes by address, learned from records and reports."""

    node_of: dict[str, str] = dataclasses.field(default_factory=dict)
    priority_of: dict[str, int] = dataclasses.field(default_factory=dict)
    own: dict[str, str] = dataclasses.field(default_factory=dict)
    """Address of each node in its current run."""

    runs_of: dict[str, list[tuple[str, int]]] = dataclasses.field(default_factory=dict)
    """Runs in which an address was in use."""

    name_spaces: dict[str, list[NameSpace]] = dataclasses.field(default_factory=dict)
    """Name-spaces of an ospltool node, which aligns them as a whole."""

    _named: dict[str, str] = dataclasses.field(default_factory=dict)
    """Name in the configuration of each node whose trace is called otherwise."""

    _reported: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    """Addresses in the log of reports of each node."""

    _space_of: dict[tuple[str, str], str | None] = dataclasses.field(default_factory=dict)
    _settings: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    def learn(self, record: TraceRecord) -> None:
        """Learn from a record if it is whole."""
        if not is_whole(record):
            return
        if record.kind is RecordKind.REPORT:
            found = IDENTIFIED.match(record.text)
            if found:  # several nodes may share a log, so their traces take precedence
                self.node_of.setdefault(found[1], record.node)
                self._reported.setdefault(record.node, set()).add(found[1])
            return
        match record.event:
            case "lifecycle.address":
                self._learn_address(record)
            case "lifecycle.configuration":
                self._settings[record.node] = settings(record.text)
                spaces = name_spaces(record.text)
                if spaces:
                    self.name_spaces[record.node] = spaces
                    self._space_of.clear()
            case "namespace.learned" | "namespace.remembered":
                self._learn_name_space(record)
            case "namespace.received":
                priority = number(
                    record.fields.get("priority") or _priority(record.fields.get("extensions", ""))
                )
                if priority is not None:
                    self.priority_of[record.fields["fellow"]] = priority

    def _learn_address(self, record: TraceRecord) -> None:
        settings = self._settings.get(record.node, {})
        address = settings.get(NAME_SETTING, record.fields["node"])
        if record.node != address != record.fields["node"]:
            self._named[record.node] = address
        for one in {address, record.fields["node"]}:
            self.node_of[one] = record.node
        self.own[record.node] = address
        self.runs_of.setdefault(address, []).append((record.node, record.run))
        priority = number(settings.get("MasterPriority", settings.get(PRIORITY_SETTING)))
        if priority is not None:
            self.priority_of[address] = priority

    def _learn_name_space(self, record: TraceRecord) -> None:
        """Learn a dynamic name-space, which the configuration lacks."""
        name, expressions = record.fields.get("namespace", ""), record.fields.get("expressions", "")
        elements = tuple(Element.parse(one) for one in expressions.split(",") if one[-1:] not in {"", "."})
        before = [one for one in self.name_spaces.get(record.node, ()) if one.name != name]
        self.name_spaces[record.node] = [*before, NameSpace(name, elements)]
        self._space_of.clear()

    def contradictions(self) -> Iterator[str]:
        """Yield sentences about files that seem to be those of another node of the evidence."""
        own: dict[str, set[str]] = {}
        for address, runs in self.runs_of.items():
            for node, _ in runs:
                own.setdefault(node, set()).add(address)
        for node, name in sorted(self._named.items()):
            if name in own:
                yield (
                    f"which node the trace is of that is called {node} here: its configuration names {name}, "
                    "of which there is another trace"
                )
        for node, told in sorted(self._reported.items()):  # several nodes may share one
            others = ", ".join(sorted({self.node_of[one] for one in told} - {node}))
            if others and node in own and told.isdisjoint(own[node]):
                yield (
                    f"which node the reports are of that are called those of {node} here: they tell the "
                    f"address of {others}, and none of {node}"
                )

    def own_of(self, run: tuple[str, int]) -> str:
        """Return the address of a node in a run; empty if it is unknown."""
        return next((address for address, runs in self.runs_of.items() if run in runs), "")

    def name_space_of(self, node: str, group: str) -> str | None:
        """Return the first name-space of an ospltool node that contains a group; None if there is none."""
        if (node, group) not in self._space_of:
            partition, _, topic = group.rpartition(".")
            spaces, wanted = self.name_spaces.get(node, ()), Group(partition, topic)
            self._space_of[node, group] = next((one.name for one in spaces if one.contains(wanted)), None)
        return self._space_of[node, group]

    def node(self, address: str) -> str:
        """Return the node with an address; the address itself if it is unknown."""
        if address == NOBODY:
            return "nobody"
        return self.node_of.get(address, address)

    def addresses(self, name: str) -> tuple[str, ...]:
        """Return the addresses that a user means with a name or an address."""
        return (name, *(address for address, node in self.node_of.items() if node == name))


def settings(text: str) -> dict[str, str]:
    """Return the settings in the report of a configuration."""
    return {found[2].strip(): _ORIGIN.sub("", found[3].strip()) for found in _SETTING.finditer(text)}


def name_spaces(text: str) -> list[NameSpace]:
    """Return the name-spaces in an ospltool node's report of its configuration, in their order."""
    found: list[tuple[str, list[Element]]] = []
    for setting in _NAME_SPACE.finditer(text):
        value = _ORIGIN.sub("", setting[2])
        if setting[1] == "[@name]":
            found.append((value, []))
        elif found and setting[1] == "/Partition":
            found[-1][1].append(Element(value or "*", "*"))
        elif found and setting[1] == "/PartitionTopic" and not value.endswith("."):
            found[-1][1].append(Element.parse(value))
    return [NameSpace(name, tuple(elements)) for name, elements in found]


def _priority(extensions: str) -> str | None:
    """Return the masterPriority among the extensions of a name-space, `masterPriority, 100`."""
    name, _, value = extensions.partition("masterPriority")
    return value.strip(" ,)").partition(",")[0].strip() if name != extensions else None
