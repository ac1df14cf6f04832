"""Make docs/json from the types of the JSON documents: `python -m docs.json_schemas`.

A test fails if the files differ from what this module makes. It refuses to make a schema that breaks programs
which read the output, unless `FORMAT_VERSION` has changed.
"""

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import enum
import functools
import importlib
import inspect
import itertools
import json
import pathlib
import sys
import textwrap
import types
import typing
from collections.abc import Iterator

from ospltool.output.envelope import FORMAT_VERSION

DIRECTORY = pathlib.Path(__file__).with_name("json")
_NOTE = "<!-- Made by `python -m docs.json_schemas` from the types of the documents. -->"
_DOCUMENTS = "ospltool.output.documents"
_CHECK = "ospltool.diagnostics.documents"
_DIFF = "ospltool.stores.diff.report"
_REPLICA = "engine.persistence.service.replica_view"

KINDS: dict[str, tuple[str, str, str]] = {
    # kind: the command, the module with the types, and the type, in which a dictionary is an object
    "start": ("start", _DOCUMENTS, "list[StartedNode]"),
    "restart": ("restart", _DOCUMENTS, "list[StartedNode]"),
    "status": ("status", _DOCUMENTS, "list[StartedNode]"),
    "list": ("list", _DOCUMENTS, "list[StartedNode]"),
    "stop": ("stop", _DOCUMENTS, "list[StoppedNode]"),
    "configuration": ("start --show-config", _DOCUMENTS, "ConfigurationText"),
    "init": ("init", _DOCUMENTS, "WrittenFiles"),
    "demo": ("demo", "ospltool.demo.acts", "list[ActResult]"),
    "persistence": ("persistence run", _REPLICA, "ReplicaView"),
    "persistence-status": ("persistence status", _REPLICA, '{"replicas": list[ReplicaView]}'),
    "redundancy": ("persistence rehearse", "engine.simulator.rehearsal", "RehearsalData"),
    "info": ("info", _DOCUMENTS, "Installation"),
    "env": ("env", _DOCUMENTS, "list[Variable]"),
    "health": ("health", _DOCUMENTS, "list[DomainHealth]"),
    "health-mute": ("health mute", _DOCUMENTS, "list[MutedDomain]"),
    "health-unmute": ("health unmute", _DOCUMENTS, "list[UnmutedDomain]"),
    "system": ("top --json", "ospltool.health.export", "SystemData"),
    "record": ("record", "ospltool.live.recorder", "RecordingTally"),
    "doctor": ("doctor", _DOCUMENTS, "Diagnosed"),
    "show": ("show --format json", _DOCUMENTS, "Summary"),
    **{
        kind: (f"show {kind} --format json|jsonl", _DOCUMENTS, f"list[{row}] | {row}")
        for kind, row in {
            "nodes": "NodeRow | NameSpaceRow",
            "fellows": "FellowRow",
            "name-spaces": "NameSpaceRow",
            "masters": "MasterRow",
            "alignment": "AlignmentRow",
            "groups": "GroupRow",
            "topics": "TopicRow",
            "applications": "ApplicationRow",
            "readers": "ReaderRow",
            "writers": "WriterRow",
            "incidents": "IncidentRow",
            "events": "EventRow",
        }.items()
    },
    "endpoints": ("show topics NAME --watch --format jsonl", _DOCUMENTS, "EndpointRow"),
    "node": ("show nodes NAME --watch --format jsonl", _DOCUMENTS, "NodeRow"),
    "sample": ("cat", _DOCUMENTS, "PrintedSample"),
    "history-wait": ("history wait", _DOCUMENTS, "WaitedHistory"),
    "history-state": ("history state", _DOCUMENTS, "HistoryState"),
    "history-delete": ("history delete", _DOCUMENTS, "Deletion"),
    "diagnostics": ("check --format json", _CHECK, "Diagnostics"),
    "diagnostic": ("check --format jsonl", _CHECK, "Diagnostic"),
    "statistics": ("check --statistics", _CHECK, "list[RuleCount]"),
    "matrix": ("check --matrix", _CHECK, "Matrix"),
    "effective": ("check --effective", _CHECK, "list[EffectiveNode]"),
    "rules": ("explain", _CHECK, "list[RuleData]"),
    "rule": ("explain RULE", _CHECK, "RuleData"),
    "setting": ("explain //OpenSplice/…", _CHECK, "SettingData"),
    "cyclone-setting": ("explain //CycloneDDS/…", _CHECK, "CycloneSetting"),
    "code": ("explain CODE", _CHECK, "CodeData"),
    "cause": ("explain FILE", "ospltool.forensics.cause", "CauseReport"),
    "trace-records": ("trace --json, logs --json", _DOCUMENTS, "list[RecordData]"),
    "trace-record": ("trace --format jsonl", _DOCUMENTS, "RecordData"),
    "trace-count": ("trace --count", _DOCUMENTS, "RecordCount"),
    "trace-histogram": ("trace --hist", "ospltool.trace.views.overview", "list[TimeSpan]"),
    "trace-templates": ("trace --templates", "ospltool.trace.views.overview", "list[MessageCount]"),
    "trace-explanation": ("trace explain", _DOCUMENTS, "list[TraceExplanation]"),
    "trace-rule": ("trace explain RULE", _DOCUMENTS, "TraceRule"),
    "trace-load": ("trace load", _DOCUMENTS, "LoadedCase"),
    "trace-conversation": ("trace conversation", _DOCUMENTS, "Talk"),
    "trace-timeline": ("trace timeline", "ospltool.trace.views.timeline", "TimelineData"),
    "trace-anomalies": ("trace anomalies", _DOCUMENTS, "DomainInvestigation | FleetInvestigation"),
    "report": ("report", _DOCUMENTS, "InvestigationData"),
    "sql": ("sql", _DOCUMENTS, "QueryResult"),
    "sql-row": ("sql --format jsonl", _DOCUMENTS, "dict[str, Any]"),
    "sql-list": ("sql --list", _DOCUMENTS, "QueryList"),
    "pipeline-run": ("pipeline run", _DOCUMENTS, "PipelineData"),
    "pipeline-alert": ("pipeline run, without --json", _DOCUMENTS, "AlertData"),
    "store-info": ("store info", _DOCUMENTS, '{"stores": list[StoreInfo]}'),
    "store-backups": ("store backups", "ospltool.stores.copying", '{"stores": list[StoreBackups]}'),
    "store-instances": ("store ls", _DOCUMENTS, "StoredInstances"),
    "store-samples": ("store show", _DOCUMENTS, '{"samples": list[WholeSample]}'),
    "store-verify": ("store verify", _DOCUMENTS, "VerifiedStores"),
    "store-change": ("store watch", "ospltool.stores.watching", "StoreChange"),
    "store-export": ("store export --json", _DOCUMENTS, "Export"),
    "store-sample": ("store export --format jsonl", _DOCUMENTS, "ExportedSample"),
    "store-copy": ("store import, store replace", "ospltool.stores.copying", '{"sets": list[CopyReport]}'),
    "store-restore": ("store restore", "ospltool.stores.copying", "Restored"),
    "store-diff": (
        "store diff --format json",
        _DIFF,
        (
            '{"left_out": int, "verdict": Verdict, "sides": list[SideReport], "groups": list[GroupReport], '
            '"instances": list[InstanceReport], "differing": int, "causes": dict[str, int], "odd": str}'
        ),
    ),
    "store-diff-summary": (
        "store diff --format jsonl",
        _DIFF,
        (
            '{"verdict": Verdict, "sides": list[SideReport], "differing": int, "causes": dict[str, int], '
            '"odd": str, "left_out": int}'
        ),
    ),
    "store-diff-group": ("store diff --format jsonl", _DIFF, "GroupReport"),
    "store-diff-instance": ("store diff --format jsonl", _DIFF, "InstanceReport"),
    "simulation": ("simulate", "engine.simulator.campaign", '{"runs": list[SeedOutcome]}'),
}

