"""The effective settings of a configuration: each value after expansion, and its origin."""

from __future__ import annotations

from collections.abc import Iterable

from engine.config import Setting
from engine.config.schema import schema
from ospltool.check.views import NodeView
from ospltool.output import envelope
from ospltool.output.text import visible, width

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


def as_text(nodes: Iterable[NodeView]) -> str:
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


def as_json(nodes: Iterable[NodeView]) -> str:
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
