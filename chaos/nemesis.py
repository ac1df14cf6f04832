"""The faults. Each is one function that begins it and, after `yield`, ends it; the round decides how long.

What a fault does is drawn from the generator that it is given, so that a seed repeats it. A fault ends in a
state from which the system must become whole by itself: links heal, processes run, disks have room.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final

from chaos.ground import Violation
from chaos.switch import Rule

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.scene import Scene

Fault = Callable[["Scene", random.Random], Generator[str, None, None]]
"""Yields what it did, in words, once it has begun."""

_FAULTS: dict[str, Fault] = {}
LOST_S: Final = 3.0
"""After so long without a word every lease and heartbeat has expired."""
REFUSED_S: Final = 30.0


def fault(function: Fault) -> Fault:
    """A fault that rounds may draw; its name is that of the function."""
    _FAULTS[function.__name__.replace("_", "-")] = function
    return function


def faults() -> dict[str, Fault]:
    """All faults by name."""
    return dict(_FAULTS)


# Processes.


@fault
def kill_node(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """SIGKILL; started again later, or at once by its supervisor."""
    name = chance.choice(scene.nodes)
    scene.kill(name, supervisor=False)
    yield name
    scene.start(name)


@fault
def kill_at_start(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """SIGKILL, and once more while the node starts."""
    name, after_s = chance.choice(scene.nodes), chance.uniform(0.1, 3.0)
    scene.kill(name)
    scene.start(name)
    scene.pass_time(after_s)
    scene.kill(name)
    yield f"{name}, again after {after_s:.1f} s"
    scene.start(name)


@fault
def kill_at_alignment(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """SIGKILL, and once more, to it or its aligner, as soon as the node takes in the set of a fellow."""
    name = chance.choice(scene.nodes)
    victim = chance.choice((name, chance.choice(scene.nodes)))
    scene.kill(name)
    scene.pass_time(chance.uniform(0, 2))
    scene.start(name)
    with contextlib.suppress(Violation):  # it may be over before it is seen, or not begin at all
        scene.ground.wait_for("it aligns", lambda: scene.ground.is_aligning(name), 10)
    scene.kill(victim)
    yield f"{name}, then {victim}"
    scene.start(victim)


@fault
def kill_at_merge(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """A node is cut off until everybody has given it up; when they meet again, one of them is killed."""
    name, victim, after_s = chance.choice(scene.nodes), chance.choice(scene.nodes), chance.uniform(0, 0.6)
    with scene.linked((name,), scene.others(name)):
        scene.pass_time(LOST_S)
    with contextlib.suppress(Violation):
        scene.ground.wait_for("they meet", lambda: scene.ground.seen.fellows(name, "approved"), 10)
    scene.pass_time(after_s)
    scene.kill(victim)
    yield f"{name} met again, {victim} killed {after_s:.1f} s later"
    scene.start(victim)


@fault
def kill_supervisor(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """SIGKILL to a supervisor: its node ends in order, and both are started again."""
    name = chance.choice(sorted(scene.ground.supervised) or scene.nodes)
    scene.kill(name, node=False)
    yield name
    scene.start(name)


@fault
def kill_writer(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """SIGKILL to a writer; another one takes its place at once."""
    host = chance.choice(scene.writers)
    scene.kill_writer(host)
    yield host


@fault
def stop_node(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """SIGSTOP for 1 to 30 s, mostly short."""
    name, seconds = chance.choice(scene.nodes), min(30.0, 1 + chance.expovariate(1 / 4))
    began = time.monotonic()
    with scene.stopped(name):
        yield f"{name} {seconds:.1f} s"
        scene.pass_time(began + seconds - time.monotonic())


@fault
def restart(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """An orderly stop and start."""
    name = chance.choice(scene.nodes)
    scene.stop(name)
    yield name
    scene.start(name)


@fault
def rolling_restart(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """Each node in turn, in order, without any quiet between."""
    names = chance.sample(scene.nodes, len(scene.nodes))
    for name in names:
        scene.stop(name)
        scene.start(name)
        with contextlib.suppress(Violation):
            scene.ground.wait_up(name, timeout_s=20)
    yield " ".join(names)


@fault
def power_cut(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """SIGKILL to all nodes at once; one of them, drawn, starts first."""
    first = chance.choice(scene.nodes)
    for name in scene.nodes:
        scene.kill(name)
    yield f"{first} first"
    scene.start(first)
    with contextlib.suppress(Violation):
        scene.ground.wait_up(first, timeout_s=20)
    for name in scene.nodes:
        scene.start(name)


@fault
def stale_first(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """A node misses some seconds; then all are killed at once and it starts first."""
    name = chance.choice(scene.nodes)
    scene.stop(name)
    scene.pass_time(chance.uniform(1, 4))
    for other in scene.nodes:
        scene.kill(other)
    yield name
    scene.start(name)
    with contextlib.suppress(Violation):
        scene.ground.wait_up(name, timeout_s=20)
    for other in scene.nodes:
        scene.start(other)


@fault
def second_node(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """A second node is started on a store in use; it must refuse."""
    name = chance.choice(scene.nodes)
    scene.start(name)
    scene.ground.wait_up(name)
    alone = {name} - scene.ground.supervised  # a supervisor refuses already
    first = scene.ground.process_of(name)
    seconds = [scene.ground.launch(one) for one in alone]
    yield name
    for second in seconds:
        try:
            code = second.wait(REFUSED_S)
        except subprocess.TimeoutExpired:
            second.kill()
            code = 0
        was_in_use = first is not None and scene.ground.process_of(name) is first  # no other fault ended it
        if code == 0 and was_in_use:
            raise Violation(f"a second node on the store of {name} did not refuse")


@fault
def wrong_clock(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """A node is started again with a wall clock that is wrong by an hour or a day."""
    name, shift_s = chance.choice(scene.nodes), chance.choice((-86_400, -3_600, 3_600, 86_400))
    scene.stop(name)
    scene.start(name, shift_s=shift_s)
    yield f"{name} {shift_s:+d} s"
    scene.stop(name)
    scene.start(name)


@fault
def wrong_writer_clock(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """A new writer, of topics of its own, has source times that are wrong by an hour or a day."""
    host, shift_s = chance.choice(scene.writers), chance.choice((-86_400, -3_600, 3_600, 86_400))
    scene.add_writer(host, [f"Shift{scene.number()}"], shift_s=shift_s)
    yield f"{host} {shift_s:+d} s"


@fault
def new_topics(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """A new writer with new topics: what it writes first meets taps that open one after the other."""
    host = chance.choice(scene.writers)
    number = scene.number()
    scene.add_writer(host, [f"New{number}", f"New{number}All"], at_once=20)
    yield host


# Links.


@fault
def cut_node(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """A node is cut off from everybody."""
    name = chance.choice(scene.nodes)
    with scene.linked((name,), (*scene.others(name), *scene.writers)):
        yield name


@fault
def split(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """Nodes and writers are split in two."""
    nodes = chance.sample(scene.nodes, chance.randint(1, len(scene.nodes) - 1))
    left = [*nodes, *(host for host in scene.writers if chance.random() < 0.5)]
    with scene.linked(left, [host for host in (*scene.nodes, *scene.writers) if host not in left]):
        yield " ".join(left)


@fault
def cut_one_way(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """One node hears another no more, but is heard."""
    source, target = chance.sample(scene.nodes, 2)
    with scene.linked((source,), (target,), both_ways=False):
        yield f"{source}>{target}"


@fault
def partial_mesh(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """Two nodes lose each other, while others hear both."""
    one, other = chance.sample(scene.nodes, 2)
    with scene.linked((one,), (other,)):
        yield f"{one}|{other}"


@fault
def cut_writer(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """A writer is cut off from a single node."""
    host, name = chance.choice(scene.writers), chance.choice(scene.nodes)
    with scene.linked((host,), (name,)):
        yield f"{host}|{name}"


@fault
def bad_network(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """Loss, delay, jitter and duplicates between all hosts."""
    rule = Rule(
        loss=chance.choice((0, 0.02, 0.1)),
        delay_s=chance.choice((0, 0.005, 0.05)),
        jitter_s=chance.choice((0, 0.005, 0.05)),
        duplicate=chance.choice((0, 0.1)),
    )
    hosts = (*scene.nodes, *scene.writers)
    with scene.linked(hosts, hosts, rule):
        yield f"loss {rule.loss} delay {rule.delay_s} jitter {rule.jitter_s} duplicate {rule.duplicate}"


# Disks.


@fault
def full_disk(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """A disk has no room left for a while."""
    name = chance.choice(scene.nodes)
    with scene.full(name):
        yield name


def _damage(scene: Scene, name: str, harm: Callable[[Path], str]) -> Generator[str, None, None]:
    """Kill a node, harm its store, start it again."""
    scene.kill(name)
    scene.destroy(name)
    what = harm(scene.ground.home(name) / "store")
    yield f"{name} {what}"
    scene.start(name)


@fault
def truncated_store(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """The database or its log ends somewhere in the middle."""

    def truncate(store: Path) -> str:
        path = _drawn_file(store, chance)
        if path is None:
            return "empty"
        size = int(path.stat().st_size * chance.random())
        os.truncate(path, size)
        return f"{path.name} to {size}"

    yield from _damage(scene, chance.choice(scene.nodes), truncate)


@fault
def flipped_bits(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """Some bytes of the database or its log are others."""

    def flip(store: Path) -> str:
        path = _drawn_file(store, chance)
        if path is None:
            return "empty"
        count = chance.choice((1, 3, 30))
        with path.open("r+b") as file:
            for _ in range(count):
                place = chance.randrange(max(1, path.stat().st_size))
                file.seek(place)
                before = file.read(1) or b"\0"
                file.seek(place)
                file.write(bytes([before[0] ^ (1 << chance.randrange(8))]))
        return f"{path.name} {count} times"

    yield from _damage(scene, chance.choice(scene.nodes), flip)


@fault
def lost_log(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """The write-ahead log is gone."""

    def remove(store: Path) -> str:
        for end in ("-wal", "-shm"):
            (store / f"store.sqlite{end}").unlink(missing_ok=True)
        return ""

    yield from _damage(scene, chance.choice(scene.nodes), remove)


@fault
def new_disk(scene: Scene, chance: random.Random) -> Generator[str, None, None]:
    """A node comes back with an empty disk."""

    def remove(store: Path) -> str:
        for path in store.iterdir():
            path.unlink()
        return ""

    yield from _damage(scene, chance.choice(scene.nodes), remove)


def _drawn_file(store: Path, chance: random.Random) -> Path | None:
    """The database or its log, one that has something in it; None where nothing has."""
    files = [path for path in sorted(store.glob("store.sqlite*")) if not path.name.endswith("-shm")]
    full = [path for path in files if path.stat().st_size]
    return chance.choice(full) if full else None
