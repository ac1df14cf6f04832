"""The work of `ospltool check` between its options and its output.

The matrix shows policies, stores, merges and expected masters of a deployment. The effective settings are
each value after expansion, and its origin.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from engine.config import Setting
from engine.config.schema import schema
from engine.core import expressions
from engine.core.name_spaces import NameSpace, Policy
from ospltool.check.deployment import ExpectedMaster, expected_masters, names_of
from ospltool.check.inputs import DeploymentInput, UsageError, gather, named_nodes
from ospltool.check.registry import RuleInput
from ospltool.check.rule_book import all_rules, find_rules
from ospltool.check.runner import Choice, examine, run
from ospltool.check.views import FleetView, NodeView
from ospltool.diagnostics.model import Report, Severity, Target
from ospltool.output import envelope
from ospltool.output.text import plural, table, visible, width

if TYPE_CHECKING:
    from ospltool.diagnostics.documents import EffectiveNode, MasterForecast, RuleCount

# Two lines of a terminal.
MAX_LISTED = 5
"""Most files in one sentence of the summary; the number of the others is said."""


def deployments(
    paths: Sequence[str],
    nodes: Sequence[str],
    variables: Sequence[str],
    environ: Mapping[str, str],
    *,
    together: bool,
    skip_others: bool = False,
) -> list[DeploymentInput]:
    """Return the deployments to check.

    Args:
        paths: files, directories, fleet files and URIs.
        nodes: `NAME=FILE` texts, which make one deployment together.
        variables: `VAR=VALUE` or `NODE:VAR=VALUE` texts.
        environ: the environment that they add to.
        together: all plain files are one deployment.
        skip_others: skip XML that is no configuration among named files, too.

    Raises:
        UsageError: no file is named, or an option is malformed.
    """
    named, common = named_nodes(nodes, variables, environ)
    found = gather(paths, common, together=together, skip_others=skip_others)
    if named:
        found.append(named)
    if not paths and not named:
        raise UsageError("nothing to check: name files, directories or a fleet file, or set OSPL_URI")
    return found


def choice(
    select: Sequence[str],
    ignore: Sequence[str],
    severities: Sequence[str],
    targets: Sequence[str],
    show: str,
) -> Choice:
    """Return the choice of rules.

    Args:
        select: codes, names or prefixes of the rules to run; none for all.
        ignore: likewise, the rules to leave out.
        severities: `RULES=LEVEL` texts.
        targets: services to check for.
        show: least severity to show.

    Raises:
        UsageError: no rule or severity has such a name.
    """
    codes = _codes(select, "--select") if select else set(all_rules())
    codes -= _codes(ignore, "--ignore")
    changed: dict[str, Severity] = {}
    for text in severities:
        rules, equals, level = text.partition("=")
        if not equals:
            raise UsageError(f"--severity {text!r} is not of the form RULES=LEVEL")
        try:
            wanted = Severity.named(level)
        except ValueError as error:
            raise UsageError(f"--severity {text!r}: {error}") from None
        changed.update(dict.fromkeys(_codes([rules], "--severity"), wanted))
    return Choice(
        codes=frozenset(codes),
        targets=frozenset(map(Target, targets)) or frozenset(Target),
        severities=changed,
        least=Severity.named(show),
    )


def _codes(selectors: Sequence[str], option: str) -> set[str]:
    found: set[str] = set()
    for selector in (each for text in selectors for each in text.split(",")):
        try:
            found.update(each.code for each in find_rules(selector))
        except KeyError:
            raise UsageError(
                f"{option}: there is no rule {selector!r}; `ospltool explain` lists all"
            ) from None
    return found


def check(inputs: Sequence[DeploymentInput], wanted: Choice, *, tries: bool = False) -> Report:
    """Read and check; findings below the severity to show are part of the report.

    With `tries`, the installed Cyclone DDS says what it thinks of the settings.
    """
    everything = dataclasses.replace(wanted, least=Severity.INFO)
    return run((examine(each, tries=tries) for each in inputs), everything)


def shown(report: Report, wanted: Choice) -> Report:
    """Remove findings below the chosen severity from a report, and count them."""
    visible = tuple(each for each in report.diagnostics if each.severity <= wanted.least)
    codes = {each.code for each in visible}
    return dataclasses.replace(
        report,
        diagnostics=visible,
        rules=tuple(each for each in report.rules if each.code in codes),
        not_selected=report.not_selected + len(report.diagnostics) - len(visible),
    )


def exit_code(report: Report, fail_on: str) -> int:
    """Return 2 if a file cannot be read, 1 for findings at or above `fail_on`, else 0."""
    unreadable = {code for code, each in all_rules().items() if each.takes is RuleInput.FILE}
    if any(each.code in unreadable for each in report.diagnostics):
        return 2
    if fail_on == "never":
        return 0
    return int(any(each.severity <= Severity.named(fail_on) for each in report.diagnostics))


def summary(report: Report, wanted: Choice) -> list[str]:
    """Yield sentences for the user."""
    counts = [
        plural(report.count(severity), severity.label)
        for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO)
        if report.count(severity)
    ]
    files = plural(len(report.files), "file")
    lines = [f"{', '.join(counts) or 'no findings'} in {files}"]
    hidden = [each for each in report.diagnostics if each.severity > wanted.least]
    if hidden:
        lines[0] += f"; {len(hidden)} below {wanted.least.label} not shown (--show info)"
    if report.suppressed:
        lines[0] += f"; {report.suppressed} suppressed"
    safe = sum(1 for each in report.diagnostics if each.fix and each.fix.is_safe)
    unsafe = sum(1 for each in report.diagnostics if each.fix and not each.fix.is_safe)
    if safe or unsafe:
        lines.append(f"fixable: {safe} with --fix, {unsafe} more with --unsafe-fixes")
    for service in sorted(wanted.targets):
        blocked = report.blocked_files(service)
        if blocked:
            lines.append(f"{service.label} refuses to start with {_listed(blocked)}")
    if report.alone > 1:
        lines.append("each file was checked by itself; --together compares them as nodes of one deployment")
    if report.skipped:
        lines.append(f"{plural(len(report.skipped), 'file')} left out, no OpenSplice configuration")
    return lines


def _listed(paths: Sequence[str]) -> str:
    if len(paths) <= MAX_LISTED:
        return ", ".join(paths)
    return f"{', '.join(paths[:MAX_LISTED])} and {len(paths) - MAX_LISTED} more files"


def statistics(report: Report, *, as_json: bool) -> str:
    """Render the number of findings of each rule, highest first."""
    counts = Counter(each.code for each in report.diagnostics)
    rules = all_rules()
    rows = [(count, code, rules[code]) for code, count in counts.most_common()]
    if as_json:
        data: list[RuleCount] = [
            {"code": code, "name": each.name, "count": count} for count, code, each in rows
        ]
        return envelope.document("statistics", data)
    return table(
        ("COUNT", "CODE", "NAME", "WHAT"),
        [(count, code, each.name, each.summary) for count, code, each in rows],
    )


def overview(inputs: Sequence[DeploymentInput], *, matrix: bool, as_json: bool) -> str:
    """Render the matrix or the effective settings of all readable files.

    With `as_json`, it is a JSON document.

    Raises:
        UsageError: a file cannot be read.
    """
    examined = [examine(each) for each in inputs]
    for file in (file for each in examined for file in each.unreadable):
        if not file.is_known:
            raise UsageError(*map(str, file.problems))
        if not any(each.fleet.nodes for each in examined):
            raise UsageError(f"{file.path}: this is no configuration of a node")
    nodes = [node for each in examined for node in each.fleet.nodes]
    if not nodes:
        raise UsageError("there is no configuration of a node")
    if matrix:
        fleet = FleetView(tuple(nodes))
        return matrix_json(fleet) if as_json else matrix_text(fleet)
    return effective_json(nodes) if as_json else effective_text(nodes)


_OF_POLICY: Final = (
    *("aligner", "alignee", "master_priority", "durability"),
    *("delayed_alignment", "equality_check"),
)


def _matrix(fleet: FleetView) -> tuple[list[dict[str, Any]], list[ExpectedMaster]]:
    """Return a row for each name-space on each node, and the expected master of each name-space and role.

    `learned` is true where a node learns a name-space from others by its policy; `expected` is `master`,
    `tied` (one of several candidates) or empty.
    """
    by_name = fleet.by_name_space
    masters = expected_masters(by_name)
    by_key = {(each.name_space, each.role): each for each in masters}
    rows = []
    for name, definitions in by_name.items():
        homes = {id(each.view) for each in definitions}
        for each in definitions:
            expected = by_key[name, each.view.role]
            is_candidate = any(each is candidate for candidate in expected.candidates)
            mark = ("master" if len(expected.candidates) == 1 else "tied") if is_candidate else ""
            rows.append(_row(name, each.name_space, each.view, each.policy, mark))
        for node in fleet.durable():
            policy = next((p for p, _ in node.policies if expressions.matches(p.name_space, name)), None)
            if id(node) not in homes and policy:
                rows.append(_row(name, None, node, policy, ""))
    return rows, masters


def _row(
    name: str, known: NameSpace | None, node: NodeView, policy: Policy | None, master: str
) -> dict[str, Any]:
    durable = policy is not None and policy.durability.value in ("Persistent", "Durable")
    merges = policy.merges if policy else ()
    return {
        "name_space": name,
        "role": node.role,
        "node": node.shown_name,
        "learned": known is None,
        "content": "learned" if known is None else str(known),
        **{field: getattr(policy, field, None) for field in _OF_POLICY},
        "stores": durable and node.configuration.persistent is not None,
        "merges": [{"type": each.type, "scope": each.scope} for each in merges],
        "expected": master,
    }


def matrix_text(fleet: FleetView) -> str:
    """Render the matrix as a table, and a sentence for each expected master."""
    rows, masters = _matrix(fleet)
    yes_or_no = {True: "yes", False: "no", None: "-"}
    shown = table(
        ("NAME-SPACE", "ROLE", "NODE", "ALIGNER", "ALIGNEE", "PRIORITY", "DURABILITY", "STORES", "MERGE",
         "EXPECTED", "CONTENT"),
        [
            (
                row["name_space"],
                row["role"],
                row["node"],
                yes_or_no[row["aligner"]],
                row["alignee"] or "-",
                "-" if row["master_priority"] is None else row["master_priority"],
                row["durability"] or "no policy",
                yes_or_no[row["stores"]],
                ", ".join(f"{each['type']} {each['scope']}" for each in row["merges"]) or "-",
                row["expected"] or "-",
                row["content"],
            )
            for row in rows
        ],
    )  # fmt: skip
    sentences = "".join(f"{visible(_sentence(each))}\n" for each in masters)
    return f"{shown}\n{sentences}" if masters else shown


def _sentence(expected: ExpectedMaster) -> str:
    where = f"{expected.name_space} in role {expected.role}"
    if not expected.candidates:
        return f"{where}: no master ({expected.rule})"
    who = " or ".join(names_of(expected.candidates))
    return f"{where}: {who} ({expected.rule})"


def matrix_json(fleet: FleetView) -> str:
    """Render the matrix as one JSON document."""
    rows, masters = _matrix(fleet)
    of_masters: list[MasterForecast] = [
        {
            "name_space": each.name_space,
            "role": each.role,
            "candidates": list(names_of(each.candidates)),
            "rule": each.rule,
        }
        for each in masters
    ]
    return envelope.document("matrix", {"rows": rows, "masters": of_masters})


_NAME_SPACES = "DurabilityService/NameSpaces"
_SERVICE = "Domain/Service"


def ordered(settings: Iterable[Setting]) -> list[Setting]:
    """Sort settings in the order of the schema; repeated ones stay in the order of the document."""
    index = {path: at for at, path in enumerate(schema().paths())}

    def key(setting: Setting) -> int:
        path = setting.path.removeprefix("//OpenSplice/").replace("[@", "@").removesuffix("]")
        for group in (_NAME_SPACES, _SERVICE):
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
    data: list[EffectiveNode] = [
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
