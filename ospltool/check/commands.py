"""The work of `ospltool check` between its options and its output."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from ospltool.check.inputs import DeploymentInput, UsageFault, gather, named_nodes
from ospltool.check.registry import RuleInput, all_rules, find_rules
from ospltool.check.runner import Choice, examine, run
from ospltool.check.views import FleetView
from ospltool.diagnostics.model import Report, Severity, Target
from ospltool.output import envelope
from ospltool.output.text import plural, table

MAX_LISTED = 5
"""Most files in one sentence of the summary; the number of the others is said."""

VARIABLE = "CYCLONEDDS_URI"

_SERVICES = {Target.OPENSPLICE: "OpenSplice", Target.OSPLTOOL: "an ospltool node"}


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
        UsageFault: no file is named, or an option is malformed.
    """
    named, common = named_nodes(nodes, variables, environ)
    found = gather(paths, common, together=together, skip_others=skip_others)
    if named:
        found.append(named)
    if not paths and not named:
        raise UsageFault("nothing to check: name files, directories or a fleet file, or set OSPL_URI")
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
        UsageFault: no rule or severity has such a name.
    """
    codes = _codes(select, "--select") if select else set(all_rules())
    codes -= _codes(ignore, "--ignore")
    changed: dict[str, Severity] = {}
    for text in severities:
        rules, equals, level = text.partition("=")
        if not equals:
            raise UsageFault(f"--severity {text!r} is not of the form RULES=LEVEL")
        try:
            wanted = Severity.named(level)
        except ValueError as error:
            raise UsageFault(f"--severity {text!r}: {error}") from None
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
            raise UsageFault(
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
    visible = tuple(each for each in report.diagnostics if each.severity >= wanted.least)
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
    return int(any(each.severity >= Severity.named(fail_on) for each in report.diagnostics))


def summary(report: Report, wanted: Choice) -> list[str]:
    """Yield sentences for the user."""
    counts = [
        plural(report.count(severity), severity.label)
        for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO)
        if report.count(severity)
    ]
    files = plural(len(report.files), "file")
    lines = [f"{', '.join(counts) or 'no findings'} in {files}"]
    hidden = [each for each in report.diagnostics if each.severity < wanted.least]
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
            lines.append(f"{_SERVICES[service]} refuses to start with {_listed(blocked)}")
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
        data = [{"code": code, "name": each.name, "count": count} for count, code, each in rows]
        return envelope.document("statistics", data)
    return table(
        ("COUNT", "CODE", "NAME", "WHAT"),
        [(count, code, each.name, each.summary) for count, code, each in rows],
    )


def overview(inputs: Sequence[DeploymentInput], *, matrix: bool, as_json: bool) -> str:
    """Render the matrix or the effective settings of all readable files.

    With `as_json`, it is a JSON document.

    Raises:
        UsageFault: a file cannot be read.
    """
    examined = [examine(each) for each in inputs]
    for file in (file for each in examined for file in each.unreadable):
        if not file.is_known:
            raise UsageFault(*map(str, file.problems))
        if not any(each.fleet.nodes for each in examined):
            raise UsageFault(f"{file.path}: this is no configuration of a node")
    from ospltool.check import overviews

    nodes = [node for each in examined for node in each.fleet.nodes]
    if not nodes:
        raise UsageFault("there is no configuration of a node")
    if matrix:
        fleet = FleetView(tuple(nodes))
        return overviews.matrix_json(fleet) if as_json else overviews.matrix_text(fleet)
    return overviews.effective_json(nodes) if as_json else overviews.effective_text(nodes)
