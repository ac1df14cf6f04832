from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from engine.tracing.levels import Level, ReportType
from engine.tracing.reports import Reporter, ReportTargetError
from engine.tracing.tracer import Tracer

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping

TIME_NS = 1_795_222_798_472_989_470


def reporter(
    directory: pathlib.Path,
    environ: Mapping[str, str] | None = None,
    *,
    append: bool | None = None,
    verbosity: ReportType | None = None,
) -> Reporter:
    return Reporter(
        "node",
        "0.1.0",
        environ or {},
        lambda: TIME_NS,
        directory=directory,
        domain_id=77,
        append=append,
        verbosity=verbosity,
        node="host",
    )


def test_a_record_has_the_shape_that_tools_read(tmp_path: pathlib.Path) -> None:
    log = reporter(tmp_path)
    log.report(ReportType.WARNING, "first\nsecond\x1b[31m", code=3, thread="masterMonitor")
    log.close()

    assert re.fullmatch(
        r"={88}\n"
        r"Report      : WARNING\n"
        r"Date        : 2026-11-2\dT\d\d:59:58[+-]\d{4}\n"
        r"Description : first\n"
        r"              second\\x1b\[31m\n"
        r"Node        : host\n"
        r"Process     : node <\d+>\n"
        r"Thread      : masterMonitor [0-9a-f]+\n"
        r"Internals   : 0\.1\.0///DurabilityService/test_reports\.py/\d+/3/1795222798\.472989470/77\n",
        (tmp_path / "ospl-info.log").read_text(),
    )


@pytest.mark.parametrize("kind", list(ReportType))
def test_records_go_to_the_log_of_their_type(kind: ReportType, tmp_path: pathlib.Path) -> None:
    log = reporter(tmp_path, verbosity=ReportType.DEBUG)
    log.report(kind, "x")
    log.close()
    expected = {"ospl-info.log"} if kind <= ReportType.WARNING else {"ospl-error.log"}
    assert {path.name for path in tmp_path.iterdir()} == (set() if kind is ReportType.NONE else expected)


@pytest.mark.parametrize(
    ("environ", "configured", "expected"),
    [
        ({}, None, ["INFO", "WARNING"]),
        ({"OSPL_VERBOSITY": "warning"}, None, ["WARNING"]),
        ({"OSPL_VERBOSITY": "0"}, None, ["DEBUG", "INFO", "WARNING"]),
        ({"OSPL_VERBOSITY": "DEBUG"}, ReportType.WARNING, ["WARNING"]),
        ({"OSPL_VERBOSITY": "NONE"}, None, []),
    ],
)
def test_verbosity_comes_from_the_configuration_then_the_environment(
    environ: dict[str, str], configured: ReportType | None, expected: list[str], tmp_path: pathlib.Path
) -> None:
    log = reporter(tmp_path, environ, verbosity=configured)
    for kind in (ReportType.DEBUG, ReportType.INFO, ReportType.WARNING):
        log.report(kind, "x")
    log.close()
    path = tmp_path / "ospl-info.log"
    text = path.read_text() if path.exists() else ""
    assert re.findall(r"^Report      : (\w+)$", text, re.MULTILINE) == expected


def test_logs_are_where_the_environment_says(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    log = reporter(tmp_path, {"OSPL_LOGPATH": "logs", "OSPL_INFOFILE": "i.log", "OSPL_ERRORFILE": "<stderr>"})
    log.report(ReportType.INFO, "x")
    log.report(ReportType.ERROR, "to the stream")
    log.close()
    assert (tmp_path / "logs" / "i.log").exists()
    assert "to the stream" in capfd.readouterr().err

    streams = reporter(tmp_path, {"OSPL_LOGPATH": "<stdout>"})
    streams.report(ReportType.ERROR, "both there")
    assert "both there" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("environ", "append", "kept"),
    [
        ({}, None, True),
        ({"OSPL_LOGAPPEND": "false"}, None, False),
        ({"OSPL_LOGAPPEND": "false"}, True, True),
        ({}, False, False),
    ],
)
def test_an_older_log_is_kept_unless_told_otherwise(
    environ: dict[str, str], append: bool | None, kept: bool, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "ospl-info.log").write_text("of the run before\n")
    log = reporter(tmp_path, environ, append=append)
    log.report(ReportType.INFO, "x")
    log.report(ReportType.INFO, "y")
    log.close()
    text = (tmp_path / "ospl-info.log").read_text()
    assert text.startswith("of the run before\n") == kept
    assert text.count("Description") == 2


@pytest.mark.parametrize(
    "environ",
    [{"OSPL_VERBOSITY": "loud"}, {"OSPL_LOGAPPEND": "perhaps"}, {"OSPL_INFOFILE": "collector:5140"}],
)
def test_a_variable_that_can_not_be_used_is_named(environ: dict[str, str], tmp_path: pathlib.Path) -> None:
    with pytest.raises(ReportTargetError, match=next(iter(environ))):
        reporter(tmp_path, environ)


def test_records_that_can_not_be_written_are_counted(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("no directory")
    for path, lost in (("file/logs", 1), ("a/new/directory", 0)):
        log = reporter(tmp_path, {"OSPL_LOGPATH": path})
        log.report(ReportType.INFO, "x")
        log.close()
        assert log.lost == lost


def test_events_with_a_report_make_one_whatever_the_trace_shows(tmp_path: pathlib.Path) -> None:
    tracer = Tracer(lambda: TIME_NS, recent_level=Level.NONE)
    log = reporter(tmp_path)
    log.attach(tracer)
    tracer.event("lifecycle.address", node="00ff")
    tracer.event("lifecycle.operational")
    tracer.event("group.complete", group="P.T")
    tracer.event("election.no-master", namespace="n", reason="nobody above 0")
    log.close()

    info = (tmp_path / "ospl-info.log").read_text()
    assert "Description : The durability service can be identified by ID: 00ff\n" in info
    assert "              ++ The service 'durability' is now operational.\n" in info
    assert info.count("Description") == 2
    assert "(nobody above 0)\n" in (tmp_path / "ospl-error.log").read_text()
