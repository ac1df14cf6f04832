"""Which address belongs to which node, and what a node knows about itself.

Addresses of OpenSplice are random at every start, so that a node has as many as it had runs. A node of our
engine keeps its id, and its fellows call it by the Name of its configuration: that is its address here.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final

from engine.core.namespaces import Element, Group, NameSpace
from ospltool.trace.reading.record import Kind
from ospltool.trace.reading.whole import is_whole, number

if TYPE_CHECKING:
    from ospltool.trace.reading.record import Record

NOBODY: Final = "0"
NAME_SETTING: Final = "//OpenSplice/Domain/Name"
PRIORITY_SETTING: Final = "//OpenSplice/DurabilityService/NameSpaces/Policy[@masterPriority]"
_NAME_SPACE: Final = re.compile(
    r"^- //OpenSplice/DurabilityService/NameSpaces/NameSpace(\S+): (.*)$", re.MULTILINE
)
_ORIGIN: Final = re.compile(r" \((?:default|[^()]*:\d+:\d+)\)$")
"""Our engine says where a setting comes from."""

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
"""The events that teach names; reports may do so too."""

_IDENTIFIED: Final = re.compile(r"The durability service can be identified by ID: (\S+)")


@dataclasses.dataclass(slots=True)
class Names:
    """Learns from records and reports which address is whose."""

    node_of: dict[str, str] = dataclasses.field(default_factory=dict)
    priority_of: dict[str, int] = dataclasses.field(default_factory=dict)
    own: dict[str, str] = dataclasses.field(default_factory=dict)
    """The address of each node in its current run."""

    runs_of: dict[str, list[tuple[str, int]]] = dataclasses.field(default_factory=dict)
    """The runs in which an address was in use."""

    name_spaces: dict[str, list[NameSpace]] = dataclasses.field(default_factory=dict)
    """The name-spaces of a node of our engine, which aligns them as a whole."""

    _space_of: dict[tuple[str, str], str | None] = dataclasses.field(default_factory=dict)
    _settings: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    def learn(self, record: Record) -> None:
        """Takes a record; what is not whole teaches nothing."""
        if not is_whole(record):
            return
        if record.kind is Kind.REPORT:
            found = _IDENTIFIED.match(record.text)
            if found:  # several nodes may share a log: their own traces know better
                self.node_of.setdefault(found[1], record.node)
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

    def _learn_address(self, record: Record) -> None:
        settings = self._settings.get(record.node, {})
        address = settings.get(NAME_SETTING, record.fields["node"])
        for one in {address, record.fields["node"]}:
            self.node_of[one] = record.node
        self.own[record.node] = address
        self.runs_of.setdefault(address, []).append((record.node, record.run))
        priority = number(settings.get("MasterPriority", settings.get(PRIORITY_SETTING)))
        if priority is not None:
            self.priority_of[address] = priority

    def _learn_name_space(self, record: Record) -> None:
        """A dynamic name-space, which the configuration does not have."""
        name, expressions = record.fields.get("namespace", ""), record.fields.get("expressions", "")
        elements = tuple(Element.parse(one) for one in expressions.split(",") if one[-1:] not in {"", "."})
        before = [one for one in self.name_spaces.get(record.node, ()) if one.name != name]
        self.name_spaces[record.node] = [*before, NameSpace(name, elements)]
        self._space_of.clear()

    def own_of(self, run: tuple[str, int]) -> str:
        """The address of a node in a run; empty when it is not known."""
        return next((address for address, runs in self.runs_of.items() if run in runs), "")

    def name_space_of(self, node: str, group: str) -> str | None:
        """The name-space of our engine that a group belongs to on a node: the first that contains it."""
        if (node, group) not in self._space_of:
            partition, _, topic = group.rpartition(".")
            spaces, wanted = self.name_spaces.get(node, ()), Group(partition, topic)
            self._space_of[node, group] = next((one.name for one in spaces if one.contains(wanted)), None)
        return self._space_of[node, group]

    def node(self, address: str) -> str:
        """The name of an address; the address itself when it is not known."""
        if address == NOBODY:
            return "nobody"
        return self.node_of.get(address, address)

    def addresses(self, name: str) -> tuple[str, ...]:
        """The addresses that a name or an address of the user means."""
        return (name, *(address for address, node in self.node_of.items() if node == name))


def settings(text: str) -> dict[str, str]:
    """The settings in the report of a configuration."""
    return {found[2].strip(): _ORIGIN.sub("", found[3].strip()) for found in _SETTING.finditer(text)}


def name_spaces(text: str) -> list[NameSpace]:
    """The name-spaces in our engine's report of its configuration, in their order."""
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
    """The masterPriority among the extensions of a name-space, `masterPriority, 100`."""
    name, _, value = extensions.partition("masterPriority")
    return value.strip(" ,)").partition(",")[0].strip() if name != extensions else None
