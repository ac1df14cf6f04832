"""The run of a check: it reads the input, runs the rules, and sorts their findings.

`examine` turns what `inputs` found into views. A file of a node becomes a `NodeView`, in which the loader's
settings and problems stand side by side, so that rules also run over a file with which no node starts; any
other file is a `FileView` with what its reader found. `run` hands each view to the rules that take such ones,
and the whole deployment to those that compare nodes. Rules yield findings and know neither severities that a
user changed nor comments that suppress: both are applied afterwards. At the end `proofs` tries each fix in
every environment of the file, and only a fix that changes no effective setting is safe.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from engine.config import (
    ByteRange,
    ConfigError,
    Document,
    ProblemKind,
    SourceFile,
    interpret,
    persistence,
)
from engine.config.loader import Interpreted
from engine.config.problems import Problem
from engine.config.reader import MAX_BYTES, MAX_LINES, path_of_uri, read_bytes
from engine.config.schema import ROOT
from engine.config.syntax import root_name
from engine.config.tree import position_by_counting
from engine.config.values import did_you_mean
from ospltool.check import cyclone, profiles
from ospltool.check.edits import edited
from ospltool.check.inputs import TEMPLATE_SUFFIXES, WITHIN_OTHERS, DeploymentInput, NodeInput
from ospltool.check.proofs import Proofs
from ospltool.check.registry import Rule, RuleInput
from ospltool.check.rule_book import all_rules
from ospltool.check.rules.suppressions import Suppressor
from ospltool.check.views import FileView, FleetView, NodeView
from ospltool.diagnostics.model import Finding, Report, Severity, Target


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """The choice of rules and severities.

    `codes` None runs all rules; `severities` replaces severities by code; `least` hides lower severities.
    """

    codes: frozenset[str] | None = None
    targets: frozenset[Target] = frozenset(Target)
    severities: dict[str, Severity] = dataclasses.field(default_factory=dict)
    least: Severity = Severity.INFO


NO_INPUT: Final = DeploymentInput(())


@dataclasses.dataclass(frozen=True, slots=True)
class Examined:
    """A deployment after reading: the readable nodes, and the unreadable files.

    `skipped` are files found in directories that are not OpenSplice configurations.
    """

    fleet: FleetView
    is_fleet: bool
    unreadable: tuple[FileView, ...]
    paths: tuple[str, ...]
    skipped: tuple[str, ...]
    given: DeploymentInput = NO_INPUT


def examine(
    deployment: DeploymentInput, contents: Mapping[str, bytes] | None = None, *, tries: bool = False
) -> Examined:
    """Read and interpret all files of a deployment; bad files raise no error.

    Args:
        deployment: the files.
        contents: replaces the content of files, by path.
        tries: hand all settings to the installed Cyclone DDS as well.
    """
    nodes: list[NodeView] = []
    unreadable: list[FileView] = []
    paths: list[str] = []
    skipped: list[str] = []
    texts = _Texts(contents or {})
    if deployment.path:
        paths.append(deployment.path)
    if deployment.problems:
        source = texts.source(NodeInput(deployment.path, {}))
        unreadable.append(FileView(deployment.path, source, deployment.problems))
    for each in deployment.nodes:
        outcome = _tried(_read(each, texts)) if tries else _read(each, texts)
        if isinstance(outcome, NodeView):
            if outcome.trial:
                unreadable.append(
                    FileView(outcome.path, outcome.source, (), outcome.name, faults=outcome.trial)
                )
            nodes.append(outcome)
            paths.append(outcome.path)
        elif each.is_found and not outcome.is_known and not _is_meant(outcome, each.uri):
            skipped.append(outcome.path)
        else:
            unreadable.append(outcome)
            paths.append(outcome.path)
    fleet = FleetView(tuple(nodes), deployment.path)
    return Examined(
        fleet,
        deployment.is_fleet,
        tuple(unreadable),
        tuple(dict.fromkeys(paths)),
        tuple(skipped),
        deployment,
    )


class _Texts:
    """Files that are read once, however many nodes have them with the same variables and the same role.

    `contents` replaces the content of files, by path.
    """

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self._contents = contents
        self._documents: dict[tuple[object, ...], Document] = {}
        self._interpreted: dict[tuple[object, ...], Interpreted] = {}
        self._variables: set[int] = set()

    def document(self, given: NodeInput) -> Document:
        """Return the elements of a node's file; raise ConfigError if it cannot be read."""
        path = path_of_uri(given.uri)
        key = path, given.text, *sorted(given.environ.items())
        if key not in self._documents:
            data = self._content(given, path)
            template = template_in(data, path)
            if template:
                raise ConfigError([_not_rendered(data, path, template)])
            text = cyclone.variable_in(data) or given.text
            found = cyclone.parse_variable(text, path, given.environ) if text is not None else None
            if found:
                self._variables.add(id(found))
            self._documents[key] = found or cyclone.parse_file(data, path, given.environ)
        return self._documents[key]

    def is_file(self, document: Document) -> bool:
        """Tell whether a document is a file of its own, and not text of the variable."""
        return id(document) not in self._variables

    def _content(self, given: NodeInput, path: str) -> bytes:
        if path in self._contents:
            return self._contents[path]
        return read_bytes(path) if given.text is None else given.text

    def source(self, given: NodeInput) -> SourceFile | None:
        """Return the content of a file for code frames; None if it is unreadable or too large."""
        try:
            path = path_of_uri(given.uri)
            data = self._content(given, path)
        # Without its content a finding is shown without lines of the file.
        except ConfigError:
            return None
        if len(data) > MAX_BYTES or data.count(b"\n") + data.count(b"\r") > MAX_LINES:
            return None
        return SourceFile(path, data, "utf-8")

    def interpreted(self, given: NodeInput, document: Document) -> Interpreted:
        """Return the settings of a node; raise ConfigError if the document is no configuration."""
        key = id(document), given.role  # `_documents` keeps it, so no other has this id
        if key not in self._interpreted:
            self._interpreted[key] = interpret(document, role=given.role)
        return self._interpreted[key]


