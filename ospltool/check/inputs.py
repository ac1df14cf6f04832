"""The input of the check: files, directories, URIs, fleet files, and nodes of the command line."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from engine.config import ConfigError
from engine.config.fleet import Fleet, load_fleet
from engine.config.problems import Problem
from engine.config.reader import MAX_BYTES, path_of_uri, read_bytes

# A home directory given by mistake has hundreds of thousands.
MAX_FILES = 10_000
"""Most files of one run; more is refused with a message."""

FLEET_FILE = "fleet.toml"

WITHIN_OTHERS: Final = re.compile(rb"<(OpenSplice|CycloneDDS|persistence_service)\b")
"""A start tag that makes a file of another kind worth a word: a template, or YAML with XML inside."""

TEMPLATE_SUFFIXES: Final = (".tpl", ".tmpl", ".template", ".j2", ".jinja", ".in", ".erb")
_OTHER_SUFFIXES: Final = (".yaml", ".yml", *TEMPLATE_SUFFIXES)


class UsageError(Exception):
    """The command line is wrong; the message is for the user."""


@dataclasses.dataclass(frozen=True, slots=True)
class NodeInput:
    """A configuration to read; `name` is empty for a file that is checked alone.

    `is_found` marks a file found in a directory, where other XML is not an error. `domain` is that which the
    fleet file gives the node, None if it gives none. `text` is the configuration itself where it is not a
    whole file, such as the text of CYCLONEDDS_URI; `uri` is then what findings call it.
    """

    uri: str
    environ: Mapping[str, str]
    name: str = ""
    role: str | None = None
    is_found: bool = False
    domain: int | None = None
    text: bytes | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DeploymentInput:
    """Configurations that are checked together; `problems` are those of the fleet file itself.

    `is_declared` says that each node has the environment that it starts with. `directory` is one that was
    searched, of which the deployment then has no nodes: they precede it.
    """

    nodes: tuple[NodeInput, ...]
    path: str = ""
    is_fleet: bool = False
    is_declared: bool = False
    directory: str = ""
    problems: tuple[Problem, ...] = ()


def shown_path(path: str) -> str:
    """Shorten a path for people: relative if it is below the current directory."""
    absolute = os.path.abspath(path)  # noqa: PTH100 - pathlib would resolve symbolic links or keep `..`
    here = os.getcwd()  # noqa: PTH109 - the counterpart of the line above
    if absolute.startswith(here.rstrip("/") + "/"):
        return os.path.relpath(absolute, here)
    return path


def gather(
    paths: Sequence[str], environ: Mapping[str, str], *, together: bool = False, skip_others: bool = False
) -> list[DeploymentInput]:
    """Return the deployments for the paths and URIs of a command line.

    Each file is a deployment of its own, unless `together` makes one of all plain files. A fleet file is a
    deployment; a directory is searched for both; `-` is standard input, and what has a `<` may be the text of
    CYCLONEDDS_URI, with files in it. `skip_others` skips other XML among named files, as in a directory.

    Raises:
        UsageError: more than MAX_FILES files.
    """
    files: list[NodeInput] = []
    deployments: list[DeploymentInput] = []
    searched: list[DeploymentInput] = []
    for given in paths:
        if "://" not in given and os.path.isdir(given):  # noqa: PTH112 - a URI is no Path
            searched.append(DeploymentInput((), directory=given))
            for path in found_in(given):
                if os.path.basename(path) == FLEET_FILE:  # noqa: PTH119 - as above
                    deployments.append(fleet_input(path, environ))
                else:
                    files.append(NodeInput(shown_path(path), environ, is_found=True))
        elif given.endswith(".toml"):
            deployments.append(fleet_input(given, environ))
        elif given in ("-", "/dev/stdin"):
            text = sys.stdin.buffer.read(MAX_BYTES + 1)
            files.append(NodeInput("standard input", environ, text=text))
        elif "<" in given and not os.path.exists(given):  # noqa: PTH110 - as above
            from engine.dds.uri import parts_of  # only such text pays for this import

            named = [part for part in parts_of(given) if not part.startswith("<")]
            files += (NodeInput(each if "://" in each else shown_path(each), environ) for each in named)
            text = given.encode("utf-8", "surrogateescape")
            files.append(NodeInput("CYCLONEDDS_URI", environ, text=text))
        else:
            uri = given if "://" in given else shown_path(given)
            files.append(NodeInput(uri, environ, is_found=skip_others))
        if len(files) > MAX_FILES:
            raise UsageError(f"more than {MAX_FILES} files; name fewer, or directories with fewer")
    in_fleets = {_identity(node.uri) for deployment in deployments for node in deployment.nodes}
    rest = [each for each in files if not each.is_found or _identity(each.uri) not in in_fleets]
    if together:
        deployments.append(DeploymentInput(_named(rest), is_fleet=True))
    else:
        deployments.extend(DeploymentInput((each,)) for each in rest)
    return deployments + searched


def _named(files: Sequence[NodeInput]) -> tuple[NodeInput, ...]:
    """Make nodes of files, with the names of the files, without suffixes if these are unique."""
    stems = [PurePath(each.uri).stem for each in files]
    is_clear = len(set(stems)) == len(stems)
    return tuple(
        dataclasses.replace(each, name=stem if is_clear else each.uri)
        for each, stem in zip(files, stems, strict=True)
    )


def _identity(uri: str) -> str:
    try:
        return os.path.realpath(path_of_uri(uri))
    except ConfigError:
        return uri


def found_in(directory: str) -> Iterable[str]:
    """Return XML files and fleet files below a directory, in a stable order, without hidden directories.

    Files of other kinds are among them if they have XML of a configuration inside.
    """
    for place, directories, names in os.walk(directory):
        directories[:] = sorted(each for each in directories if not each.startswith("."))
        for name in sorted(names):
            path = f"{place.rstrip('/')}/{name}"
            if name.endswith(".xml") or name == FLEET_FILE:
                yield path
            elif name.endswith(_OTHER_SUFFIXES):
                # A file of another kind that cannot be read is not looked for: nobody named it.
                with contextlib.suppress(ConfigError):
                    if WITHIN_OTHERS.search(read_bytes(path)):
                        yield path


def fleet_input(path: str, environ: Mapping[str, str]) -> DeploymentInput:
    """Return the deployment of a fleet file; if the file is wrong, it has problems and no nodes."""
    try:
        fleet = load_fleet(shown_path(path) if "://" not in path else path)
    except ConfigError as error:
        return DeploymentInput((), error.path, is_fleet=True, problems=error.problems)
    return DeploymentInput(tuple(_nodes(fleet, environ)), fleet.path, is_fleet=True, is_declared=True)


def _nodes(fleet: Fleet, environ: Mapping[str, str]) -> Iterable[NodeInput]:
    for node in fleet.nodes:
        uri = node.file if "://" in node.file else shown_path(node.file)
        yield NodeInput(uri, node.environ(environ), node.name, node.role, domain=node.domain)


def named_nodes(
    nodes: Sequence[str], variables: Sequence[str], environ: Mapping[str, str]
) -> tuple[DeploymentInput | None, dict[str, str]]:
    """Make a deployment of `name=file` texts, and an environment with `VAR=value` texts added.

    `name:VAR=value` sets a variable for one of the named nodes only.

    Raises:
        UsageError: a text of another shape, a node named twice, or a variable for an unknown node.
    """
    common = dict(environ)
    own: dict[str, dict[str, str]] = {}
    for text in variables:
        target, value = _divided(text, "--env", "VAR=value or node:VAR=value")
        node, colon, variable = target.rpartition(":")
        if not variable:
            raise UsageError(f"--env {text!r}: the variable has no name")
        if colon:
            own.setdefault(node, {})[variable] = value
        else:
            common[variable] = value
    inputs: dict[str, NodeInput] = {}
    for text in nodes:
        name, file = _divided(text, "--node", "name=file")
        if name in inputs:
            raise UsageError(f"--node {name!r} is given twice")
        uri = file if "://" in file else shown_path(file)
        inputs[name] = NodeInput(uri, {**common, **own.get(name, {})}, name)
    unknown = sorted(set(own) - set(inputs))
    if unknown:
        raise UsageError(f"--env names {', '.join(map(repr, unknown))}, but no --node does")
    named = DeploymentInput(tuple(inputs.values()), is_fleet=True, is_declared=True) if inputs else None
    return named, common


def _divided(text: str, option: str, shape: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not equals or not left or (option == "--node" and not right):
        raise UsageError(f"{option} {text!r} is not of the form {shape}")
    return left, right
