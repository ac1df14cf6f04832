"""`ospltool cat`: print the samples of a topic as JSON lines, from running nodes or from stores."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.core.name_spaces import Group, Interest
from engine.dataset.content import Expression, ExpressionFault, Undecodable
from engine.dataset.sample import DATA
from ospltool.cli.domains import Domain, place_of, talking
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.options import duration, uri_argument
from ospltool.output import envelope, streams

if TYPE_CHECKING:
    from engine.dataset.content import Kinds, Path
    from engine.dataset.sample import Sample
    from ospltool.live.samples import TopicReader
    from ospltool.stores.model import GroupFacts, StoreReader

# A damaged store may have one for each sample; `verify` lists them.
_MAX_PROBLEMS = 10


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenSamples:
    """Which samples are printed."""

    partitions: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="P", help="Print only this partition (* and ?); repeatable."),
    ] = None
    stored: Annotated[bool, typer.Option("--stored", help="Read store files; no node needs to run.")] = False
    live: Annotated[
        bool, typer.Option("--live", help="Also print new samples, until --count or --timeout.")
    ] = False
    where: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR", help="Print only samples that match EXPR, such as \"v < 5 AND name = 'x'\"."
        ),
    ] = None


def cat(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Print the samples of this topic.")],
    uri: Annotated[
        str | None,
        uri_argument("Use the domain, or the stores, of this configuration."),
    ] = None,
    *,
    chosen: ChosenSamples,
    stores: Annotated[
        list[str] | None,
        typer.Option("--store", metavar="DIR", help="Read this store; repeatable, implies --stored."),
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="Read only the store of this node of a fleet file.")
    ] = None,
    domain: Domain = None,
    count: Annotated[int | None, typer.Option(min=1, help="Print at most N samples.", metavar="N")] = None,
    timeout: float = duration("10s", "Listen for at most DURATION."),
) -> None:
    """Print the samples of a topic as JSON lines.

    Without --stored and --live, it prints what the running nodes deliver to a late-joining reader, and exits
    when they have delivered everything, or have all shown that they keep nothing of the topic. --live also
    prints what is written from then on. --stored reads the complete sets in stores. Only stores record who
    wrote a sample; for a sample from a node, `delivered_by` is the node's writer. A warning on standard error
    says if only the parts that Lazy nodes keep can be reached, or if the node of a store is running and may
    hold samples that it has not stored yet.
    --where takes comparisons, BETWEEN, LIKE, AND, OR, NOT and parentheses; a dispose has only key fields.

    Exit codes: 0 success, 1 no samples of the topic (not with --live), incomplete history or unreadable
    samples, 2 wrong usage or unreadable input, 3 no node reachable.
    """
    printer = _Printer(topic, _expression(chosen.where), count)
    partitions = tuple(chosen.partitions or ())
    if chosen.stored or stores:
        if chosen.live:
            raise CommandError("choose --live or --stored, not both")
        _cat_stores(printer, _stores_of(uri, stores, node), partitions)
    else:
        if node is not None:
            raise CommandError("--node chooses a store: give --stored too")
        _cat_live(printer, uri, domain, partitions, timeout, follows=chosen.live)
    if printer.problems:
        raise typer.Exit(Exit.FINDINGS)


def _expression(where: str | None) -> Expression | None:
    try:
        return None if where is None else Expression(where)
    except ExpressionFault as error:
        raise CommandError(f"--where, {error}") from error


class _Printer:
    """Prints the samples that match, at most a given number."""

    def __init__(self, topic: str, expression: Expression | None, limit: int | None) -> None:
        self.topic = topic
        self.problems = 0
        self.has_samples = False
        """Whether there was a sample that could be read, also one that --where leaves out."""
        self._expression = expression
        self._left = limit

    @property
    def is_full(self) -> bool:
        """Whether the limit of samples is reached."""
        return self._left == 0

    def check(self, kinds: Kinds) -> None:
        """Refuse an expression that does not fit a type of the topic."""
        try:
            if self._expression is not None:
                self._expression.check(kinds)
        except ExpressionFault as error:
            raise CommandError(f"topic '{self.topic}': --where, {error}") from error

    def check_first(self, fields: dict[str, Any]) -> None:
        """Refuse an expression whose fields a whole sample lacks, where the type is not known."""
        for path in self._expression.fields if self._expression is not None else ():
            if not _has(fields, path):
                name = ".".join(path)
                text = f"topic '{self.topic}': --where: the type has no field '{name}'"
                raise CommandError(text)

    def put(
        self,
        fields: dict[str, Any],
        place: dict[str, object],
        sample: Sample,
        *,
        is_delivered: bool = False,
    ) -> None:
        """Print a sample if it matches; the writer of a sample that a node delivered is unknown."""
        from ospltool.stores.model import status_text

        self.has_samples = True
        if self.is_full or (self._expression is not None and not self._expression.accepts(fields)):
            return
        data = {
            "topic": self.topic,
            **place,
            "source_time_ns": sample.source_time_ns,
            **(
                {"writer": None, "delivered_by": sample.writer} if is_delivered else {"writer": sample.writer}
            ),
            "status": status_text(sample.status),
            "key": sample.key,
            "fields": fields,
        }
        streams.put(envelope.line("sample", data))
        if self._left is not None:
            self._left -= 1

    def complain(self, what: str) -> None:
        """Report a problem on standard error, and count it."""
        self.problems += 1
        if self.problems <= _MAX_PROBLEMS:
            streams.notify(f"ospltool: {what}")


def _has(fields: Any, path: Path) -> bool:
    for name in path:
        if not isinstance(fields, dict) or name not in fields:
            return False
        fields = fields[name]
    return True


def _where(topic: str, sample: Sample, why: object) -> str:
    return f"topic '{topic}', writer {sample.writer.hex()}, sample of {sample.source_time_ns} ns: {why}"


# From stores.


def _stores_of(uri: str | None, stores: list[str] | None, node: str | None) -> list[tuple[str, str]]:
    """Return the path and the node of each store; a store that is named has no node."""
    if stores:
        return [(each, "") for each in stores]
    from ospltool.cli.targets import targets

    found = [
        (target.store, target.name or target.configuration.domain.name)
        for target in targets(uri, os.environ, node=node)
        if target.store
    ]
    if not found:
        raise CommandError(f"{uri}: no Persistent element, so nothing is stored")
    return found


def _cat_stores(printer: _Printer, stores: list[tuple[str, str]], partitions: tuple[str, ...]) -> None:
    from engine.store.interface import DamageLog
    from ospltool.cli.store.shared import opened

    interest, groups = Interest(printer.topic, partitions or ("*",)), 0
    for path, node in stores:
        damage = DamageLog()
        with opened(path) as reader:
            for finding in reader.facts.findings:
                printer.complain(finding)
            use = dict(reader.facts.detail).get("closed", "")
            if use.startswith("in use"):
                streams.notify(
                    f"ospltool: {path}: {use}; samples that it has not stored yet are missing here"
                )
            for one in reader.facts.current():
                for group, samples in reader.read(one.number, damage):
                    is_meant = interest.wants(Group(group.name.partition, group.name.topic))
                    groups += is_meant
                    if is_meant:
                        _put_group(printer, reader, group, node, samples)
                    for _ in samples:
                        pass  # the reader yields the next group only then
        for problem in damage.first:
            printer.complain(f"{path}: damaged: {problem}")
    if not groups or not (printer.has_samples or printer.problems):
        what = "no samples in its groups in the complete sets" if groups else "no group in the complete sets"
        where = ", ".join(path for path, _ in stores)
        printer.complain(f"topic '{printer.topic}': {what} of {where}")


def _put_group(printer: _Printer, reader: StoreReader, group: GroupFacts, node: str, samples: Any) -> None:
    from ospltool.stores.describe import fields_of

    checks_samples = group.description is None
    try:
        if group.description is not None:
            from engine.dds.decoding import kinds_of

            printer.check(kinds_of(group.description.type))
    except (Undecodable, ModuleNotFoundError) as error:
        printer.complain(f"topic '{printer.topic}': {error}")
        return
    place: dict[str, object] = {"partitions": [group.name.partition], "type": group.name.type_name}
    place |= {"node": node} if node else {}
    for sample in sorted(samples, key=lambda one: (one.source_time_ns, one.writer)):
        fields, problem = fields_of(reader, group, sample)
        if fields is None:
            printer.complain(_where(printer.topic, sample, problem))
            continue
        if checks_samples and sample.status & DATA:
            printer.check_first(fields)
            checks_samples = False
        printer.put(fields, place, sample)
        if printer.is_full:
            break


# From running nodes.


def _cat_live(
    printer: _Printer,
    uri: str | None,
    domain: int | None,
    partitions: tuple[str, ...],
    timeout_s: float,
    *,
    follows: bool,
) -> None:
    place = place_of(uri, domain)
    with talking(place):
        from engine.dds.channel import PARTITION
        from ospltool.live.samples import TopicReader

        configuration = place.configuration
        protocol = configuration.entity_names.partition if configuration else PARTITION
        reader = TopicReader(
            place.domain_id, place.settings, printer.topic, partitions, protocol, place.secret()
        )
        try:
            _put_all(printer, reader, timeout_s, follows=follows)
        finally:
            reader.close()
    for problem in reader.unreadable:
        printer.complain(problem)
    if reader.failure:
        raise CommandError(f"domain {place.domain_id}: {reader.failure}", Exit.FAULT)
    if printer.is_full:
        return
    for name, nodes in reader.parts.items():
        what = f"only parts of name-space '{name}' can be reached ({', '.join(nodes)})"
        streams.notify(
            f"ospltool: topic '{printer.topic}': {what}; `ospltool history state` shows which groups"
        )
    if not reader.nodes and not (follows and reader.has_samples):
        why = reader.refusal or _seen(reader)
        raise CommandError(f"domain {place.domain_id}: no node heard; {why}", Exit.UNREACHABLE)
    if follows:
        return
    if not reader.is_kept and not reader.has_samples:
        where = ", ".join(partitions) or "any partition"
        verb = "keeps" if len(reader.nodes) == 1 else "keep"
        what = f"{', '.join(reader.nodes)} {verb} nothing of it in {where}"
        if reader.unsure:
            what = f"no kept data of it seen in {where}, but {' and '.join(reader.unsure)}"
        printer.complain(f"topic '{printer.topic}': {what}; {_seen(reader)}")
    elif not reader.is_delivered:
        printer.complain(f"topic '{printer.topic}': its history was not complete within {timeout_s:g} s")
    elif not reader.has_samples:
        holders = "the parts that can be reached" if reader.parts else "the nodes' groups of it"
        printer.complain(f"topic '{printer.topic}': no samples: {holders} hold none")


def _seen(reader: TopicReader) -> str:
    return f"within {reader.listened_s:.1f} s, {reader.seen or 'no writer or reader'} of the topic was seen"


def _put_all(printer: _Printer, reader: Any, timeout_s: float, *, follows: bool) -> None:
    from engine.dds.decoding import decode, kinds_of

    checked = set()
    for each in reader.samples(timeout_s, follows=follows):
        try:
            if each.type not in checked:
                checked.add(each.type)
                printer.check(kinds_of(each.type))
            fields = decode(each.type, each.sample.status, each.sample.payload)
        except Undecodable as error:
            printer.complain(_where(printer.topic, each.sample, error))
            continue
        place = {"partitions": list(each.partitions), "type": each.type.name}
        printer.put(fields, place, each.sample, is_delivered=each.is_delivered)
        if printer.is_full:
            return
    for type_ in reader.types:  # a topic without samples: check the expression against its type
        if type_ in checked:
            continue
        try:
            printer.check(kinds_of(type_))
        except Undecodable as error:
            printer.complain(f"topic '{printer.topic}': {error}")