def _read(given: NodeInput, texts: _Texts) -> NodeView | FileView:
    try:
        document = texts.document(given)
        path = document.path
        if persistence.is_persistence_service(document):
            return FileView(path, document.source, (), given.name, persistence.interpret(document))
        if cyclone.is_cyclone(document):
            return _of_cyclone(given, document, (), is_file=texts.is_file(document))
        if profiles.is_profiles(document):
            faults = tuple(profiles.faults(document))
            return FileView(path, document.source, (), given.name, profiles=document, faults=faults)
        interpreted = texts.interpreted(given, document)
        return NodeView(given.name, document, interpreted, given.environ, given.domain)
    except ConfigError as error:
        source = texts.source(given)
        inside = WITHIN_OTHERS.search(source.data) if source else None
        if source and inside and _is_other(source, error.problems[0].kind):
            return FileView(source.path, source, (_not_checked(source, inside),), given.name)
        before = _before(error, source, given) if source else None
        if before:
            return _of_cyclone(given, before, error.problems)
        return FileView(error.path, source, error.problems, given.name)


def _of_cyclone(
    given: NodeInput, document: Document, problems: tuple[Problem, ...], *, is_file: bool = True
) -> FileView:
    faults = tuple(cyclone.faults(document, is_file=is_file))
    source = document.source
    return FileView(
        source.path, source, problems, given.name, cyclone=document, is_file=is_file, faults=faults
    )


def _before(error: ConfigError, source: SourceFile, given: NodeInput) -> Document | None:
    """Return the settings of Cyclone DDS before what follows the root element, which it reads first."""
    problem = error.problems[0]
    if problem.kind is not ProblemKind.SYNTAX or problem.span is None:
        return None
    # What is before may be broken, too: then there are no settings to check.
    with contextlib.suppress(ConfigError):
        data = source.data[: problem.span.start]
        found = cyclone.parse_file(data, source.path, given.environ)
        if cyclone.is_cyclone(found):
            return msgspec.structs.replace(found, source=source)
    return None


def _tried(view: NodeView | FileView) -> NodeView | FileView:
    """Add what the installed Cyclone DDS says of the settings of a file."""
    if isinstance(view, FileView):
        if view.cyclone is None:
            return view
        said = cyclone.tried(view.cyclone, is_file=view.is_file)
        return dataclasses.replace(view, faults=(*view.faults, *said))
    if not view.interpreted.problems:
        from engine.capture.configured_uri import uri_of

        configuration = view.configuration
        settings = uri_of(configuration, {})
        found = cyclone.tried_of_node(view.document, settings, configuration.domain.id)
        view.trial = tuple(found)
    return view


