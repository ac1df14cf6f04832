"""Findings of `ospltool check` in the configurations beside the traces."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable

from ospltool.check.commands import UsageFault, check, choice, deployments
from ospltool.diagnostics.model import Diagnostic
from ospltool.forensics.attachments import Attachment, AttachmentKind


def findings(attachments: Iterable[Attachment]) -> tuple[tuple[Diagnostic, ...] | None, tuple[str, ...]]:
    """Return the findings of the configurations as one deployment (None without files), and problems.

    The findings show the paths that the user gave.
    """
    given = [one for one in attachments if one.what is AttachmentKind.CONFIGURATION]
    files = {str(one.path): one.name for one in given}
    if not files:
        return None, ()
    names = [one.node for one in given]
    is_clear = len(set(names)) == len(names) and all(name and "=" not in name for name in names)
    nodes = [f"{one.node}={one.path}" for one in given] if is_clear else []
    paths = [] if is_clear else list(files)
    try:
        found = deployments(paths, nodes, [], dict(os.environ), together=len(paths) > 1, skip_others=True)
        report = check(found, choice([], [], [], [], "info"))
    except UsageFault as cause:
        return (), (f"the configurations could not be checked: {cause}",)
    named = [
        dataclasses.replace(
            each, place=dataclasses.replace(each.place, path=files.get(each.place.path, each.place.path))
        )
        for each in report.diagnostics
    ]
    return tuple(sorted(named, key=lambda each: (-each.severity, each.code, each.place.path))), ()
