"""`ospltool history`: wait for historical data, delete it, show its state."""

from __future__ import annotations

import contextlib
import datetime
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ospltool.cli.domains import Domain, Uri, place_of, talking
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.units import duration_s
from ospltool.output import envelope, streams
from ospltool.output.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine.dataset.groups import TypeDescription
    from ospltool.client import DurabilityClient
    from ospltool.client.client import GroupCompleteness

Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="P", help="Select this partition (* and ?); repeatable."),
]
Timeout = Annotated[
    float, typer.Option(parser=duration_s, metavar="DURATION", help="Wait for at most DURATION.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

_HELP = """Wait for historical data, delete it or show its state, as the client library does.

The nodes must serve clients: <ClientDurability enabled="true"/> in their DurabilityService.
"""


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)
    group.command("wait", short_help="Wait until the history of a topic is complete.")(wait)
    group.command("delete", short_help="Delete historical data on all nodes.")(delete)
    group.command("state", short_help="Show how complete groups are on each node.")(state)
    app.add_typer(group, name="history", short_help="Wait for history, delete it, show its state.")


def wait(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Wait for this topic.")],
    uri: Uri = None,
    partitions: Partitions = None,
    domain: Domain = None,
    timeout: Timeout = "10s",  # type: ignore[assignment]  # the parser makes seconds of it
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


def delete(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Delete from these topics (* and ?).")],
    partition: Annotated[
        str, typer.Argument(metavar="PARTITION", help="Delete from these partitions (* and ?).")
    ],
    uri: Uri = None,
    domain: Domain = None,
    until: Annotated[
        int | None,
        typer.Option(metavar="NS", min=0, help="Delete up to this source time (default: now)."),
    ] = None,
    timeout: Timeout = "10s",  # type: ignore[assignment]  # the parser makes seconds of it
    as_json: AsJson = False,
) -> None:
    """Delete the historical data of all groups that match, on every node.

    Readers keep what they have. Nodes discard samples up to that source time that arrive later.

    Exit codes: 0 deleted, 1 no service keeps such a group, no node could confirm in time, or a node refuses,
    as its secret of the domain differs, 2 wrong usage or configuration, 3 no node that serves clients
    reachable, or all refuse.
    """
    until_ns = time.time_ns() if until is None else until
    deadline_s = time.monotonic() + timeout
    with _client(uri, domain) as client:
        _expect_groups(client, topic, (partition,), deadline_s)
        done = client.delete_historical_data(partition, topic, until_ns=until_ns, timeout_s=timeout)
    if as_json:
        value = {
            "topic": topic,
            "partition": partition,
            "until_ns": done.until_ns,
            "deleted": not done.refused,
        }
        value |= {"node": done.node, "refused": done.refused}
        streams.put(envelope.document("history-delete", value))
    else:
        where = f" on {done.node} and its fellows only" if done.refused else ""
        streams.put(visible(f"the historical data of {partition}.{topic} is deleted{where}") + "\n")
    if done.slow:
        moment = datetime.datetime.fromtimestamp(done.until_ns // 10**9, datetime.UTC)
        when = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
        streams.say(
            visible(
                f"ospltool: it reaches only up to {when}, the clock of node {done.slow}: it is behind, "
                f"or another one is ahead; put it right, start its node again, and delete again"
            )
        )
    _tell_refused(done.refused)


def state(
    topic: Annotated[
        str, typer.Argument(metavar="[TOPIC]", help="Show these topics (* and ?; default: all).")
    ] = "*",
    uri: Uri = None,
    partitions: Partitions = None,
    domain: Domain = None,
    timeout: Timeout = "5s",  # type: ignore[assignment]  # the parser makes seconds of it
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
        refused = client.refusing
    if as_json:
        values = [
            {
                "node": each.service_name,
                "node_id": each.service,
                "partition": each.partition,
                "topic": each.topic,
                "completeness": each.completeness.name.lower(),
                "filtered": each.filtered,
            }
            for each in found
        ]
        streams.put(envelope.document("history-state", {"groups": values, "refused": refused}))
    elif found:
        rows = [
            (each.partition, each.topic, each.service_name or each.service, _state(each)) for each in found
        ]
        streams.put_table(("PARTITION", "TOPIC", "NODE", "STATE"), rows)
    if not found:
        streams.say(f"ospltool: {_nothing(topic, tuple(partitions or ()))}")
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
) -> None:
    """Raise an error if no service keeps a group that matches."""
    left_s = max(0.5, deadline_s - time.monotonic())
    if not client.durability_state(topic, partitions, timeout_s=left_s):
        raise CommandError(_nothing(topic, partitions), Exit.FINDINGS)


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