Schema = dict[str, typing.Any]
_INTEGER: Schema = {
    "description": "An integer; beyond 53 bits, which many programs round, its digits as a string.",
    "anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]+$"}],
}
_NUMBER: Schema = {
    "description": "A number; as a string if it is not finite.",
    "anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}],
}
_ATOMS = {"Integer": _INTEGER, "Number": _NUMBER}
_PLAIN: dict[object, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "pattern": "^([0-9a-f]{2})*$"},
    type(None): {"type": "null"},
    typing.Any: {},
    object: {},
}


class _Definitions:
    """The schemas of the types of a document, by their names."""

    def __init__(self) -> None:
        self.made: Schema = {}

    def of(self, kind: object, name: str = "") -> Schema:
        """Return the schema of a type, as `envelope.plain` writes its values; `name` is that of the field."""
        if isinstance(kind, dict):  # in the table above
            properties = {name: self.of(each, name) for name, each in kind.items()}
            return {"type": "object", "properties": properties, "required": list(properties)}
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        if kind is int and name.endswith("_ns"):
            return {"type": "integer"}
        if kind in (int, float):
            return self._atom("Integer" if kind is int else "Number")
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Annotated, typing.NotRequired, typing.Required):
            return self.of(arguments[0], name)
        if origin is typing.Literal:
            return {"enum": list(arguments)}
        if origin in (typing.Union, types.UnionType):
            return _either([self.of(each, name) for each in arguments])
        if origin is not None:
            return self._container(origin, arguments, name)
        return self._class(kind)

    def _container(self, origin: type, arguments: tuple[typing.Any, ...], name: str) -> Schema:
        if issubclass(origin, collections.abc.Mapping):
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if origin is tuple and arguments[-1] is not Ellipsis:
            items = [self.of(each, name) for each in arguments]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        assert issubclass(origin, collections.abc.Collection), origin
        return {"type": "array", "items": self.of(arguments[0], name)}

    def _class(self, kind: object) -> Schema:
        if isinstance(kind, typing.ForwardRef):  # of a value that may contain itself
            return {}
        assert isinstance(kind, type), kind
        if issubclass(kind, enum.Enum):
            return {"enum": [each.value for each in kind]}
        if issubclass(kind, pathlib.PurePath):
            return {"type": "string"}
        if kind.__name__ not in self.made:
            self.made[kind.__name__] = self._object(kind)
        return {"$ref": f"#/$defs/{kind.__name__}"}

    def _object(self, kind: type) -> Schema:
        hints = typing.get_type_hints(kind, include_extras=True)
        struct = getattr(kind, "__struct_fields__", None) or getattr(kind, "_fields", None)
        if dataclasses.is_dataclass(kind):
            struct = [field.name for field in dataclasses.fields(kind)]
        assert struct or typing.is_typeddict(kind), kind
        about = meanings(kind)
        properties = {}
        for name in struct or hints:
            properties[name] = self.of(hints[name], name)
            if name in about:
                properties[name] = {"description": about[name], **properties[name]}
        # With `annotations` of __future__, a TypedDict itself does not see NotRequired.
        needless = {name for name in hints if typing.get_origin(hints[name]) is typing.NotRequired}
        keys = properties if struct else getattr(kind, "__required_keys__", ())
        required = [name for name in properties if name in keys and name not in needless]
        first = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")
        return {"description": first, "type": "object", "properties": properties, "required": required}

    def _atom(self, name: str) -> Schema:
        self.made[name] = _ATOMS[name]
        return {"$ref": f"#/$defs/{name}"}


