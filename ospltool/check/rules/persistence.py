"""DUR60x: what is stored, where, and what is not although it looks so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from engine.config import ProblemKind
from engine.config.settings import StoreMode
from engine.core.name_spaces import Durability
from engine.dds.proofs import DomainSecret, SecretError
from ospltool.check import edits
from ospltool.check.registry import NOWHERE, OPENSPLICE, OSPLTOOL, rule
from ospltool.check.views import NodeView
from ospltool.diagnostics.model import Finding, Severity

_REBOOT = "is emptied at reboot"
_WEEKS = "is cleaned of what is old, by systemd after 30 days"
_TEMPORARY = {"/tmp": _REBOOT, "/var/tmp": _WEEKS, "/dev/shm": _REBOOT, "/run": _REBOOT}  # noqa: S108 - looked for, not used


@rule("DUR601", "persistent-without-store", Severity.WARNING)
def persistent_without_store(node: NodeView) -> Iterator[Finding]:
    """A Policy promises persistent data, but the file says nowhere where to store it.

    Why: The data is kept in memory only and is gone when the last node stops.

    Example:
        <Policy durability="Persistent" .../> without <Persistent>
    Use instead:
        <Persistent><StoreDirectory>/var/lib/durability</StoreDirectory></Persistent>
    OpenSplice: Runs without persistency, and says so only in the trace: `Persistency has not been
        enabled...`
    Reference: deployment guide 5.2.3.2
    """
    if node.configuration.persistent is None:
        for policy, element in node.policies:
            if policy.durability is Durability.PERSISTENT:
                place = element.attribute("durability") or element
                message = (
                    f"'{policy.name_space}' is to be persistent, but there is no Persistent/StoreDirectory"
                )
                yield node.found(place, message)


@rule("DUR602", "durable-without-store", Severity.INFO)
def durable_without_store(node: NodeView) -> Iterator[Finding]:
    """A Policy keeps data as durable as it is, but persistent data has nowhere to go.

    Why: Durable means: persistent data on the disk, transient data in memory. Without a store the
        persistent data is transient as well.

    Example:
        <Policy durability="Durable" .../> without <Persistent>
    Use instead:
        durability="Transient" to say that nothing is stored, or a Persistent/StoreDirectory
    OpenSplice: Runs without persistency, and says so only in the trace.
    Reference: deployment guide 5.2.3.2
    """
    if node.configuration.persistent is None:
        for policy, element in node.policies:
            if policy.durability is Durability.DURABLE:
                place = element.attribute("durability") or element
                message = f"without StoreDirectory, persistent data of '{policy.name_space}' stays in memory"
                yield node.found(place, message)


@rule("DUR603", "unused-store", Severity.INFO)
def unused_store(node: NodeView) -> Iterator[Finding]:
    """There is a store, but no policy stores anything in it.

    Why: Who sees the directory believes that data survives a power cut.

    Example:
        <Persistent>...</Persistent> with <Policy durability="Transient" .../> only
    Use instead:
        <Policy durability="Persistent" .../>
    OpenSplice: Opens the store all the same.
    Reference: deployment guide 5.2.3.2
    """
    element = node.setting("Persistent")
    policies = node.configuration.name_spaces.policies
    if (
        element
        and policies
        and all(p.durability not in (Durability.PERSISTENT, Durability.DURABLE) for p in policies)
    ):
        yield node.found(element.name_span, "no Policy stores anything here", subject=element.path)


@rule("DUR604", "empty-store-directory", Severity.ERROR)
def empty_store_directory(node: NodeView) -> Iterator[Finding]:
    """The store directory is empty.

    Why: Persistent data has nowhere to go.

    Example:
        <StoreDirectory></StoreDirectory>
    Use instead:
        <StoreDirectory>/var/lib/durability</StoreDirectory>
    OpenSplice: Fails to open the store quietly and runs without persistency. ospltool nodes refuse to
        start.
    Reference: //OpenSplice/DurabilityService/Persistent/StoreDirectory
    """
    for problem in node.interpreted.problems:
        if problem.kind is not ProblemKind.EMPTY_VALUE or not problem.subject.endswith("/StoreDirectory"):
            continue
        element = node.setting("Persistent/StoreDirectory")
        if not (element and element.value and element.value.is_left_empty):  # DUR011
            yield node.from_problem(problem, blocks=NOWHERE)


@rule("DUR605", "temporary-store", Severity.WARNING)
def temporary_store(node: NodeView) -> Iterator[Finding]:
    """The store lies in a directory that is cleaned up by itself.

    Why: Persistent data is meant to outlive the system, and this is where the system cleans up, at
        reboot or after some weeks.

    Example:
        <StoreDirectory>/tmp/pstore</StoreDirectory>
    Use instead:
        <StoreDirectory>/var/lib/durability</StoreDirectory>
    OpenSplice: /tmp/pstore is its documented example.
    Reference: //OpenSplice/DurabilityService/Persistent/StoreDirectory
    """
    element = node.setting("Persistent/StoreDirectory")
    if element and element.value and not element.value.is_broken:
        path = str(PurePosixPath(element.text))
        for place, what in _TEMPORARY.items():
            if path == place or path.startswith(f"{place}/"):
                yield node.found(element.value, f"'{element.text}' {what}")


@rule("DUR606", "relative-store", Severity.INFO)
def relative_store(node: NodeView) -> Iterator[Finding]:
    """The store directory is a relative path.

    Why: It depends on the directory from which the node is started; started from elsewhere, the node
        finds no data and begins with an empty set.

    Example:
        <StoreDirectory>pstore</StoreDirectory>
    Use instead:
        <StoreDirectory>/var/lib/durability</StoreDirectory>
    OpenSplice: Takes it from the current directory, too.
    Reference: //OpenSplice/DurabilityService/Persistent/StoreDirectory
    """
    element = node.setting("Persistent/StoreDirectory")
    if element and element.value and element.text and not PurePosixPath(element.text).is_absolute():
        yield node.found(element.value, "the store depends on where the node is started")


@rule("DUR607", "key-value-store-ignored", Severity.WARNING, targets=OPENSPLICE)
def key_value_store_ignored(node: NodeView) -> Iterator[Finding]:
    """KeyValueStore is configured, but StoreMode does not ask for it.

    Why: The data goes to XML files.

    Example:
        <Persistent>...<KeyValueStore type="sqlite3"/></Persistent>
    Use instead:
        <Persistent>...<StoreMode>KV</StoreMode><KeyValueStore type="sqlite3"/></Persistent>
    OpenSplice: StoreMode is XML by default, and KeyValueStore is then not looked at.
    Reference: //OpenSplice/DurabilityService/Persistent/StoreMode
    """
    settings = node.configuration.persistent
    element = node.setting("Persistent/KeyValueStore")
    if settings and element and settings.mode is not StoreMode.KV:
        mode = node.setting("Persistent/StoreMode")
        related = (node.place(mode, "the store is XML"),) if mode else ()
        message = "KeyValueStore has no effect: StoreMode is XML"
        yield node.found(element, message, related=related)


@rule("DUR608", "optimize-interval-rounded", Severity.INFO, targets=OPENSPLICE)
def optimize_interval_rounded(node: NodeView) -> Iterator[Finding]:
    """StoreOptimizeInterval has a value that OpenSplice changes, or that its store ignores.

    Why: The store is tidied up at other times than the file says.

    Example:
        <StoreOptimizeInterval>3</StoreOptimizeInterval>
    Use instead:
        <StoreOptimizeInterval>10</StoreOptimizeInterval> with an XML store, none with a KV store
    OpenSplice: Takes 10 for 1 to 9. The KV store has nothing to optimise.
    Reference: //OpenSplice/DurabilityService/Persistent/StoreOptimizeInterval
    """
    settings = node.configuration.persistent
    element = node.setting("Persistent/StoreOptimizeInterval")
    if settings is None or element is None or not settings.optimize_interval:
        return
    if settings.mode is StoreMode.KV:
        fix = edits.remove_element(node, element)
        yield node.found(element, "the KV store does not look at StoreOptimizeInterval", fix=fix)
    elif settings.optimize_interval < 10:
        message = f"OpenSplice takes 10 instead of {settings.optimize_interval}"
        rounded = edits.replace_value(node, element.value, "10") if element.value else None
        yield node.found(element, message, fix=rounded)


@rule("DUR609", "trace-in-store", Severity.WARNING)
def trace_in_store(node: NodeView) -> Iterator[Finding]:
    """The trace is written into the store directory.

    Why: A store is copied, replaced and deleted as a whole; the trace would go with it, and grow it.

    Example:
        <StoreDirectory>/d</StoreDirectory> with <OutputFile>/d/durability.log</OutputFile>
    Use instead:
        <OutputFile>/var/log/durability.log</OutputFile>
    OpenSplice: Has no check for it.
    Reference: //OpenSplice/DurabilityService/Tracing/OutputFile
    """
    element = node.setting("Tracing/OutputFile")
    store = node.setting("Persistent/StoreDirectory")
    if element and store and element.value and store.text and element.text:
        file, directory = PurePosixPath(element.text), PurePosixPath(store.text)
        if directory in file.parents and directory != PurePosixPath():
            message = "the trace lies in the store directory"
            yield node.found(element.value, message, related=(node.place(store, "the store"),))


@rule("DUR610", "xml-store-limits", Severity.INFO, targets=OPENSPLICE)
def xml_store_limits(node: NodeView) -> Iterator[Finding]:
    """Persistent data is kept in the XML store, which does not scale.

    Why: A file is written again for each dispose; a topic may have 2 GiB at most; the quality of a set is
        the time of its files, so that a copy of an old store wins the election.

    Example:
        <Persistent><StoreDirectory>/d</StoreDirectory></Persistent>
    Use instead:
        <Persistent><StoreDirectory>/d</StoreDirectory><StoreMode>KV</StoreMode>...
    OpenSplice: XML is the default. ospltool nodes have a store of their own, whatever is set.
    Reference: //OpenSplice/DurabilityService/Persistent/StoreMode
    """
    settings = node.configuration.persistent
    element = node.setting("Persistent")
    if settings and element and settings.mode is StoreMode.XML and not element.find("KeyValueStore"):
        thing = element.find("StoreMode") or element.name_span
        yield node.found(
            thing, "OpenSplice keeps this data in XML files", subject=f"{element.path}/StoreMode"
        )


@rule("DUR612", "impossible-store", Severity.WARNING)
def impossible_store(node: NodeView) -> Iterator[Finding]:
    """The store directory cannot be made on this machine: a part of its path is no directory.

    Why: Persistent data has nowhere to go.

    Example:
        <StoreDirectory>/dev/null/store</StoreDirectory>
    Use instead:
        <StoreDirectory>/var/lib/durability</StoreDirectory>
    OpenSplice: Fails to open the store quietly and runs without persistency. ospltool nodes refuse to
        start.
    Reference: //OpenSplice/DurabilityService/Persistent/StoreDirectory
    """
    element = node.setting("Persistent/StoreDirectory")
    if element and element.value and not element.value.is_broken and element.text.startswith("/"):
        obstacle = _obstacle(element.text)
        if obstacle:
            message = f"'{element.text}' cannot be made here: '{obstacle}' is no directory"
            yield node.found(element.value, message)


def _obstacle(path: str) -> str:
    """The part of a path that is there and is no directory; empty when a directory can be made."""
    try:
        for part in (Path(path), *Path(path).parents):
            if part.exists():
                return "" if part.is_dir() else str(part)
    except (OSError, ValueError):  # may not be looked at, or no path at all
        return ""
    return ""


@rule("DUR613", "unusable-secret", Severity.ERROR, targets=OSPLTOOL)
def unusable_secret(node: NodeView) -> Iterator[Finding]:
    """The file of the domain's secret cannot be used on this machine.

    Why: The node does not start: without the secret it would accept messages of everybody. If it runs, it
        keeps the secret that it read before, and nodes with a newer one refuse it.

    Example:
        <DomainSecret>/etc/opt/secret</DomainSecret>, with mode 0644
    Use instead:
        A file of the user that runs the node, with mode 0600, with one secret of at least 32 characters in
        each line: `openssl rand -hex 32`. It is a warning if the file is not there or belongs to another
        user: then check on the machine of the node, as the user that runs it.
    OpenSplice: Does not know the element, and refuses the file.
    Reference: //OpenSplice/Domain/DomainSecret
    """
    element = node.domain_setting("DomainSecret")
    if element and element.value and not element.value.is_broken and element.text:
        try:
            DomainSecret(element.text)
        except SecretError as fault:
            severity = Severity.WARNING if fault.is_local else None
            yield node.found(element.value, str(fault), severity=severity)


@rule("DUR611", "leveldb-store", Severity.WARNING, targets=OPENSPLICE)
def leveldb_store(node: NodeView) -> Iterator[Finding]:
    """The key-value store is LevelDB, which the community edition lacks and which stores no set as a whole.

    Why: A commit does nothing there: after a crash a part of a set may be on the disk, and the rest not. A
        build without LevelDB, such as those of the community edition, opens no store at all.

    Example:
        <KeyValueStore type="leveldb"/>
    Use instead:
        <KeyValueStore type="sqlite3"/>
    OpenSplice: Writes each sample on its own and synchronously. Its StorageParameters for LevelDB are
        read with an index that is off by one.
    Reference: //OpenSplice/DurabilityService/Persistent/KeyValueStore[@type]
    """
    element = node.setting("Persistent/KeyValueStore")
    attribute = element.attribute("type") if element else None
    if element and attribute and attribute.text.strip().lower() == "leveldb":
        parameters = element.find("StorageParameters")
        extra = ", and reads its parameters wrongly" if parameters and parameters.text else ""
        message = f"OpenSplice does not store sets as a whole in LevelDB{extra}"
        yield node.found(attribute, message)
