"""`python -m engine URI`: one node in the foreground.

Exit codes: 0 it ended in order, 1 it could not run or died, 2 its configuration cannot be run.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import pathlib
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

if __name__ == "__main__":
    gc.disable()  # nothing that is imported is garbage, but looking for it takes a tenth of the time

from engine.config import ConfigError, load
from engine.config.problems import quoted
from engine.supervisor.lease_link import LinkError, SupervisorLink
from engine.supervisor.policy import EXIT_CONFIGURATION, EXIT_DIED, EXIT_ENDED
from engine.tracing.levels import Level, ReportType
from engine.tracing.record import TextFormat, Timestamps, json_format
from engine.tracing.reports import Reporter, ReportTargetError
from engine.tracing.sinks import Rotation, open_sink
from engine.tracing.tracer import Output, Tracer
from engine.tracing.version import product_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.config import Configuration
    from engine.runtime.past import Past

DEFAULT_URI: Final = "OSPL_URI"
COLLECTION: Final = (100_000, 20, 50)
"""When Python looks for cyclic garbage. A node makes samples by the million and hardly any cycle: with the
usual thresholds, looking takes 40 % of the time in which a set of a million samples is filled."""
NODE_NAME: Final = "OSPLTOOL_NODE_NAME"
"""Set for a node of a fleet: its name there."""
TRACE_JSON: Final = "OSPLTOOL_TRACE_JSON"
"""A file, `stdout` or `stderr`: every event goes there as a line of JSON, besides the configured trace."""
TRACE_ROTATION: Final = "OSPLTOOL_TRACE_ROTATION"
"""`SIZE[:FILES]`, such as `64M:5`: when trace files are replaced, and how many former ones are kept."""
_OUTPUT_FILE: Final = "//OpenSplice/DurabilityService/Tracing/OutputFile"
_REFUSED: Final = "lifecycle.bad-configuration"
_ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node until it is told to end."""
    parser = argparse.ArgumentParser(prog="python -m engine", description="Run one node in the foreground.")
    parser.add_argument("uri", nargs="?", default=os.environ.get(DEFAULT_URI), help=f"default ${DEFAULT_URI}")
    parser.add_argument("--role", help="replaces //OpenSplice/Domain/Role")
    options = parser.parse_args(arguments)
    if not options.uri:
        parser.error(f"no configuration: give a URI or set {DEFAULT_URI}")
    link = None
    try:
        link = SupervisorLink.from_environ(os.environ)
        configuration = load(options.uri, os.environ, role=options.role)
        tracer = make_tracer(configuration)
        reporter = make_reporter(configuration)
    except (ConfigError, LinkError, ReportTargetError, RotationError, TraceFileError, OSError) as error:
        _tell_end(link, error)
        return EXIT_CONFIGURATION
    # A supervisor reports the refusal, in the same words: one end, one record in ospl-error.log.
    reporter.attach(tracer, without=(_REFUSED,) if link else ())
    with contextlib.closing(tracer), contextlib.closing(reporter):
        return serve(configuration, tracer, link)


def serve(configuration: Configuration, tracer: Tracer, link: SupervisorLink | None) -> int:
    """Run the node that a configuration describes, and remember how it ended."""
    from engine.runtime import past

    persistent = configuration.persistent
    path = pathlib.Path(persistent.store_directory, past.FILE) if persistent else None
    remembered = past.Past(path, time.time_ns, pid=os.getpid(), version=product_version())
    tracer.subscribe(remembered.event)
    end = "an error of ospltool; its trace says which"
    with contextlib.closing(remembered):
        try:
            code, end = _serve(configuration, tracer, link, remembered)
        finally:
            remembered.end(end)
    return code


def _serve(
    configuration: Configuration, tracer: Tracer, link: SupervisorLink | None, past: Past
) -> tuple[int, str]:
    """The exit code, and how the node ended."""
    from engine.dds import wheel

    wheel.import_used_parts_only()
    from engine.dds.errors import UnsupportedCyclone
    from engine.runtime.past import IN_ORDER

    try:
        from engine.node.process import ConfigurationRefused, NodeError, RunningNode
    except UnsupportedCyclone as fault:
        return (_died if fault.may_pass else _refused)(fault, tracer, link)

    gc.set_threshold(*COLLECTION)
    gc.freeze()  # modules stay, so they are not looked at again
    gc.enable()
    if link:
        link.report("INIT")
    lines = [
        f"- {setting.path}: {setting.value} ({setting.origin}{', no effect' if setting.ignored else ''})"
        for setting in configuration.settings
    ]
    tracer.event_with_lines("lifecycle.configuration", lines)
    try:
        name = os.environ.get(NODE_NAME, configuration.domain.name)
        signals: list[str] = []
        node = RunningNode(configuration, name, tracer, os.environ, link, past=past)

        def end(received: int, _: object) -> None:
            signals.append(signal.Signals(received).name)
            node.request_stop(signals[-1])

        for number in _ENDING_SIGNALS:
            signal.signal(number, end)
        while True:
            tell_ignored(configuration, tracer)  # consoles forget what was said before a node began
            node.run()
            if node.carries is None:
                break
            if signals:  # between two nodes nobody was there to hear it
                tracer.event("lifecycle.stopped")
                break
            node = RunningNode(configuration, name, tracer, os.environ, link, node.carries, past)
            if signals:
                node.request_stop(signals[-1])
    except ConfigurationRefused as refusal:
        return _refused(refusal, tracer, link)
    except NodeError as fault:
        return _died(fault, tracer, link)
    except Exception as error:
        tracer.event("lifecycle.unrecoverable", cause=repr(error))
        raise
    return EXIT_ENDED, IN_ORDER


