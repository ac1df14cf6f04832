"""A soak of readers: random cuts between four hosts, and in each quiet phase all readers agree with the set.

On each host there are a node, a process with ordinary readers, one with readers of the client library, a
writer of what all hosts write (`Shared`, `SharedAll`), and a writer of what only this host writes.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from chaos import checker
from chaos.ground import SPACE, Ground, Violation
from chaos.rounds import late_set
from tests.integration.configurations import Settings, Space

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chaos.checker import Held
    from chaos.ground import Application

HOSTS: Final = 4
SHARED: Final = ("Shared", "SharedAll")
OWN: Final = ("Disposing", "Received", "ReceivedDisposing")
"""Of one writer at a time: if one of several with autodispose is lost, early and late readers differ."""
ROLES: Final = ("reader", "library_reader")
STATIONS: Final = 10
RATE: Final = 3.0
"""Samples a second of each writer, of which there are two on each host."""
DISPOSES: Final = 0.1
LEASE_S: Final = 3.0
"""Long enough that no process waits for a core until others give it up."""
LONG_S: Final = (6.0, 11.0)
"""A cut in which every lease ends. What it means if only some of them end is in docs/readers.md."""
SHORT_S: Final = (0.1, 1.0)
"""A cut in which none ends."""
QUIET_S: Final = 90.0
AGREED_S: Final = 40.0
_ALIVE, _DISPOSED, _NO_WRITERS = 16, 32, 64

Entry = tuple[int, int, int]
"""Station, value and time of a sample."""


class Wanted(NamedTuple):
    """What a reader of a topic must have: samples, those of disposed stations too, and states of stations."""

    samples: list[Entry]
    disposed: set[int]
    states: dict[int, int]


class Place(NamedTuple):
    """Readers of one kind in one process."""

    host: str
    role: str
    application: Application


class Soak:
    """Four hosts under cuts.

    Args:
        directory: an empty one, for what it leaves behind.
        seed: draws cuts, and which readers and writers are replaced meanwhile.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self._chance = random.Random(seed)
        self._ground = Ground(directory, HOSTS, writers=(), seed=str(seed), lease_s=LEASE_S)
        self.nodes = self._ground.nodes
        for number, name in enumerate(self.nodes):
            space = Space(name=SPACE, elements=("stock*",), priority=200 - 10 * number)
            self._ground.configure(name, Settings(spaces=(space,), discovery_s=1.0))
        self.topics = (*SHARED, *(f"{topic}{host}" for host in self.nodes for topic in OWN))
        self._early: set[Application] = set()
        self._readers: list[Place] = []
        self._shared: list[Application] = []
        self._own: dict[str, Application] = {}
        self.checked = 0

    def __enter__(self) -> Soak:
        return self

    def __exit__(self, *_: object) -> None:
        self._ground.close()

    def begin(self) -> None:
        """Start everything."""
        self._ground.start(*self.nodes)
        self._ground.wait_up(*self.nodes)
        for host in self.nodes:
            for role in ROLES:
                self._readers.append(Place(host, role, self._start_reader(host, role)))
            self._shared.append(self._ground.writer(host, SHARED, readers=HOSTS * 3))
            self._own[host] = self._start_own(host)
        for application in (*self._shared, *self._own.values()):
            application.answer("ready", 120)

    def _start_reader(self, host: str, role: str) -> Application:
        made = self._ground.application(role, host, topics=self.topics)
        made.answer("ready", 60)
        return made

    def _start_own(self, host: str) -> Application:
        return self._ground.writer(host, [f"{topic}{host}" for topic in OWN], readers=3)

    # Cuts.

    def cut(self) -> str:
        """Let links be cut one after the other while everybody writes; tells which ones."""
        for writer in (*self._shared, *self._own.values()):
            writer.tell(rate=RATE, stations=STATIONS, disposes=DISPOSES)
            writer.answer("rate", 60)
        words = []
        for number in range(self._chance.choice((1, 1, 2, 3))):
            if number:
                self._pass_time(self._chance.choice((0.3, 3.0)))
            ones, others = self._chance.choice((self._draw_host, self._draw_halves, self._draw_link))()
            lasts_s = self._chance.uniform(*(SHORT_S if self._chance.random() < 0.2 else LONG_S))
            words.append(f"{'+'.join(ones)} from {'+'.join(others)} for {lasts_s:.1f} s")
            fault = self._ground.hosts.add(ones, others)
            until = time.monotonic() + lasts_s
            if lasts_s > 1 and self._chance.random() < 0.6:
                words[-1] += f" ({self._replace()})"
            self._pass_time(max(0.0, until - time.monotonic()))
            self._ground.hosts.remove(fault)
        return "; ".join(words)

    def _draw_host(self) -> tuple[list[str], list[str]]:
        host = self._chance.choice(self.nodes)
        return [host], [other for other in self.nodes if other != host]

    def _draw_halves(self) -> tuple[list[str], list[str]]:
        half = sorted(self._chance.sample(self.nodes, 2))
        return half, [other for other in self.nodes if other not in half]

    def _draw_link(self) -> tuple[list[str], list[str]]:
        one, other = self._chance.sample(self.nodes, 2)
        return [one], [other]

    def _replace(self) -> str:
        """A writer dies, or readers come late; tells which."""
        host = self._chance.choice(self.nodes)
        if self._chance.random() < 0.4:
            self._own[host].kill()
            self._own[host] = self._start_own(host)
            self._own[host].answer("ready", 120)
            return f"new writer on {host}"
        role = self._chance.choice(ROLES)
        return self._renew(next(each for each in self._readers if each[:2] == (host, role)))

    def _renew(self, place: Place) -> str:
        place.application.end()
        self._readers.remove(place)
        made = self._start_reader(place.host, place.role)
        self._readers.append(Place(place.host, place.role, made))
        return f"new {place.role} on {place.host}"

    def _pass_time(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self._ground.seen.wait_for("time passes", lambda: time.monotonic() >= until, seconds + 5)

    # What must hold.

    def check(self) -> Iterator[str]:
        """Let everybody be quiet; what is wrong then."""
        for writer in (*self._shared, *self._own.values()):
            writer.tell(rate=0)
            writer.expect(lambda line: line.get("rate") == 0, 60)
        since_ns = time.time_ns()
        ground = self._ground
        ground.wait_for(
            "all are complete, with one master and equal sets",
            lambda: ground.shown_since(since_ns) and ground.seen.are_complete(*self.nodes),
            QUIET_S,
        )
        sets: dict[str, list[Held]] = {}

        def are_equal(found: dict[str, list[Held]]) -> bool:
            sets.update(found)
            return not checker.unequal(found)

        if ground.wait_stores("stores are equal", are_equal, QUIET_S) is None:
            raise Violation(f"stores are not equal: {checker.unequal(sets)}")
        held, records = sets[self.nodes[0]], ground.records()
        if lost := checker.lost(held, [one.write for one in records.confirmed]):
            yield f"the nodes have lost {len(lost)} samples, for example {lost[0]}"
        wanted = self.wanted(held)
        self.checked = sum(len(one.samples) for one in wanted.values())
        yield from self._check_readers(wanted)

    def wanted(self, held: list[Held]) -> dict[str, Wanted]:
        """What readers see of the set, by topic: the states by whether its writers live."""
        living = {guid for one in (*self._shared, *self._own.values()) for guid in self._guids(one)}
        wanted = {}
        for topic in self.topics:
            some = [one for one in held if one.topic == topic]
            samples, disposed = late_set(some)
            lost = _DISPOSED if "Disposing" in topic else _NO_WRITERS
            alive = {one.station for one in some if one.writer in living}
            states = {
                station: _DISPOSED if station in disposed else _ALIVE if station in alive else lost
                for station, _, _ in samples
            }
            wanted[topic] = Wanted(samples, disposed, states)
        return wanted

    def _guids(self, writer: Application) -> set[str]:
        """The GUIDs of a program's writers, by its record."""
        writer.tell(guids=True)
        return set(writer.answer("guids", 60))

    def _check_readers(self, wanted: dict[str, Wanted]) -> Iterator[str]:
        """Until all agree with it, or the time is over; those that do not are replaced by new ones."""
        until = time.monotonic() + AGREED_S
        waiting = list(self._readers)
        wrong: dict[Place, list[str]] = {}
        while waiting:
            for place in list(waiting):
                place.application.tell(tally=True)
                wrong[place] = list(_differences(wanted, place.application.answer("tally", 60), place.role))
                if not wrong[place]:
                    waiting.remove(place)
                elif time.monotonic() > until:
                    waiting.remove(place)
                    yield from (f"{place.role} on {place.host}: {text}" for text in wrong[place])
                    self._renew(place)
            self._pass_time(0.2)


def _differences(wanted: dict[str, Wanted], tally: dict[str, Any], role: str) -> Iterator[str]:
    """How what a process with readers has differs from the set, by topic.

    What docs/readers.md and docs/client.md say that cannot be had is left out: ordinary readers by source
    time refuse what is older than what they have, a dispose included, and count it; readers of the library
    that come late do not know whether a lost writer had autodispose.
    """
    for topic, one in wanted.items():
        found = tally[topic]
        got = {(station, value, time_ns) for station, value, time_ns, _ in found["samples"]}
        told = {int(station): state for station, state in found["states"].items()}
        missing, more = set(one.samples) - got, got - set(one.samples)
        if role == "reader" and "Received" not in topic and len(missing) <= found["refused"]:
            missing = {each for each in missing if _is_newest(each, one)}
            more = {each for each in more if each[0] not in one.disposed}
        for what, entries in (("lacks", missing), ("has too many", more)):
            if entries:
                yield f"{topic} {what}: {len(entries)} of {len(one.samples)}, for example {min(entries)}"
        for station, state in one.states.items():
            is_unknown = role != "reader" and station not in one.disposed and state == _DISPOSED
            if told.get(station) not in ({state, _NO_WRITERS} if is_unknown else {state}):
                yield f"{topic} {station} is in state {told.get(station)}, not {state}"


def _is_newest(entry: Entry, wanted: Wanted) -> bool:
    """Whether nothing in the set is newer than a sample of its station."""
    newest_ns = max(time_ns for station, _, time_ns in wanted.samples if station == entry[0])
    return entry[0] not in wanted.disposed and entry[2] == newest_ns


def run_soak(directory: Path, seed: int, minutes: float) -> int:
    """Cut and check for so long; returns the number of violations."""
    violations = phases = 0
    began = time.monotonic()
    with Soak(directory, seed) as soak:
        soak.begin()
        while time.monotonic() - began < minutes * 60:
            phases += 1
            what = soak.cut()
            healed = time.monotonic()
            found: list[str] = []
            try:
                found.extend(soak.check())
            except Violation as violation:
                found.append(str(violation))
            violations += len(found)
            print(
                f"phase {phases}: {'VIOLATED' if found else 'ok'}  {what}: {soak.checked} samples agreed "
                f"after {time.monotonic() - healed:.1f} s",
                flush=True,
            )
            print(*(f"  {text}" for text in found), sep="\n", end="\n" if found else "", flush=True)
    minutes = (time.monotonic() - began) / 60
    print(f"soak {seed}: {violations} violations in {phases} quiet phases, {minutes:.1f} minutes")
    return violations
