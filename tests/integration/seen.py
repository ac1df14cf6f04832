"""What readers of an application see of each instance, in words: ordinary ones and those of the library."""

from __future__ import annotations

import collections
import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.integration import application_types as types
from tests.integration.applications import (
    ALIVE,
    NOT_ALIVE_DISPOSED,
    NOT_ALIVE_NO_WRITERS,
    commands,
    qos_of,
    say,
)

WORDS = {NOT_ALIVE_DISPOSED: "D", NOT_ALIVE_NO_WRITERS: "NW", ALIVE: "A"}
STATE_WORDS = {"NOT_ALIVE_DISPOSED": "D", "NOT_ALIVE_NO_WRITERS": "NW", "ALIVE": "A", "None": "?"}


def timelines(options: dict[str, Any]) -> None:
    """What readers see of each instance, in words.

    S and a source time is a sample; D, NW and A tell that the instance changed its state without one.
    Options: `readers`, each `topic`, `partition` and the options of its QoS, and a `name` if its topic is not
    enough of one; `takes`, where samples are taken, not only read; `library`, where the readers are
    `DurableReader`s, which always take. Each line is answered with, by name and instance: the words, state,
    generation counts (disposed, no writers) and value of the last sample.
    """
    made, wait = (_library_readers if options.get("library") else _ordinary_readers)(options)
    found: dict[str, dict[int, dict[str, Any]]] = {name: {} for name, _ in made}
    lock = threading.Lock()

    def collect() -> None:
        for name, get in made:
            for number, word, state, value, generations in get():
                seen = found[name].setdefault(number, {"words": []})
                if word:
                    seen["words"].append(word)
                    seen["value"] = value
                # A sample that is read only after its instance ended tells of both.
                if seen["words"][-1:] != [state] if state != "A" else not word:
                    seen["words"].append(state)
                seen["state"] = state
                seen["generations"] = generations

    def obey() -> None:
        for _ in commands():
            with lock:
                collect()
                say(timelines=found)
        os._exit(0)

    say(ready=True)
    threading.Thread(target=obey, daemon=True).start()
    while True:
        wait()
        with lock:
            collect()


Shown = tuple[int, str, str, int, list[int]]
"""Number of the instance, word and value of a sample (none: empty), state and generation counts."""
Readers = tuple[list[tuple[str, Callable[[], list[Shown]]]], Callable[[], object]]
"""What each gets by its name, and what waits until there may be something, or for a moment."""


def _ordinary_readers(options: dict[str, Any]) -> Readers:
    from cyclonedds.core import InstanceState, Policy, Qos, ReadCondition, SampleState, ViewState, WaitSet
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.sub import DataReader, Subscriber
    from cyclonedds.topic import Topic

    participant = DomainParticipant(options["domain"])
    waitset = WaitSet(participant)

    def made(one: dict[str, Any]) -> Callable[[], list[Shown]]:
        qos = qos_of({**one, "depth": 0})
        subscriber = Subscriber(participant, Qos(Policy.Partition([one.get("partition", "stock")])))
        topic = Topic(participant, one["topic"], types.Reading, qos=qos)
        resources = Policy.ResourceLimits(*one.get("resources", (-1, -1, -1)))
        reader = DataReader(subscriber, topic, qos=Qos(resources, base=qos))
        condition = ReadCondition(reader, SampleState.NotRead | ViewState.Any | InstanceState.Any)
        waitset.attach(condition)
        get = reader.take if options.get("takes") else reader.read
        return lambda: [shown(sample) for sample in get(5000, condition=condition)]

    def shown(sample: Any) -> Shown:
        info = sample.sample_info
        state = WORDS[int(info.instance_state)]
        generations = [info.disposed_generation_count, info.no_writers_generation_count]
        if info.valid_data:
            return sample.number, f"S{info.source_timestamp}", state, sample.value, generations
        return sample.key_sample.number, "", state, 0, generations

    ends = [(one.get("name", one["topic"]), made(one)) for one in options["readers"]]
    return ends, lambda: waitset.wait(100_000_000)


def _library_readers(options: dict[str, Any]) -> Readers:
    from ospltool.client import DurabilityClient, DurableReader

    client = DurabilityClient(options["domain"])

    def made(one: dict[str, Any]) -> Callable[[], list[Shown]]:
        partitions = [one.get("partition", "stock")]
        reader = DurableReader(client, one["topic"], types.Reading, partitions, qos_of({**one, "depth": 0}))
        return lambda: [shown(reader, sample) for sample in reader.take()]

    def shown(reader: Any, sample: Any) -> Shown:
        number = int.from_bytes(sample.key[:4], "little")
        state = STATE_WORDS[str(reader.instance_state(sample.key))]
        generations = [sample.disposed_generation_count, sample.no_writers_generation_count]
        if sample.data:
            return number, f"S{sample.source_time_ns}", state, sample.data.value, generations
        return number, "", state, 0, generations

    ends = [(one.get("name", one["topic"]), made(one)) for one in options["readers"]]
    return ends, lambda: time.sleep(0.02)  # each reader has an event of its own


def readers_in_turn(options: dict[str, Any]) -> None:
    """Readers in one process, which come and go when they are told to.

    Commands: `make` readers, as many as it says: of its `topic`, in its `partitions`, each with a participant
    of its own if they are `apart`, and `pause_s` after one another; `close` one; `want`: which one, and how
    many different samples it must have; the answer is how many it has, and how many came again; `ended`:
    which one, and of how many instances it must have taken that they are not alive.
    """
    from cyclonedds.core import Policy, Qos
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.sub import DataReader, Subscriber
    from cyclonedds.topic import Topic

    participant = DomainParticipant(options["domain"])
    qos = qos_of(options)
    ends: dict[int, Any] = {}
    tallies: list[collections.Counter[tuple[int, int]]] = []
    ended: list[set[int]] = []

    def make(topic_name: str, partitions: list[str], owner: Any) -> None:
        topic = Topic(owner, topic_name, types.Reading, qos=qos)
        subscriber = Subscriber(owner, Qos(Policy.Partition(partitions)))
        ends[len(tallies)] = DataReader(subscriber, topic, qos=qos)
        tallies.append(collections.Counter())
        ended.append(set())

    def take() -> None:
        for number, one in ends.items():
            for sample in one.take(5000):
                info = sample.sample_info
                key = (sample if info.valid_data else sample.key_sample).number
                if info.valid_data:
                    tallies[number][key, info.source_timestamp] += 1
                (ended[number].discard if int(info.instance_state) == ALIVE else ended[number].add)(key)

    say(ready=True)
    for command in commands():
        if "make" in command:
            for _ in range(command["make"]):
                owner = DomainParticipant(options["domain"]) if command.get("apart") else participant
                make(command.get("topic", "Reading"), command.get("partitions", ["stock"]), owner)
                time.sleep(command.get("pause_s", 0.0))
            say(made=True)
        elif "close" in command:
            del ends[command["close"]]
            gc.collect()
            say(closed=True)
        elif "ended" in command:
            which, count = command["ended"]
            take()
            while len(ended[which]) < count:
                time.sleep(0.01)
                take()
            say(ended=True)
        else:
            which, count = command["want"]
            take()
            while len(tallies[which]) < count:
                time.sleep(0.01)  # a WaitSet has the readers of one participant
                take()
            say(has=[len(tallies[which]), sum(tallies[which].values()) - len(tallies[which])])
