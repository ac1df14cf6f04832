"""Texts of a supervisor for people: its log, and records in ospl-info.log and ospl-error.log."""

from __future__ import annotations

import datetime
import pathlib
import sys
import time
from typing import TYPE_CHECKING

from engine.supervisor.policy import NodePhase
from engine.tracing.levels import ReportType
from engine.tracing.reports import Reporter, ReportTargetError
from engine.tracing.version import product_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.supervisor.launch import Launch
    from engine.supervisor.rundir import RunRecord

_CONTEXT = "The OpenSplice domain service"


class Narrator:
    """Writes a line for each change, and a report for changes that an operator must know."""

    def __init__(self, launch: Launch, environ: Mapping[str, str]) -> None:
        self._last = ""
        self._reporter: Reporter | None = None
        try:
            self._reporter = Reporter(
                "ospltool",
                product_version(),
                environ,
                time.time_ns,
                directory=pathlib.Path(launch.working_directory),
                domain_id=launch.domain_id,
                append=launch.report_append,
                verbosity=ReportType.configured(launch.report_verbosity),
            )
        except ReportTargetError as error:
            self._log(str(error))

    def __call__(self, record: RunRecord) -> None:
        """Write a change."""
        reason = f": {record.reason}" if record.reason else ""
        text = f"{record.domain_name} ({record.configuration}) {record.phase}{reason}"
        if record.node is not None:
            text += f", process {record.node.pid}"
        if text == self._last:
            return
        self._last = text
        self._log(text)
        kind = _report_type(record)
        if kind is not None and self._reporter is not None:
            description = (
                f"The service 'durability' of domain \"{record.domain_name}\" {record.phase}{reason}"
            )
            self._reporter.report(kind, description, context=_CONTEXT, thread="spliced")

    @staticmethod
    def _log(text: str) -> None:
        moment = datetime.datetime.now(datetime.UTC).astimezone()
        sys.stderr.write(f"{moment.strftime('%Y-%m-%dT%H:%M:%S%z')} supervisor: {text}\n")
        sys.stderr.flush()


def _report_type(record: RunRecord) -> ReportType | None:
    if record.phase is NodePhase.DIED:
        return ReportType.ERROR
    if record.is_unresponsive or record.phase in (NodePhase.RESTARTING, NodePhase.KILLING):
        return ReportType.WARNING
    return None