_COMMENT: Final = re.compile(rb"<!--.*?-->", re.DOTALL)
_TEMPLATE: Final = re.compile(
    rb"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|<%.*?%>|(?<![\w.])@[A-Za-z_]\w*@(?!\w)", re.DOTALL
)
_VARIABLE: Final = re.compile(rb"\$\{?\w+")


def template_in(data: bytes, path: str) -> re.Match[bytes] | None:
    """Find what makes a file a template, whose values are still to come; in comments, it means nothing.

    Variables do where the name of the file says that it is one.
    """
    text = _COMMENT.sub(lambda comment: b"-" * len(comment[0]), data)
    found = _TEMPLATE.search(text)
    return found or (_VARIABLE.search(text) if path.endswith(TEMPLATE_SUFFIXES) else None)


def _not_rendered(data: bytes, path: str, template: re.Match[bytes]) -> Problem:
    message = "this is a template: render it first (helm template …), and check the result"
    place = position_by_counting(data, template.start())
    return Problem(ProblemKind.NOTHING_FOUND, message, path, *place, ByteRange(*template.span()))


def _is_other(source: SourceFile, fault: ProblemKind) -> bool:
    """Tell whether a file that cannot be read is of another kind, such as YAML, and not broken XML."""
    is_xml = source.path.endswith(".xml") or source.data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")
    return fault is ProblemKind.SYNTAX and not is_xml


def _not_checked(source: SourceFile, inside: re.Match[bytes]) -> Problem:
    """Return what is to be said of XML inside another file."""
    message = f"this file is no XML, and has <{inside[1].decode()}> inside, which is not checked"
    hint = "render the template, or put the XML into a file of its own, and check that"
    span = ByteRange(inside.start(1), inside.end(1))
    return Problem(
        ProblemKind.NOTHING_FOUND, message, source.path, *source.position(span.start), span, hint=hint
    )


_ROOTS = (ROOT, cyclone.ROOT, persistence.ROOT, persistence.SERVICE)


def _is_meant(file: FileView, uri: str) -> bool:
    """Tell whether a bad file may be a configuration: it is unreadable, has such a root element, or none."""
    if any(problem.kind is ProblemKind.UNREADABLE for problem in file.problems):
        return True
    try:
        data = read_bytes(path_of_uri(uri)).replace(b"\0", b"")  # UTF-16 becomes readable enough
    except ConfigError:
        return True
    root = root_name(data.decode("utf-8", "replace"))
    is_broken = any(problem.kind is not ProblemKind.ROOT for problem in file.problems)
    is_similar = not root or bool(did_you_mean(root, _ROOTS))
    return WITHIN_OTHERS.search(data) is not None or (is_broken and is_similar)


def run(deployments: Iterable[Examined], choice: Choice, proofs: Proofs | None = None) -> Report:
    """Run all chosen rules over all deployments, one after the other, without keeping them.

    Args:
        deployments: what was read.
        choice: the rules.
        proofs: gets the environments of all files; None for proofs that nobody needs afterwards.
    """
    proofs = proofs or Proofs()
    rules = {code: each for code, each in all_rules().items() if _is_chosen(each, choice)}
    found: list[Finding] = []
    files: list[str] = []
    skipped: list[str] = []
    suppressed = alone = 0
    for deployment in deployments:
        proofs.note(deployment.given.nodes, declared=deployment.given.is_declared)
        deployment = _with_nothing_found(deployment, files, skipped)
        kept, taken_away = _kept(deployment, rules)
        found += (_judged(each, finding, choice) for each, finding in kept)
        suppressed += taken_away
        files += deployment.paths
        skipped += deployment.skipped
        alone += len(deployment.fleet.durable()) if not deployment.is_fleet else 0
        for node in deployment.fleet.nodes:
            node.release()
    every = [_proved(each, proofs) for each in _merged(found)]
    shown = tuple(each for each in every if each.severity <= choice.least)
    broken = {each.code for each in shown}
    return Report(
        diagnostics=shown,
        files=tuple(dict.fromkeys(files)),
        rules=tuple(each.text() for code, each in rules.items() if code in broken),
        suppressed=suppressed,
        not_selected=len(every) - len(shown),
        skipped=tuple(skipped),
        alone=alone,
    )


