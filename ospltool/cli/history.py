"""`ospltool history`: wait for historical data, delete it, show its state."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import sys
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ospltool.cli.domains import Domain, place_of, talking
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.options import AsJson, command_group, duration, time_ns, uri_argument
from ospltool.output import envelope, streams
from ospltool.output.text import plural, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from engine.dataset.groups import TypeDescription
    from ospltool.client import DurabilityClient
    from ospltool.client.client import GroupCompleteness
    from ospltool.output.documents import DeletedGroup, GroupState

Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="P", help="Select this partition (* and ?); repeatable."),
]
Uri = Annotated[str | None, uri_argument("Use the domain of this configuration.")]
_WAIT: Final = "Wait for at most DURATION."

MAX_GROUPS_TOLD: Final = 2_000
"""Most groups of which a node tells in one answer (`engine.client_service.service`)."""

_HELP = """Wait for historical data, delete it or show its state, as the client library does.

The nodes must serve clients: <ClientDurability enabled="true"/> in their DurabilityService.
"""


def wait(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Wait for this topic.")],
    uri: Uri = None,
    partitions: Partitions = None,
    domain: Domain = None,
    timeout: float = duration("10s", _WAIT),
    as_json: AsJson = False,
) -> None:
    """Wait until a reader that starts now would get the complete history of the topic.

    The masters of all name-spaces that hold the topic and partitions must have complete sets, and no merge
    may be under way there. A part that a Lazy node holds is not enough. A Lazy node treats the request as a
    reader: it fetches the groups asked about. The command receives no data. Without --partition, it waits for
    all partitions. The history excludes samples that content filters of the nodes withhold.

    Exit codes: 0 complete, 1 timeout, unknown topic, no service keeps it in these partitions, or a node
    refuses to answer, as its secret of the domain differs, 2 wrong usage or configuration, 3 no node that
    serves clients reachable, or all refuse.
    """
    wanted = tuple(partitions or ("*",))
    deadline_s = began_s = time.monotonic()
    deadline_s += timeout
    with _client(uri, domain) as client:
        client.wait_for_service(timeout)
        client.durability_state(topic, wanted, timeout_s=max(0.5, timeout / 2))  # somebody must be willing
        types = _types(client, topic, deadline_s)
        for description in types:
            _wait(client, topic, description, wanted, deadline_s)
        _expect_groups(client, topic, wanted, deadline_s)
        refused = client.refusing
    elapsed_s = time.monotonic() - began_s
    if as_json:
        value = {"topic": topic, "partitions": wanted, "complete": True, "waited_ns": round(elapsed_s * 1e9)}
        value["refused"] = refused
        streams.put(envelope.document("history-wait", value))
    else:
        where = ", ".join(wanted)
        streams.put(visible(f"the history of topic {topic} in {where} is complete") + "\n")
    _tell_refused(refused)


@dataclasses.dataclass(frozen=True, slots=True)
class DeletionOptions:
    """What is deleted, and whether the user is asked."""

    until: Annotated[
        int | None,
        typer.Option(
            parser=time_ns,
            metavar="TIME",
            help="Delete up to this source time, such as 2026-11-21T01:08:34 or -10m (default: now).",
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False


def delete(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Delete from these topics (* and ?).")],
    partition: Annotated[
        str, typer.Argument(metavar="PARTITION", help="Delete from these partitions (* and ?).")
    ],
    *,
    uri: Uri = None,
    domain: Domain = None,
    deletion: DeletionOptions,
    timeout: float = duration("10s", _WAIT),
    as_json: AsJson = False,
) -> None:
    """Delete the historical data of all groups that match, on every node.

    The command shows the groups with the samples that each node keeps, and asks. Without a terminal to ask on
    it deletes nothing unless --yes is given. Readers keep what they have. Nodes discard samples up to that
    source time that arrive later; the default is the moment when the command started.

    Exit codes: 0 deleted, or shown with --dry-run, 1 no service keeps such a group, no node could confirm in
    time, the answer was no, the clock of a node that is behind limits it, or a node refuses, as its secret
    of the domain differs, 2 wrong usage or configuration, or nobody to ask, 3 no node that serves clients
    reachable, or all refuse.
    """
    until_ns = time.time_ns() if deletion.until is None else deletion.until
    deadline_s = time.monotonic() + timeout
    with _client(uri, domain) as client:
        found = _expect_groups(client, topic, (partition,), deadline_s)
        if deletion.dry_run:
            _put_groups(found, until_ns, client.unanswered, as_json=as_json)
            return
        _confirm(found, until_ns, client.unanswered, is_confirmed=deletion.yes)
        done = client.delete_historical_data(partition, topic, until_ns=until_ns, timeout_s=timeout)
    if as_json:
        value = {
            "topic": topic,
            "partition": partition,
            "until_ns": done.until_ns,
            "deleted": not (done.refused or done.slow),
        }
        value |= {"node": done.node, "slow": done.slow, "refused": done.refused}
        value |= {"confirmed": done.confirmed, "unconfirmed": done.unconfirmed}
        streams.put(envelope.document("history-delete", value))
    else:
        what = f"{partition}.{topic}: deleted up to {_moment(done.until_ns)} on {', '.join(done.confirmed)}"
        streams.put(visible(f"{what}; {_difference(found, done.kept)}") + "\n")
    if done.unconfirmed:
        names = ", ".join(done.unconfirmed)
        have, they = ("has", "it deletes") if len(done.unconfirmed) == 1 else ("have", "they delete")
        meets = "it meets" if len(done.unconfirmed) == 1 else "they meet"
        text = f"ospltool: {names} {have} not confirmed; {they} it when {meets} {done.node}"
        streams.notify(visible(text))
    _tell_refused(done.refused)
    if done.slow:
        raise CommandError(
            visible(
                f"it reaches only up to {_moment(done.until_ns)}, the clock of node {done.slow}: "
                f"it is behind, or another one is ahead; put it right, start its node again, and delete again"
            ),
            Exit.FINDINGS,
        )


def _moment(time_ns: int) -> str:
    return f"{datetime.datetime.fromtimestamp(time_ns // 10**9, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"


def _difference(before: Sequence[GroupCompleteness], after: Sequence[GroupCompleteness]) -> str:
    """Describe how many samples each node had, and has: some may have come meanwhile."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for service in dict.fromkeys(each.service for each in after):
        counts = [_sum(each for each in side if each.service == service) for side in (before, after)]
        name = next(each.service_name for each in after if each.service == service)
        nodes.setdefault((counts[0], counts[1]), []).append(name or service)
    parts = [
        f"{had} before, {has} now" + (f" on {', '.join(sorted(names))}" if len(nodes) > 1 else "")
        for (had, has), names in nodes.items()
    ]
    return f"samples: {'; '.join(parts)}" if parts else "samples: none kept now"