def _either(schemas: list[Schema]) -> Schema:
    """Return the schema of what fits one of several; types without more are a list."""
    if {} in schemas:
        return {}
    if all(each.keys() == {"type"} for each in schemas):
        return {"type": [each["type"] for each in schemas]}
    return {"anyOf": schemas}


@functools.cache
def meanings(kind: type) -> dict[str, str]:
    """Return what the text below each field of a class, and of those that it extends, says."""
    found: dict[str, str] = {}
    bases = (
        types.get_original_bases(kind)
        if sys.version_info >= (3, 12)
        else kind.__dict__.get("__orig_bases__", kind.__bases__)
    )
    for base in bases:
        if isinstance(base, type) and base.__module__.partition(".")[0] in ("engine", "ospltool"):
            found |= meanings(base)
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except OSError:  # made by a call
        return found
    assert isinstance(tree, ast.ClassDef)
    for field, text in itertools.pairwise(tree.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            assert isinstance(field.target, ast.Name)
            found[field.target.id] = " ".join(str(text.value.value).partition("\n\n")[0].split())
    return found


def schema(kind: str) -> Schema:
    """Return the JSON Schema of a kind of document."""
    command, module, name = KINDS[kind]
    definitions = _Definitions()
    names = {**vars(typing), **vars(importlib.import_module(module))}
    data = definitions.of(eval(name, names))  # noqa: S307  # an expression of the table above
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{kind}: ospltool {command}",
        "type": "object",
        "properties": {"format_version": {"const": FORMAT_VERSION}, "kind": {"const": kind}, "data": data},
        "required": ["format_version", "kind", "data"],
        "$defs": dict(sorted(definitions.made.items())),
    }


def breaks(old: Schema, new: Schema) -> list[str]:
    """Return what programs that read documents of an old schema miss in those of a new one, by its place.

    Fields that are added, and a narrower type, break nothing.
    """
    return list(_breaks(old, new, (old, new), ""))