def _died(fault: Exception, tracer: Tracer, link: SupervisorLink | None) -> tuple[int, str]:
    tracer.event("lifecycle.unrecoverable", cause=str(fault))
    return _ended(fault, EXIT_DIED, link)


def _refused(refusal: Exception, tracer: Tracer, link: SupervisorLink | None) -> tuple[int, str]:
    """End for a reason that another start would find again."""
    tracer.event(_REFUSED, cause=str(refusal))
    return _ended(refusal, EXIT_CONFIGURATION, link)


def _ended(cause: Exception, code: int, link: SupervisorLink | None) -> tuple[int, str]:
    _tell_end(link, cause)
    return code, str(cause)


def _tell_end(link: SupervisorLink | None, cause: Exception) -> None:
    """Say why the node ends: through its supervisor, which prints the reason, or without one on stderr."""
    if link:
        link.end(str(cause))
    else:
        print(f"ospltool: {cause}", file=sys.stderr)  # noqa: T201  # narration of a program


def tell_ignored(configuration: Configuration, tracer: Tracer) -> None:
    """Name everything in the file that has no effect on a node, whether not needed or misspelt."""
    for each in configuration.ignored:
        place = f"{each.origin.file}:{each.origin.line}"
        event = "lifecycle.setting-unknown" if each.is_unknown else "lifecycle.setting-ignored"
        tracer.event(event, place=place, setting=each.path, reason=each.reason)


def make_tracer(configuration: Configuration) -> Tracer:
    """The trace as configured; no output file means no trace, but consoles still get events.

    Raises:
        TraceFileError: an output file cannot be opened.
        RotationError: the environment asks for a rotation that there is not.
    """
    tracing, rotation = configuration.tracing, _rotation()
    outputs: list[Output] = []
    if tracing.output_file is not None:
        kind = Timestamps.OFF
        if tracing.has_timestamps:
            kind = Timestamps.ABSOLUTE if tracing.absolute_timestamps else Timestamps.RELATIVE
        try:
            sink = open_sink(
                tracing.output_file, pathlib.Path(), synchronous=tracing.synchronous, rotation=rotation
            )
        except OSError as error:
            place = configuration.origin_of(_OUTPUT_FILE)
            raise TraceFileError(f"{place}: {_OUTPUT_FILE}", tracing.output_file, error) from error
        level = Level[tracing.verbosity.name]
        outputs.append(Output(sink, level, TextFormat(kind, start_ns=time.time_ns())))
    json_file = os.environ.get(TRACE_JSON)
    if json_file:
        try:
            sink = open_sink(json_file, pathlib.Path(), rotation=rotation)
        except OSError as error:
            raise TraceFileError(TRACE_JSON, json_file, error) from error
        outputs.append(Output(sink, Level.FINEST, json_format))
    return Tracer(time.time_ns, outputs)


class TraceFileError(Exception):
    """A trace file that cannot be opened; `setting` names it, with its place."""

    def __init__(self, setting: str, file: str, error: OSError) -> None:
        super().__init__(
            f"{setting}: {quoted(file)} cannot be opened as a trace file: {error.strerror};"
            " name a file that can be written, stdout or stderr"
        )


class RotationError(Exception):
    """The environment variable for the rotation of traces has a value that cannot be used."""


def _rotation() -> Rotation | None:
    text = os.environ.get(TRACE_ROTATION, "").strip()
    try:
        return Rotation.parse(text) if text else None
    except ValueError as error:
        raise RotationError(f"{TRACE_ROTATION}: {error}") from None


def make_reporter(configuration: Configuration) -> Reporter:
    """ospl-info.log and ospl-error.log, where the environment says.

    Raises:
        ReportTargetError: a variable has a value that cannot be used.
    """
    domain = configuration.domain
    return Reporter(
        "ospltool",
        product_version(),
        os.environ,
        time.time_ns,
        domain_id=domain.id,
        append=domain.report_append,
        verbosity=ReportType.configured(domain.report_verbosity),
    )


if __name__ == "__main__":
    sys.exit(main())
