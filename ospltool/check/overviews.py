"""Overviews of a deployment: the matrix of name-spaces and nodes, and the effective settings.

The matrix shows policies, stores, merges and expected masters. The effective settings are each value after
expansion, and its origin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from engine.config import Setting
from engine.config.schema import schema
from engine.core import expressions
from engine.core.name_spaces import Policy
from ospltool.check.deployment import ExpectedMaster, expected_masters, names_of
from ospltool.check.views import FleetView, NodeView
from ospltool.output import envelope
from ospltool.output.text import table, visible, width


@dataclasses.dataclass(frozen=True, slots=True)
class MatrixRow:
    """A name-space on a node."""

    name_space: str
    """Name of the name-space."""
    elements: str
    """Its definition as text, or `learned`."""
    role: str
    """Role of the node."""
    node: str
    """Name of the node."""
    policy: Policy | None
    """The policy that applies; None without one."""
    is_learned: bool
    """The node learns the name-space from others by its policy."""
    stores: bool
    """The policy asks for durable data, and the node has a store."""
    master: str
    """`master`, `tied` (one of several candidates) or empty."""

    @property
    def merge(self) -> str:
        """All merge rules, in document order."""
        rules = self.policy.merges if self.policy else ()
        return ", ".join(f"{each.type} {each.scope}" for each in rules) or "-"


def rows_of(fleet: FleetView) -> tuple[list[MatrixRow], list[ExpectedMaster]]:
    """Return the matrix of a deployment, and the expected master of each name-space and role."""
    by_name = fleet.by_name_space
    masters = expected_masters(by_name)
    by_key = {(each.name_space, each.role): each for each in masters}
    rows = []
    for name, definitions in by_name.items():
        homes = {id(each.view) for each in definitions}
        for each in definitions:
            expected = by_key[name, each.view.role]
            mark = ""
            if any(each is candidate for candidate in expected.candidates):
                mark = "master" if len(expected.candidates) == 1 else "tied"
            rows.append(
                _row(name, str(each.name_space), each.view, each.policy, is_learned=False, master=mark)
            )
        for node in fleet.durable():
            policy = next((p for p, _ in node.policies if expressions.matches(p.name_space, name)), None)
            if id(node) not in homes and policy:
                rows.append(_row(name, "learned", node, policy, is_learned=True, master=""))
    return rows, masters


def _row(
    name: str, elements: str, node: NodeView, policy: Policy | None, *, is_learned: bool, master: str
) -> MatrixRow:
    durable = policy is not None and policy.durability.value in ("Persistent", "Durable")
    stores = durable and node.configuration.persistent is not None
    return MatrixRow(name, elements, node.role, node.shown_name, policy, is_learned, stores, master)


def matrix_text(fleet: FleetView) -> str:
    """Render the matrix as a table, and a sentence for each expected master."""
    rows, masters = rows_of(fleet)
    header = (
        "NAME-SPACE",
        "ROLE",
        "NODE",
        "ALIGNER",
        "ALIGNEE",
        "PRIORITY",
        "DURABILITY",
        "STORES",
        "MERGE",
        "EXPECTED",
        "CONTENT",
    )
    cells = []
    for row in rows:
        policy = row.policy
        cells.append(
            (
                row.name_space,
                row.role,
                row.node,
                ("yes" if policy.aligner else "no") if policy else "-",
                policy.alignee.value if policy else "-",
                policy.master_priority if policy else "-",
                policy.durability.value if policy else "no policy",
                "yes" if row.stores else "no",
                row.merge,
                row.master or "-",
                row.elements,
            )
        )
    sentences = "".join(f"{visible(_sentence(each))}\n" for each in masters)
    return f"{table(header, cells)}\n{sentences}" if masters else table(header, cells)


def _sentence(expected: ExpectedMaster) -> str:
    where = f"{expected.name_space} in role {expected.role}"
    if not expected.candidates:
        return f"{where}: no master ({expected.rule})"
    who = " or ".join(names_of(expected.candidates))
    return f"{where}: {who} ({expected.rule})"


def matrix_json(fleet: FleetView) -> str:
    """Render the matrix as one JSON document."""
    rows, masters = rows_of(fleet)
    data = {
        "rows": [
            {
                "name_space": row.name_space,
                "role": row.role,
                "node": row.node,
                "learned": row.is_learned,
                "content": row.elements,
                "aligner": row.policy.aligner if row.policy else None,
                "alignee": row.policy.alignee if row.policy else None,
                "master_priority": row.policy.master_priority if row.policy else None,
                "durability": row.policy.durability if row.policy else None,
                "delayed_alignment": row.policy.delayed_alignment if row.policy else None,
                "equality_check": row.policy.equality_check if row.policy else None,
                "stores": row.stores,
                "merges": [{"type": each.type, "scope": each.scope} for each in row.policy.merges]
                if row.policy
                else [],
                "expected": row.master,
            }
            for row in rows
        ],
        "masters": [
            {
                "name_space": each.name_space,
                "role": each.role,
                "candidates": list(names_of(each.candidates)),
                "rule": each.rule,
            }
            for each in masters
        ],
    }
    return envelope.document("matrix", data)


_NAME_SPACES = "DurabilityService/NameSpaces"
_SERVICES = "Domain/Service"


def ordered(settings: Iterable[Setting]) -> list[Setting]:
    """Sort settings in the order of the schema; repeated ones stay in the order of the document."""
    index = {path: at for at, path in enumerate(schema().paths())}

    def key(setting: Setting) -> int:
        path = setting.path.removeprefix("//OpenSplice/").replace("[@", "@").removesuffix("]")
        for group in (_NAME_SPACES, _SERVICES):
            if path.startswith(group):
                return index[group]
        return index.get(path, len(index))

    return sorted(settings, key=key)


def effective_text(nodes: Iterable[NodeView]) -> str:
    """Render one line for each setting, in a block for each node."""
    return "\n".join(_block(node) for node in nodes)


def _block(node: NodeView) -> str:
    title = f"# {node.name}: {node.path}" if node.name else f"# {node.path}"
    rows = [(f"{each.path} = {_value(each)}", _origin(each)) for each in ordered(node.configuration.settings)]
    column = max((width(visible(left)) for left, _ in rows), default=0)
    lines = [visible(title)]
    lines += [
        f"{visible(left)}{' ' * (column - width(visible(left)))}  # {visible(right)}" for left, right in rows
    ]
    return "".join(f"{line}\n" for line in lines)


def _value(setting: Setting) -> str:
    if isinstance(setting.value, bool):
        return "true" if setting.value else "false"
    return f'"{setting.value}"' if isinstance(setting.value, str) else str(setting.value)


def _origin(setting: Setting) -> str:
    is_expanded = setting.raw is not None and "$" in setting.raw
    origin = f"{setting.origin}, from {setting.raw}" if is_expanded else str(setting.origin)
    return f"{origin}, no effect on a node: {setting.ignored}" if setting.ignored else origin


def effective_json(nodes: Iterable[NodeView]) -> str:
    """Render the effective settings as one JSON document."""
    data = [
        {
            "node": node.name,
            "file": node.path,
            "starts": not node.interpreted.problems,
            "settings": [
                {
                    "path": each.path,
                    "value": each.value,
                    "raw": each.raw,
                    "ignored": each.ignored or None,
                    "origin": None
                    if each.origin.is_default
                    else {"file": each.origin.file, "line": each.origin.line, "column": each.origin.column},
                }
                for each in ordered(node.configuration.settings)
            ],
        }
        for node in nodes
    ]
    return envelope.document("effective", data)