def _forms(part: Schema, whole: Schema) -> list[Schema]:
    """Return the forms that a value may have; none for any value."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return [{"type": name}] if name in _ATOMS else _forms(whole["$defs"][name], whole)
    if "anyOf" in part:
        return [form for each in part["anyOf"] for form in _forms(each, whole)]
    if isinstance(part.get("type"), list):
        return [{"type": each} for each in part["type"]]
    if "const" in part or "enum" in part:
        values = part.get("enum", [part.get("const")])
        return [{"type": _NAMES[type(values[0])]}]
    return [part] if "type" in part else []


_NAMES = {str: "string", int: "integer", bool: "boolean"}
_WIDER = {"integer": {"integer", "Integer", "Number"}, "Integer": {"Integer", "Number"}}


def _breaks(old: Schema, new: Schema, wholes: tuple[Schema, Schema], place: str) -> Iterator[str]:
    before, after = _forms(old, wholes[0]), _forms(new, wholes[1])
    if before and not after:
        yield f"{place}: any value"
    for form in after if before else ():
        like = [each for each in before if each["type"] in _WIDER.get(form["type"], {form["type"]})]
        found = [list(_below(each, form, wholes, place)) for each in like]
        if not like:
            yield f"{place}: now also {form['type']}"
        elif all(found):
            yield from min(found, key=len)
    kinds = {form["type"] for form in after}
    yield from (
        f"{place}: no {form['type']} any more"
        for form in before
        if kinds and form["type"] in ("object", "array") and form["type"] not in kinds
    )


def _below(old: Schema, new: Schema, wholes: tuple[Schema, Schema], place: str) -> Iterator[str]:
    had, has = old.get("properties", {}), new.get("properties", {})
    for name, part in had.items():
        if name not in has:
            yield f"{place}/{name}: gone"
            continue
        if name in old.get("required", ()) and name not in new.get("required", ()):
            yield f"{place}/{name}: optional now"
        yield from _breaks(part, has[name], wholes, f"{place}/{name}")
    for key in ("items", "additionalProperties"):
        if old.get(key):
            yield from _breaks(old[key], new.get(key, {}), wholes, f"{place}/*")
    items, others = old.get("prefixItems", []), new.get("prefixItems", [])
    if len(items) != len(others):
        yield f"{place}: {len(others)} items for {len(items)}"
    for number, (one, other) in enumerate(zip(items, others, strict=False)):
        yield from _breaks(one, other, wholes, f"{place}/{number}")


def files() -> dict[str, str]:
    """Return the text of every file, by its name."""
    found = {f"{kind}.json": json.dumps(schema(kind), indent=1, ensure_ascii=False) + "\n" for kind in KINDS}
    return {"README.md": _index(), **found}


_HEAD = """# JSON

{note}

Every command that reports results prints JSON with `--json`, or with `--format json` or `jsonl`:

```console
$ ospltool list --all --json
```

A document is `{{"format_version": {version}, "kind": …, "data": …}}`: one for a result, or one on each
line for results that come one by one. Times are nanoseconds since 1970 UTC, and durations nanoseconds,
in fields that end in `_ns`. Bytes are hexadecimal digits. An integer beyond 53 bits is a string of its
digits, a number that is not finite the string `inf`, `-inf` or `nan`.

Each kind has a [JSON Schema](https://json-schema.org/). Under one `format_version`, no field goes or
gets another type; fields may come, so ignore those that you do not know.

| Kind | Command |
|---|---|
"""
_TAIL = """
`check --format sarif`, `gitlab` and `junit` have the form of those products. Recordings, cases and files
in stores are no output of this kind.
"""


def _index() -> str:
    rows = []
    for kind, (command, _, _) in KINDS.items():
        shown = command.replace("|", "\\|")
        rows.append(f"| [{kind}]({kind}.json) | `ospltool {shown}` |\n")
    return _HEAD.format(note=_NOTE, version=FORMAT_VERSION) + "".join(rows) + _TAIL


def refusals() -> list[str]:
    """Return what the present types break in the schemas that are published for this `FORMAT_VERSION`."""
    found = []
    for path in sorted(DIRECTORY.glob("*.json")):
        old = json.loads(path.read_text("utf-8"))
        if old["properties"]["format_version"]["const"] == FORMAT_VERSION:
            new = schema(path.stem) if path.stem in KINDS else {"type": "null"}
            found += [f"{path.stem}{each}" for each in breaks(old, new)]
    return found


if __name__ == "__main__":
    if refused := refusals():
        sys.exit("\n".join(["programs read these: keep them, or raise FORMAT_VERSION", *refused]))
    DIRECTORY.mkdir(exist_ok=True)
    for file, text in files().items():
        (DIRECTORY / file).write_text(text, "utf-8")