def _sum(groups: Iterable[GroupCompleteness]) -> str:
    counts = [each.samples for each in groups]
    return f"{sum(map(int, filter(None, counts))):,}" if None not in counts else "?"


def _tell_unanswered(names: Sequence[str]) -> None:
    """Name the nodes that others know and that have not answered."""
    if names:
        which = f"no answer from {', '.join(names)}, which the others know or knew"
        why = "stopped, out of reach or standing still, or not serving clients"
        streams.notify(visible(f"ospltool: {which}: {why}"))


def _put_groups(
    found: Sequence[GroupCompleteness], until_ns: int, unanswered: Sequence[str], *, as_json: bool
) -> None:
    """Write what a deletion would find."""
    if as_json:
        groups: list[DeletedGroup] = [
            {
                "partition": each.partition,
                "topic": each.topic,
                "node": each.service_name,
                "node_id": each.service,
                "samples": each.samples,
            }
            for each in found
        ]
        value = {"groups": groups, "until_ns": until_ns, "deleted": False, "unanswered": unanswered}
        streams.put(envelope.document("history-delete", value))
        return
    rows = [(each.partition, each.topic, each.service_name or each.service, _samples(each)) for each in found]
    streams.put_table(("PARTITION", "TOPIC", "NODE", "SAMPLES"), rows)
    _tell_unanswered(unanswered)


