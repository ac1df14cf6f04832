"""The consequences of a deployment: machines, roles, expected masters, and the merges between roles.

They are computed as an ospltool node does: first match for policies and scopes, and the order of the
election. Quality and ids, which only a running system knows, stay open, and the texts say so.
"""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import socket
from collections.abc import Iterable

from engine.core.name_spaces import MAX_PRIORITY, MergeType
from engine.dds.interfaces import address_of
from ospltool.check.views import Definition, NodeView

# A line of a terminal.
MAX_NAMES = 5
"""Most node names in one message; the number of the others is said."""


def listed(names: Iterable[str]) -> str:
    """List names for a message: all of a few, some of many."""
    every = list(dict.fromkeys(names))
    if len(every) <= MAX_NAMES:
        return ", ".join(every)
    return f"{', '.join(every[:MAX_NAMES])} and {len(every) - MAX_NAMES} more"


def names_of(definitions: Iterable[Definition]) -> tuple[str, ...]:
    """Return the nodes of definitions, each once, in order."""
    return tuple(dict.fromkeys(each.view.shown_name for each in definitions))


@dataclasses.dataclass(frozen=True, slots=True)
class ExpectedMaster:
    """The expected master of a name-space in a role, according to the files.

    `candidates` has one node, or several with the same highest masterPriority, among which the quality of
    the stored data and then the highest id decide. A Lazy or On_Request node is not master of others. `rule`
    says what decided.
    """

    name_space: str
    role: str
    candidates: tuple[Definition, ...]
    rule: str


def by_role(definitions: Iterable[Definition]) -> dict[str, list[Definition]]:
    """Group definitions by the role of their node, in order of appearance."""
    found: dict[str, list[Definition]] = {}
    for each in definitions:
        found.setdefault(each.view.role, []).append(each)
    return found


def expected_masters(definitions: dict[str, list[Definition]]) -> list[ExpectedMaster]:
    """Find the expected master of every name-space and role (deployment guide 5.4.3)."""
    return [
        _expected(name, role, members)
        for name, every in definitions.items()
        for role, members in by_role(every).items()
    ]


def _expected(name: str, role: str, members: list[Definition]) -> ExpectedMaster:
    every = [(each, each.policy) for each in members if each.policy and each.policy.may_be_master]
    leading = [one for one in every if one[1].may_lead_others]
    able = [(each, policy.master_priority) for each, policy in leading or every]
    if not able:
        return ExpectedMaster(name, role, (), "nobody may be master")
    highest = max(priority for _, priority in able)
    best = tuple(each for each, priority in able if priority == highest)
    if len(able) == 1:
        rule = "the only candidate"
    elif len(best) == 1:
        rule = f"highest masterPriority, {highest}"
    elif highest == MAX_PRIORITY:
        rule = "legacy election: newest stored data, then highest id"
    else:
        rule = f"equal masterPriority {highest}: newest stored data, then highest id"
    alone = "" if leading else "; but with ospltool each Lazy node is master of its own part"
    return ExpectedMaster(name, role, best, rule + alone)


TAKES = frozenset({MergeType.MERGE, MergeType.REPLACE, MergeType.CATCHUP})
"""Merge types that bring the other side's data in."""

_SENSELESS = (
    {MergeType.REPLACE},
    {MergeType.REPLACE, MergeType.MERGE},
    {MergeType.REPLACE, MergeType.DELETE},
    {MergeType.DELETE, MergeType.MERGE},
)


def is_senseless(left: MergeType, right: MergeType) -> bool:
    """Tell whether two roles cannot sensibly apply these merge types to each other's data.

    Catchup ends in the same set as Replace, so it counts as Replace.
    """
    plain = {MergeType.REPLACE if each is MergeType.CATCHUP else each for each in (left, right)}
    return plain in _SENSELESS


def merge_towards(definition: Definition, role: str) -> MergeType:
    """Return the merge type of a node for a role; Ignore if no Merge matches."""
    policy = definition.policy
    return (policy.merge_type(role) if policy else None) or MergeType.IGNORE


def host_of(node: NodeView) -> str | None:
    """Return the network address in the file of a node, which identifies its machine; None without one."""
    address = node.configuration.ddsi.network_interface.strip().lower()
    if not node.configuration.ddsi.is_configured or not address:
        return None
    return (
        "loopback"
        if address == "lo" or address.startswith("127.") or address == "::1"
        else (address if "." in address or ":" in address else None)
    )


def has_interface(name: str) -> bool:
    """Tell whether this machine has an interface of a name."""
    return any(name == interface for _, interface in socket.if_nameindex())


def has_address(address: str) -> bool:
    """Tell whether this machine has an address or a network that begins so; true where that is not known."""
    try:
        version = ipaddress.ip_address(address).version
    except ValueError:
        return False
    network = address.removesuffix(".0") + "."
    while network.endswith(".0."):
        network = network.removesuffix("0.")
    if version == 4 and address.endswith(".0"):  # the address of a network stands for the interface in it
        return any(address_of(name).startswith(network) for _, name in socket.if_nameindex())
    try:
        with socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return not ipaddress.ip_address(address).is_multicast  # which can be bound, and is no interface