def _with_nothing_found(deployment: Examined, files: list[str], skipped: list[str]) -> Examined:
    """Make a directory in which no file was recognised a file that cannot be read."""
    directory = deployment.given.directory
    if not directory or any(_is_below(each, directory) for each in files):
        return deployment
    others = sum(_is_below(each, directory) for each in skipped)
    message = "there is no configuration in this directory"
    if others:
        message += f"; it has {others} XML {'files' if others > 1 else 'file'} of other kinds"
    hint = "name a directory or a file with settings of OpenSplice, Cyclone DDS or persistence services"
    problem = Problem(ProblemKind.NOTHING_FOUND, message, directory, 1, 1, hint=hint)
    return dataclasses.replace(deployment, unreadable=(FileView(directory, None, (problem,)),))


def _is_below(path: str, directory: str) -> bool:
    return os.path.realpath(path).startswith(os.path.realpath(directory).rstrip("/") + "/")


def _proved(found: Finding, proofs: Proofs) -> Finding:
    """Mark the fix of a finding as safe if it provably changes no effective setting of any node."""
    source = found.place.source
    if found.fix is None or source is None or any(each.path != source.path for each in found.fix.edits):
        return found
    is_safe = proofs.holds(source.path, source.data, edited(source.data, found.fix.edits))
    return dataclasses.replace(found, fix=dataclasses.replace(found.fix, is_safe=is_safe))


def _kept(deployment: Examined, rules: dict[str, Rule]) -> tuple[list[tuple[Rule, Finding]], int]:
    """Return the findings of a deployment that no comment suppresses, and the number of the others."""
    found = list(_findings(deployment, rules.values()))
    suppressor = Suppressor(deployment.fleet.nodes, all_rules())
    kept = [(each, finding) for each, finding in found if not suppressor.suppresses(each.code, finding.place)]
    suppressed = len(found) - len(kept)
    compared = _is_compared(deployment)
    ran = frozenset(code for code, each in rules.items() if each.takes is not RuleInput.FLEET or compared)
    kept += [(rules[code], finding) for code, finding in suppressor.findings(ran) if code in rules]
    return kept, suppressed


def _is_chosen(each: Rule, choice: Choice) -> bool:
    is_selected = choice.codes is None or each.code in choice.codes
    is_meant = each.targets >= choice.targets if each.alone else bool(each.targets & choice.targets)
    return is_selected and is_meant


def _is_compared(deployment: Examined) -> bool:
    """Tell whether a deployment has two or more nodes, which rules about deployments need."""
    return deployment.is_fleet and len(deployment.fleet.nodes) > 1


_OF_FILES = (RuleInput.FILE, RuleInput.PERSISTENCE, RuleInput.CYCLONE, RuleInput.PROFILES)


def _findings(deployment: Examined, rules: Iterable[Rule]) -> Iterator[tuple[Rule, Finding]]:
    compared = _is_compared(deployment)
    for each in rules:
        if each.takes is RuleInput.NODE:
            for node in deployment.fleet.nodes:
                for finding in each.check(node):
                    yield each, finding
        elif each.takes in _OF_FILES:
            for file in deployment.unreadable:
                for finding in each.check(file):
                    yield each, finding
        elif each.takes is RuleInput.FLEET and compared:
            for finding in each.check(deployment.fleet):
                yield each, finding


def _judged(each: Rule, finding: Finding, choice: Choice) -> Finding:
    """Return a finding of a rule with what depends on the rule and on the choice."""
    blocks = each.blocks if finding.refusing is None else finding.refusing
    return dataclasses.replace(
        finding,
        code=each.code,
        name=each.name,
        level=choice.severities.get(each.code, each.severity if finding.level is None else finding.level),
        refusing=blocks & choice.targets,
        targets=each.targets,
    )


def _merged(diagnostics: Iterable[Finding]) -> list[Finding]:
    """Merge the findings that several nodes with the same file share, in the order of the files."""
    found: dict[tuple[object, ...], Finding] = {}
    for each in diagnostics:
        key = (each.code, each.place.path, each.place.span, each.place.line, each.message)
        earlier = found.get(key)
        if earlier is None:
            found[key] = each
        else:
            nodes = tuple(dict.fromkeys((*earlier.nodes, *each.nodes)))
            found[key] = dataclasses.replace(earlier, nodes=nodes, refusing=earlier.blocks | each.blocks)
    # In the order of the files, as a person mends them; the code where two are at one place.
    return sorted(found.values(), key=lambda each: (*each.place.order, each.code))