def _samples(group: GroupCompleteness) -> str:
    return "?" if group.samples is None else f"{group.samples:,}"


def _confirm(
    found: Sequence[GroupCompleteness], until_ns: int, unanswered: Sequence[str], *, is_confirmed: bool
) -> None:
    """Say what is deleted, and let the user decide.

    Raises:
        CommandError: the answer is no, or there is no terminal to ask on.
    """
    by_group: dict[tuple[str, str], list[GroupCompleteness]] = {}
    for each in found:
        by_group.setdefault((each.partition, each.topic), []).append(each)
    for (partition, topic), kept in by_group.items():
        counts = ", ".join(f"{_samples(each)} on {each.service_name or each.service}" for each in kept)
        streams.notify(f"{partition}.{topic}: samples: {counts}")
    _tell_unanswered(unanswered)
    # A node that keeps as many groups as an answer holds may keep more.
    many = len(by_group) >= MAX_GROUPS_TOLD
    groups = f"{plural(len(by_group), 'group')}{' or more' if many else ''}"
    what = f"the historical data of {groups} up to {_moment(until_ns)} on every node"
    if is_confirmed:
        streams.notify(f"ospltool: deleting {what}")
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandError(f"nothing is deleted: there is no terminal to ask on; --yes deletes {what}")
    sys.stderr.write(f"Delete {what}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError("nothing is deleted", Exit.FINDINGS)


def state(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Show these topics (* and ?; default: all).")
    ] = "*",
    uri: Uri = None,
    partitions: Partitions = None,
    domain: Domain = None,
    timeout: float = duration("5s", _WAIT),
    as_json: AsJson = False,
) -> None:
    """Show how complete the groups of a topic are on each node.

    On a Lazy node, only groups that came from a complete set count as complete; for the others nobody knows
    what is missing. A node does not know groups that it does not keep, such as, on a Lazy node, those that no
    reader on its host wants. A group is incomplete on a node that keeps nothing of it because its content
    filter does not fit. If a content filter withholds samples, the state describes the rest and says
    `filtered`.

    Exit codes: 0 all complete, 1 some incomplete, no such group, or a node refuses to answer, as its secret
    of the domain differs, 2 wrong usage or configuration, 3 no node that serves clients reachable, or all
    refuse.
    """
    with _client(uri, domain) as client:
        found = client.durability_state(topic, tuple(partitions or ("*",)), timeout_s=timeout)
        refused, unanswered = client.refusing, client.unanswered
    if as_json:
        values: list[GroupState] = [
            {
                "node": each.service_name,
                "node_id": each.service,
                "partition": each.partition,
                "topic": each.topic,
                "completeness": each.completeness.name.lower(),
                "samples": each.samples,
                "filtered": each.filtered,
            }
            for each in found
        ]
        others = {"refused": refused, "unanswered": unanswered}
        streams.put(envelope.document("history-state", {"groups": values, **others}))
    elif found:
        rows = [
            (each.partition, each.topic, each.service_name or each.service, _state(each)) for each in found
        ]
        streams.put_table(("PARTITION", "TOPIC", "NODE", "STATE"), rows)
    if not found:
        streams.notify(f"ospltool: {_nothing(topic, tuple(partitions or ()))}")
    if not as_json:
        _tell_unanswered(unanswered)
    _tell_refused(refused)
    if not found or any(each.completeness.name != "COMPLETE" for each in found):
        raise typer.Exit(Exit.FINDINGS)


