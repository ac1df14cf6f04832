"""The configuration of a persistence service in XML, with the place of every value.

ospltool interprets the topics of groups, synchronization, the QoS that it needs to converge, durable
subscriptions, the domain and the directory. Tags that would make it keep less are refused, as it would keep
more than its configuration allows; other tags have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from engine.config.problems import ByteRange, ConfigError, Problem, ProblemKind, printable, quoted
from engine.config.reader import read_document
from engine.config.settings import MAX_DOMAIN_ID
from engine.config.tree import Document, XmlElement
from engine.core import expressions
from engine.persistence.core.provider_selection import SynchronizationSettings

ROOT: Final = "dds"
SERVICE: Final = "persistence_service"
# A signed number of 32 bits, as in the QoS of DDS.
MAX_PERIOD_MS: Final = 2**31 - 1
# A signed number of 32 bits, as in the QoS of DDS.
MAX_COUNT: Final = 2**31 - 1
# Chosen, as the limit for sender ids (`engine.dds.cdr`).
MAX_NAME_CHARS: Final = 255

_DATA: Final = "data_synchronization"
_DEPRECATED: Final = "synchronize_data"
_SYNCHRONIZATION_TAGS: Final = (
    _DATA,
    _DEPRECATED,
    "synchronize_durable_subscription",
    "durable_subscription_synchronization_period",
)
_DATA_TAGS: Final = (
    "enable",
    "remote_provider_selection_period",
    "stable_provider_period_count",
    "max_remote_provider_change_period_count",
)
_SUBSCRIPTION_TAGS: Final = ("role_name", "topic_name", "quorum")
_ORDER: Final = "destination_order"
_READ: Final = {
    SERVICE: (
        ("name",),
        (
            "synchronization",
            "persistence_group",
            "durable_subscriptions",
            "participant",
            "filesystem",
            "persistent_storage",
            "annotation",
        ),
    ),
    "participant": (("name", "domain_id"), ("persistence_group", "durable_subscriptions", "domain_id")),
    "persistent_storage": ((), ("filesystem",)),
    "filesystem": ((), ("directory",)),
    "persistence_group": (
        ("name", "filter"),
        ("filter", "deny_filter", "content_filter", "datawriter_qos", "datareader_qos"),
    ),
    "datawriter_qos": ((), ("history", _ORDER)),
    "datareader_qos": ((), (_ORDER,)),
    "history": ((), ("kind", "depth")),
    _ORDER: ((), ("kind",)),
}
"""Interpreted attributes and elements, by their element; others have no effect."""
_NARROWING: Final = ("deny_filter", "content_filter")
"""Tags by which a group keeps less; to ignore them would keep what should not be kept."""
_PREFIX: Final = "DDS_"
"""The names of kinds may begin with it."""
_KEEP_LAST: Final = "KEEP_LAST_HISTORY_QOS"
_KEEP_ALL: Final = "KEEP_ALL_HISTORY_QOS"
_BY_SOURCE: Final = "BY_SOURCE_TIMESTAMP_DESTINATIONORDER_QOS"


class GroupSettings(msgspec.Struct, frozen=True):
    """One persistence_group: its topics, and their QoS.

    Attributes:
        name: its name.
        filter: expressions for topics, separated by commas.
        history_depth: history depth of the writer; None for KEEP_ALL.
        writer_by_source, reader_by_source: whether DESTINATION_ORDER is BY_SOURCE_TIMESTAMP.
        node: the element.
    """

    name: str
    filter: str
    history_depth: int | None
    writer_by_source: bool
    reader_by_source: bool
    node: XmlElement

    @property
    def converges(self) -> bool:
        """Whether replicas that keep this group end with the same last values."""
        return self.history_depth == 1 and self.writer_by_source and self.reader_by_source


class DurableSubscriptionSettings(msgspec.Struct, frozen=True):
    """One durable subscription that exists from the start, in every partition of its topic.

    Attributes:
        name: role_name, which its readers use.
        topic: topic_name.
        quorum: readers that must acknowledge a sample, from 1.
        node: the element.
    """

    name: str
    topic: str
    quorum: int
    node: XmlElement


class PersistenceService(msgspec.Struct, frozen=True):
    """One persistence_service element."""

    name: str
    synchronization: SynchronizationSettings
    groups: tuple[GroupSettings, ...]
    subscriptions: tuple[DurableSubscriptionSettings, ...]
    node: XmlElement
    domain_id: int | None = None
    """Domain of its participants; None if the file names none."""
    directory: str = ""
    """Directory of its files; empty if the file names none."""

    def refusals(self) -> list[Problem]:
        """Return the reasons why a process with this configuration must not start."""
        found = []
        for group in self.groups:
            if group.history_depth != 1:
                how_many = f"{group.history_depth} samples" if group.history_depth else "all samples"
                message = (
                    f"persistence_group {quoted(group.name)} keeps {how_many} of each instance; "
                    "a persistence service keeps the last one"
                )
                where = group.node.find("datawriter_qos/history") or group.node
                found.append(
                    _problem(ProblemKind.BAD_VALUE, where, message, "KEEP_LAST_HISTORY_QOS with depth 1")
                )
            found += self._narrowed(group)
        if not self.groups:
            message = (
                f"persistence_service {quoted(self.name)} has no persistence_group: it would keep nothing"
            )
            found.append(
                _problem(
                    ProblemKind.BAD_VALUE, self.node, message, '<persistence_group name="all" filter="*"/>'
                )
            )
        if self.node.attribute("name") and not (self.name and expressions.is_literal(self.name)):
            message = f"{quoted(self.name)} is not a valid name of a persistence_service"
            found.append(_problem(ProblemKind.BAD_VALUE, self.node, message))
        return found

    def _narrowed(self, group: GroupSettings) -> Iterator[Problem]:
        """Yield the parts of a group that would have to keep less."""
        for name in _NARROWING:
            for node in group.node.named(name):
                message = f"<{name}> is not supported: the service would keep what it should not"
                yield _problem(ProblemKind.BAD_VALUE, node, message, "name the topics to keep in <filter>")
        if "[" in group.filter:
            where = next(iter(group.node.named("filter")), group.node)
            message = f"the filter {quoted(group.filter)} has a set of characters"
            yield _problem(
                ProblemKind.BAD_VALUE,
                where,
                message,
                "only * and ? stand for others; write a filter for each name",
            )

    def without_effect(self) -> list[Problem]:
        """Return the parts of the file without effect, each with its place."""
        return list(_without_effect(self.node))


class InterpretedServices(msgspec.Struct, frozen=True):
    """The services of a document, with defaults in wrong places, and all problems."""

    services: tuple[PersistenceService, ...]
    problems: tuple[Problem, ...]


def is_persistence_service(document: Document) -> bool:
    """Tell whether a document configures persistence services."""
    root = document.root
    return root.name == SERVICE or (root.name == ROOT and bool(root.named(SERVICE)))


def load(uri: str, environ: Mapping[str, str], name: str = "") -> PersistenceService:
    """Read the configuration of one persistence service.

    Args:
        uri: a `file://` URI or a path.
        environ: the variables for `${VAR}`.
        name: the name of the service; empty for the only one.

    Raises:
        ConfigError: it has all problems, each with line and column.
    """
    document = read_document(uri, environ)
    interpreted = interpret(document)
    if interpreted.problems:
        raise ConfigError(interpreted.problems)
    services = [each for each in interpreted.services if not name or each.name == name]
    if len(services) != 1:
        names = ", ".join(quoted(each.name) for each in interpreted.services)
        what = f"no persistence_service {quoted(name)}" if name else "several persistence_service elements"
        hint = "" if name else "name one of them with --service"
        message = f"{what}; there are {names}"
        raise ConfigError([_problem(ProblemKind.SERVICE, document.root, message, hint, subject="")])
    return services[0]


def interpret(document: Document) -> InterpretedServices:
    """Interpret a document, and collect all problems."""
    reader = _Reader(document)
    services = reader.services()
    # Two passes found them; a person reads them from the top of the file down.
    problems = sorted((*document.problems, *reader.problems), key=lambda each: (each.line, each.column))
    return InterpretedServices(services, tuple(problems))


def _without_effect(node: XmlElement) -> Iterator[Problem]:
    attributes, children = _READ[node.name]
    for attribute in node.attributes:
        if attribute.name not in attributes:
            yield _ignored(node, f"{node.path}@{attribute.name}", attribute.name, attribute.name_span)
    for child in node.children:
        if child.name not in children:
            yield _ignored(child, child.path, f"<{child.name}>", child.name_span)
        elif child.name in _READ:
            yield from _without_effect(child)


def _ignored(node: XmlElement, subject: str, called: str, span: ByteRange) -> Problem:
    message = f"{printable(called)} has no effect on a persistence service of ospltool"
    return _problem(ProblemKind.UNKNOWN_ELEMENT, node, message, subject=subject, span=span)


def _problem(
    kind: ProblemKind,
    node: XmlElement,
    message: str,
    hint: str = "",
    *,
    subject: str | None = None,
    span: ByteRange | None = None,
) -> Problem:
    """Make a problem at an element.

    Args:
        kind: its kind.
        node: the element.
        message: what is wrong.
        hint: what to do; may be empty.
        subject: path of the setting; by default that of the element.
        span: what to underline; by default the name of the element.
    """
    where = span or node.name_span
    line, column = node.source.position(where.start)
    about = node.path if subject is None else subject
    return Problem(kind, message, node.source.path, line, column, where, about, hint)


def _in_participants(service: XmlElement, name: str) -> list[XmlElement]:
    """Return the children of that name, of the service itself and of its participant elements."""
    return [node for parent in (service, *service.named("participant")) for node in parent.named(name)]


class _Reader:
    """Reads a document and collects problems."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.problems: list[Problem] = []

    def _found(self, kind: ProblemKind, where: XmlElement, message: str, hint: str = "") -> None:
        span = where.value.span if where.value is not None and not where.children else where.name_span
        self.problems.append(_problem(kind, where, message, hint, span=span))

    def services(self) -> tuple[PersistenceService, ...]:
        root = self._document.root
        nodes = [root] if root.name == SERVICE else root.named(SERVICE) if root.name == ROOT else []
        if not nodes:
            message = f"there is no {SERVICE} element"
            self.problems.append(_problem(ProblemKind.ROOT, root, message, subject=""))
        found = tuple(self._service(node) for node in nodes)
        first: dict[str, XmlElement] = {}
        for each in found:
            again = first.setdefault(each.name, each.node)
            if again is not each.node:
                message = f"persistence_service {quoted(each.name)} is defined twice"
                hint = f"the first is in line {again.line}"
                self._found(ProblemKind.DUPLICATE_NAME, each.node, message, hint)
        return found

    def _service(self, node: XmlElement) -> PersistenceService:
        name = node.attribute("name")
        if name is None:
            self._found(ProblemKind.MISSING_ATTRIBUTE, node, f"this {SERVICE} has no name", 'name="…"')
        section = self._only(node, "synchronization")
        return PersistenceService(
            name.text if name else "",
            self._synchronization(section),
            tuple(self._groups(node)),
            tuple(self._subscriptions(node)),
            node,
            self._domain(node),
            self._directory(node),
        )

    def _domain(self, service: XmlElement) -> int | None:
        """Read the domain of the participants, which must be one."""
        found: dict[int, XmlElement] = {}
        for participant in service.named("participant"):
            attribute = participant.attribute("domain_id")  # some of RTI's examples have it so
            written = attribute.text.strip() if attribute else ""
            given = (participant, written) if written else self._value(participant, "domain_id")
            if given is None:
                continue
            node, text = given
            if not (text.isascii() and text.isdecimal() and int(text[:9]) <= MAX_DOMAIN_ID):
                self._found(
                    ProblemKind.OUT_OF_RANGE, node, f"{quoted(text)} is not a domain, 0 to {MAX_DOMAIN_ID}"
                )
            elif found.setdefault(int(text), node) is node and len(found) > 1:
                message = "the participants are in several domains; a persistence service is in one"
                self._found(
                    ProblemKind.BAD_VALUE, node, message, "make a persistence_service for each domain"
                )
        return next(iter(found), None)

    def _directory(self, service: XmlElement) -> str:
        """Read the directory of the files; its tag may be in persistent_storage."""
        parents = [service, *service.named("persistent_storage")]
        nodes = [node for parent in parents for node in parent.named("filesystem")]
        given = [self._value(node, "directory") for node in nodes]
        return next((each[1] for each in given if each), "")

    def _only(self, parent: XmlElement, name: str) -> XmlElement | None:
        """Return the child of that name, of which only one is allowed."""
        nodes = parent.named(name)
        for again in nodes[1:]:
            self._found(
                ProblemKind.REPEATED_ELEMENT,
                again,
                f"<{name}> may occur once",
                f"the first is in line {nodes[0].line}",
            )
        return nodes[0] if nodes else None

    def _synchronization(self, section: XmlElement | None) -> SynchronizationSettings:
        if section is None:
            return SynchronizationSettings()
        self._known(section, _SYNCHRONIZATION_TAGS)
        self._refuse_deprecated(section)
        data = self._only(section, _DATA)
        if data is not None:
            self._known(data, _DATA_TAGS)
        before = len(self.problems)
        stable = self._count(data, "stable_provider_period_count")
        bound = self._count(data, "max_remote_provider_change_period_count")
        if bound < stable and len(self.problems) == before:
            node = self._child(data, "max_remote_provider_change_period_count")
            node = node or self._child(data, "stable_provider_period_count")
            assert node is not None, "both defaults are 1"
            message = (
                f"max_remote_provider_change_period_count ({bound}) is less than "
                f"stable_provider_period_count ({stable})"
            )
            hint = f"a selection could never become stable; write {stable} or more"
            self._found(ProblemKind.OUT_OF_RANGE, node, message, hint)
        return SynchronizationSettings(
            enable=self._flag(data, "enable"),
            period_ms=self._number(data, "remote_provider_selection_period", 5_000, MAX_PERIOD_MS),
            stable_periods=stable,
            max_change_periods=max(bound, stable),
            synchronize_durable_subscriptions=self._flag(section, "synchronize_durable_subscription"),
            subscription_period_ms=self._number(
                section, "durable_subscription_synchronization_period", 5_000, MAX_PERIOD_MS
            ),
        )

    def _refuse_deprecated(self, section: XmlElement) -> None:
        node = self._child(section, _DEPRECATED)
        if node is not None and self._flag(section, _DEPRECATED):
            message = "synchronize_data is deprecated and refused: all would send everything to all"
            hint = "use <data_synchronization><enable>true</enable></data_synchronization>"
            self._found(ProblemKind.BAD_VALUE, node, message, hint)

    def _known(self, section: XmlElement, names: tuple[str, ...]) -> None:
        for child in section.children:
            if child.name not in names:
                message = f"<{child.name}> is not known in <{section.name}>"
                self._found(ProblemKind.UNKNOWN_ELEMENT, child, message, f"there are {', '.join(names)}")

    def _child(self, section: XmlElement | None, name: str) -> XmlElement | None:
        nodes = section.named(name) if section is not None else []
        return nodes[0] if nodes else None

    def _value(self, section: XmlElement | None, name: str) -> tuple[XmlElement, str] | None:
        """Return a present element, and its text."""
        node = self._only(section, name) if section is not None else None
        if node is None:
            return None
        if node.value is not None and node.value.is_broken:
            return None  # reported with the document
        if not node.text.strip():
            self._found(ProblemKind.EMPTY_VALUE, node, f"<{name}> has no value")
            return None
        return node, node.text.strip()

    def _flag(self, section: XmlElement | None, name: str) -> bool:
        given = self._value(section, name)
        if given is None:
            return False
        node, text = given
        named = text.removeprefix(_PREFIX).removeprefix("BOOLEAN_").lower()
        if named not in ("true", "false", "1", "0"):
            self._found(ProblemKind.BAD_VALUE, node, f"{quoted(text)} is neither true nor false")
        return named in ("true", "1")

    def _count(self, section: XmlElement | None, name: str) -> int:
        return self._number(section, name, 1, MAX_COUNT)

    def _number(self, section: XmlElement | None, name: str, default: int, highest: int) -> int:
        given = self._value(section, name)
        if given is None:
            return default
        node, text = given
        if not (text.isascii() and text.removeprefix("-").isdecimal()) or len(text) > 20:
            self._found(ProblemKind.BAD_VALUE, node, f"{quoted(text)} is not a whole number")
            return default
        number = int(text)
        if not 1 <= number <= highest:
            self._found(ProblemKind.OUT_OF_RANGE, node, f"{number} is not between 1 and {highest}")
            return default
        return number

    def _groups(self, service: XmlElement) -> Iterator[GroupSettings]:
        for node in _in_participants(service, "persistence_group"):
            name = node.attribute("name")
            yield GroupSettings(
                name=name.text if name else "",
                filter=self._filter(node),
                history_depth=self._history(node),
                writer_by_source=self._is_by_source(node, "datawriter_qos"),
                reader_by_source=self._is_by_source(node, "datareader_qos"),
                node=node,
            )

    def _filter(self, group: XmlElement) -> str:
        """Read the topics of a group, from its elements or its attribute; all without either."""
        attribute, nodes = group.attribute("filter"), group.named("filter")
        if attribute and nodes:
            message = "the filter is given twice, as an attribute and as an element"
            self._found(ProblemKind.REPEATED_ELEMENT, nodes[0], message)
        for node in nodes:
            if not node.text.strip():
                self._found(ProblemKind.EMPTY_VALUE, node, "<filter> has no value")
        if nodes:
            return ",".join(node.text for node in nodes)
        return attribute.text if attribute else "*"

    def _subscriptions(self, service: XmlElement) -> Iterator[DurableSubscriptionSettings]:
        first: dict[tuple[str, str], XmlElement] = {}
        for section in _in_participants(service, "durable_subscriptions"):
            self._known(section, ("element",))
            for node in section.named("element"):
                self._known(node, _SUBSCRIPTION_TAGS)
                name, topic = (self._name(node, tag) for tag in _SUBSCRIPTION_TAGS[:2])
                quorum = self._count(node, "quorum")
                if not name or not topic:
                    continue
                again = first.setdefault((name, topic), node)
                if again is not node:
                    message = f"durable subscription {quoted(name)} of topic {quoted(topic)} is defined twice"
                    self._found(
                        ProblemKind.DUPLICATE_NAME, node, message, f"the first is in line {again.line}"
                    )
                    continue
                yield DurableSubscriptionSettings(name, topic, quorum, node)

    def _name(self, element: XmlElement, tag: str) -> str:
        """Read a required name; report a missing one and return nothing."""
        if not element.named(tag):
            message = f"a durable subscription needs <{tag}>"
            self._found(ProblemKind.MISSING_ELEMENT, element, message, f"<{tag}>…</{tag}>")
            return ""
        given = self._value(element, tag)
        if given is None:
            return ""
        node, text = given
        if len(text) > MAX_NAME_CHARS or not text.isprintable():
            message = f"<{tag}> is not a name of 1 to {MAX_NAME_CHARS} printable characters"
            self._found(ProblemKind.TOO_LONG if text.isprintable() else ProblemKind.BAD_VALUE, node, message)
            return ""
        return text

    def _history(self, group: XmlElement) -> int | None:
        """Read the history depth; the default of DDS is KEEP_LAST 1, None is KEEP_ALL."""
        history = group.find("datawriter_qos/history")
        if history is None:
            return 1
        kind = self._value(history, "kind")
        if kind is not None and (named := kind[1].removeprefix(_PREFIX)) != _KEEP_LAST:
            if named != _KEEP_ALL:
                message = f"{quoted(kind[1])} is neither {_KEEP_LAST} nor {_KEEP_ALL}"
                self._found(ProblemKind.BAD_VALUE, kind[0], message)
            return None
        return self._number(history, "depth", 1, MAX_COUNT)

    def _is_by_source(self, group: XmlElement, which: str) -> bool:
        node = group.find(f"{which}/destination_order/kind")
        return node is not None and node.text.strip().removeprefix(_PREFIX) == _BY_SOURCE
