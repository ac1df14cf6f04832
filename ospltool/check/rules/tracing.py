"""DUR72x: what the service writes about itself."""

from __future__ import annotations

from collections.abc import Iterator

from engine.config.settings import Verbosity
from ospltool.check.registry import rule
from ospltool.check.views import NodeView
from ospltool.diagnostics.model import Finding, Severity

_STREAMS = ("stdout", "stderr")


@rule("DUR721", "finest-tracing", Severity.INFO)
def finest_tracing(node: NodeView) -> Iterator[Finding]:
    """The trace is as detailed as it can be.

    Why: Every step of an alignment is a line, and in OpenSplice every sample. The file grows without bound,
        unless OSPLTOOL_TRACE_ROTATION is set for an ospltool node, and the service slows down.

    Example:
        <Verbosity>FINEST</Verbosity>
    Use instead:
        <Verbosity>INFO</Verbosity> in production, FINEST to find a fault
    OpenSplice: Appends to the file at every start.
    Reference: deployment guide 5.3.5
    """
    tracing = node.configuration.tracing
    element = node.setting("Tracing/Verbosity")
    if element and tracing.output_file is not None and tracing.verbosity is Verbosity.FINEST:
        yield node.found(element, "FINEST traces every step, into a file that grows without bound")


@rule("DUR722", "tracing-nowhere", Severity.WARNING)
def tracing_nowhere(node: NodeView) -> Iterator[Finding]:
    """Tracing is configured, but without an output file nothing is traced.

    Why: It is noticed when the trace is needed.

    Example:
        <Tracing><Verbosity>FINE</Verbosity></Tracing>
    Use instead:
        <Tracing><OutputFile>durability.log</OutputFile><Verbosity>FINE</Verbosity></Tracing>
    OpenSplice: Traces only when OutputFile is there; the default of the schema does not apply.
    Reference: //OpenSplice/DurabilityService/Tracing/OutputFile
    """
    element = node.setting("Tracing")
    if element and not element.find("OutputFile"):
        yield node.found(
            element.name_span, "there is no OutputFile, so nothing is traced", subject=element.path
        )


@rule("DUR723", "empty-output-file", Severity.WARNING)
def empty_output_file(node: NodeView) -> Iterator[Finding]:
    """The output file of the trace is empty; durability.log in the current directory is taken.

    Why: Several services, or nodes, started in one directory write into one file.

    Example:
        <OutputFile></OutputFile>
    Use instead:
        <OutputFile>/var/log/durability.log</OutputFile>
    OpenSplice: Warns: `OutputFile configuration-parameter is empty, using default value
        "durability.log"`.
    Reference: //OpenSplice/DurabilityService/Tracing/OutputFile
    """
    element = node.setting("Tracing/OutputFile")
    if element and not element.text and not (element.value and element.value.is_left_empty):  # DUR011
        yield node.found(element, "the output file is empty; durability.log is taken")


@rule("DUR724", "synchronous-tracing", Severity.WARNING)
def synchronous_tracing(node: NodeView) -> Iterator[Finding]:
    """Every line of the trace is brought to the disk before the service goes on.

    Why: With FINE or more the service does little else.

    Example:
        <Tracing synchronous="true">
    Use instead:
        <Tracing synchronous="false">
    OpenSplice: Calls fsync for each line.
    Reference: //OpenSplice/DurabilityService/Tracing[@synchronous]
    """
    tracing = node.configuration.tracing
    element = node.setting("Tracing")
    attribute = element.attribute("synchronous") if element else None
    if attribute and tracing.synchronous and tracing.output_file is not None:
        severity = Severity.WARNING if tracing.verbosity >= Verbosity.FINE else Severity.INFO
        message = f"each line of a {tracing.verbosity.name} trace waits for the disk"
        yield node.found(
            attribute, message, severity=severity, subject="DurabilityService/Tracing@synchronous"
        )


@rule("DUR725", "traces-cannot-be-merged", Severity.INFO)
def traces_cannot_be_merged(node: NodeView) -> Iterator[Finding]:
    """The trace has no timestamps, or they count from the start of the service.

    Why: The traces of several nodes can then not be put in one order.

    Example:
        <Timestamps absolute="false">true</Timestamps>
    Use instead:
        <Timestamps absolute="true">true</Timestamps>
    OpenSplice: Traces absolute timestamps by default.
    Reference: //OpenSplice/DurabilityService/Tracing/Timestamps[@absolute]
    """
    tracing = node.configuration.tracing
    element = node.setting("Tracing/Timestamps")
    if (
        element
        and tracing.output_file is not None
        and not (tracing.has_timestamps and tracing.absolute_timestamps)
    ):
        what = "relative timestamps" if tracing.has_timestamps else "no timestamps"
        yield node.found(element, f"{what}: the trace cannot be merged with those of other nodes")


@rule("DUR726", "trace-on-a-stream", Severity.INFO)
def trace_on_a_stream(node: NodeView) -> Iterator[Finding]:
    """The trace goes to the standard output or the standard error stream.

    Why: A service has neither, unless it runs in the foreground; several nodes on one terminal mix their
        lines.

    Example:
        <OutputFile>stdout</OutputFile>
    Use instead:
        <OutputFile>/var/log/durability.log</OutputFile>
    OpenSplice: Knows stdout and stderr in any case.
    Reference: //OpenSplice/DurabilityService/Tracing/OutputFile
    """
    element = node.setting("Tracing/OutputFile")
    if element and element.value and element.text.strip().lower() in _STREAMS:
        yield node.found(
            element.value, f"the trace goes to {element.text.strip().lower()}", subject=element.path
        )


@rule("DUR727", "reports-off", Severity.WARNING)
def reports_off(node: NodeView) -> Iterator[Finding]:
    """The reports of the domain are switched off, and with them its errors.

    Why: Name-space conflicts, lost stores and refused fellows are reported nowhere else.

    Example:
        <Report verbosity="NONE"/>
    Use instead:
        <Report verbosity="INFO"/>
    OpenSplice: ospl-info.log and ospl-error.log stay empty; OSPL_VERBOSITY of the environment has its own
        say.
    Reference: //OpenSplice/Domain/Report[@verbosity]
    """
    element = node.domain_setting("Report")
    attribute = element.attribute("verbosity") if element else None
    if (
        element
        and attribute
        and node.configuration.domain.report_verbosity in ("NONE", "REPAIRED", "FATAL", "CRITICAL")
    ):
        message = f"errors are not reported with verbosity {node.configuration.domain.report_verbosity}"
        yield node.found(attribute, message, subject=f"{element.path}@verbosity")