def _tell_refused(refused: Mapping[str, str]) -> None:
    """Say which nodes refuse this client, and why; then what was done is not done everywhere."""
    from ospltool.client.asking import refused_text

    if refused:
        raise CommandError(visible(refused_text(refused)), Exit.FINDINGS)


def _state(found: GroupCompleteness) -> str:
    return found.completeness.name.lower() + (", filtered" if found.filtered else "")


@contextlib.contextmanager
def _client(uri: str | None, domain: int | None) -> Iterator[DurabilityClient]:
    """Open a client of the domain, and turn its errors into command errors."""
    place = place_of(uri, domain)
    with talking(place):
        from engine.dds.client_protocol.endpoints import PARTITION
        from ospltool.client import DurabilityClient, DurabilityError, NoService, SecretMismatch

        names = place.configuration.client_durability if place.configuration else None
        partition = names.partition if names else PARTITION
        try:
            secret = place.secret()
            with DurabilityClient(
                place.domain_id,
                partition=partition,
                uri=place.settings,
                secret=secret.path if secret else None,
            ) as client:
                yield client
        except SecretMismatch as error:
            raise CommandError(
                f"domain {place.domain_id}: {visible(str(error))}", Exit.UNREACHABLE
            ) from error
        except NoService as error:
            hint = 'nodes need <ClientDurability enabled="true"/>'
            raise CommandError(f"domain {place.domain_id}: {error}; {hint}", Exit.UNREACHABLE) from error
        except DurabilityError as error:
            raise CommandError(str(error), Exit.FINDINGS) from error


def _expect_groups(
    client: DurabilityClient, topic: str, partitions: tuple[str, ...], deadline_s: float
) -> Sequence[GroupCompleteness]:
    """Return the groups that match on each node; raise an error if no service keeps one."""
    left_s = max(0.5, deadline_s - time.monotonic())
    found = client.durability_state(topic, partitions, timeout_s=left_s)
    if not found:
        raise CommandError(_nothing(topic, partitions), Exit.FINDINGS)
    return found


def _nothing(topic: str, partitions: tuple[str, ...]) -> str:
    """Describe that no service keeps such a group; one that did not answer may."""
    what = "any group" if topic == "*" else f"a group of topic '{topic}'"
    where = f" in partition {', '.join(partitions)}" if partitions else ""
    return f"no service that answered keeps {what}{where}"


def _types(client: DurabilityClient, topic: str, deadline_s: float) -> list[TypeDescription]:
    """Return the types of a topic, from its writers, its readers and the nodes that keep it."""
    from engine.dds.typeinfo import resolve_type

    session = client.session
    session.wait_until(lambda: bool(session.types(topic)), deadline_s)
    with session.lock:
        references = session.types(topic)
    found = [resolve_type(session.participant, each) for each in references]
    types = [each.type for each in found if each.type is not None]
    if not types:
        reason = found[0].reason if found else "no writer, reader or node with it was heard in time"
        raise CommandError(f"topic '{topic}': {reason}", Exit.FINDINGS)
    return types


def _wait(
    client: DurabilityClient,
    topic: str,
    description: TypeDescription,
    partitions: tuple[str, ...],
    deadline_s: float,
) -> None:
    from cyclonedds.core import Policy, Qos

    from engine.dds.decoding import class_of
    from ospltool.client import DurableReader, HistorySelection

    qos = Qos(Policy.Durability.Volatile, Policy.Reliability.Reliable(100_000_000))
    nothing = HistorySelection(end_ns=0)
    with DurableReader(client, topic, class_of(description), partitions, qos) as reader:
        reader.wait_for_historical_data(max(0.1, deadline_s - time.monotonic()), nothing)


group = command_group(
    _HELP,
    (
        ("wait", wait, "Wait until the history of a topic is complete."),
        ("delete", delete, "Delete historical data on all nodes."),
        ("state", state, "Show how complete groups are on each node."),
    ),
)
