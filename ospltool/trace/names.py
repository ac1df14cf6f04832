"""Which address belongs to which node, and what a node knows about itself.

Addresses of OpenSplice are random at every start, so that a node has as many as it had runs.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final

from ospltool.trace.record import Kind

if TYPE_CHECKING:
    from ospltool.trace.record import Record

NOBODY: Final = "0"
_SETTING: Final = re.compile(r"^( *)- ([^:]+?) *: ?(.*)$", re.MULTILINE)
_IDENTIFIED: Final = re.compile(r"The durability service can be identified by ID: (\S+)")


@dataclasses.dataclass(slots=True)
class Names:
    """Learns from records and reports which address is whose."""

    node_of: dict[str, str] = dataclasses.field(default_factory=dict)
    priority_of: dict[str, int] = dataclasses.field(default_factory=dict)
    own: dict[str, str] = dataclasses.field(default_factory=dict)
    """The address of each node in its current run."""

    _settings: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    def learn(self, record: Record) -> None:
        """Takes a record."""
        if record.kind is Kind.REPORT:
            found = _IDENTIFIED.match(record.text)
            if found:
                self.node_of[found[1]] = record.node
            return
        match record.event:
            case "lifecycle.address":
                address = record.fields["node"]
                self.node_of[address] = record.node
                self.own[record.node] = address
                priority = self._settings.get(record.node, {}).get("MasterPriority")
                if priority is not None and priority.isdigit():
                    self.priority_of[address] = int(priority)
            case "lifecycle.configuration":
                self._settings[record.node] = settings(record.text)
            case "namespace.received":
                priority = record.fields.get("priority") or _priority(record.fields.get("extensions", ""))
                if priority is not None and priority.isdigit():
                    self.priority_of[record.fields["fellow"]] = int(priority)

    def settings_of(self, node: str) -> dict[str, str]:
        """The settings that the trace reports, by name; of several policies the last one."""
        return self._settings.get(node, {})

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
    return {found[2].strip(): found[3].strip() for found in _SETTING.finditer(text)}


def _priority(extensions: str) -> str | None:
    """The masterPriority among the extensions of a name-space, `masterPriority, 100`."""
    name, _, value = extensions.partition("masterPriority")
    return value.strip(" ,)").partition(",")[0].strip() if name != extensions else None
