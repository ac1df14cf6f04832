"""Nodes and applications of one test: real processes, in a directory and a domain of their own."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from engine.dataset.groups import DurabilityKind
from engine.dds.discovery import TopicDiscovery
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.uri import cyclone_uri
from engine.dds.waiting import Signal
from engine.store.interface import DamageLog, SetState
from engine.store.read_only import StoreView
from engine.tracing.catalogue import catalogue
from ospltool.live.dds import LiveFeed
from tests.integration.configurations import Settings, node_xml
from tests.integration.forks import Process, begin
from tests.integration.programs import PATIENCE_S, ROOT, Program, end_all
from tests.integration.watching import FeedSource, ProgramSource, Watch
from tests.trace_lines import read_line

END_S: Final = 15.0
LEASE_S: Final = 1.5


class Lab:
    """One domain, closed to everybody else by a domain tag.

    Args:
        directory: for configurations, stores and traces; given by the test.
        domain: DDS domain id.
        tag: domain tag.
        uri: Cyclone DDS settings in place of loopback with that tag.
        watched: watch the nodes from this process.
    """

    def __init__(
        self, directory: Path, domain: int, tag: str, uri: str | None = None, *, watched: bool = True
    ) -> None:
        self.directory = directory
        self.domain = domain
        self.uri = uri or cyclone_uri(tag=tag, lease_s=LEASE_S, spdp_interval_ms=200, environment={})
        self.environ = {
            **os.environ,
            "CYCLONEDDS_URI": self.uri,
            "OSPL_LOGPATH": str(directory),
            "OSPLTOOL_RUNDIR": str(directory / "run"),
        }
        self.prefixes: dict[str, Sequence[str]] = {}
        self.shifts_s: dict[str, float] = {}
        """By how much the wall clock of a node is wrong."""
        self._settings: dict[str, Settings] = {}
        self._processes: dict[str, Process] = {}
        self._programs: list[Program] = []
        self.watch = self._watch() if watched else None

    def _watch(self) -> Watch:
        watch = Watch(FeedSource(LiveFeed(self.domain, uri=self.uri)))
        watch.check = self.check
        return watch

    @property
    def seen(self) -> Watch:
        """What the nodes show to this process."""
        assert self.watch is not None
        return self.watch

    def home(self, name: str) -> Path:
        return self.directory / name

    def configure(self, name: str, settings: Settings) -> Path:
        """Write the configuration of a node."""
        self.home(name).mkdir(parents=True, exist_ok=True)
        path = self.home(name) / "ospl.xml"
        path.write_text(node_xml(name, self.domain, self.home(name), settings), encoding="utf-8")
        self._settings[name] = settings
        return path

    def configure_three(self, settings: Settings | None = None) -> tuple[str, str, str]:
        """n1, n2 and n3 with masterPriority 200, 100 and 50."""
        for name, priority in (("n1", 200), ("n2", 100), ("n3", 50)):
            self.configure(name, (settings or Settings()).with_priority(priority))
        return "n1", "n2", "n3"

    def start_three(self, settings: Settings | None = None) -> tuple[str, str, str]:
        """Configure and start three nodes; they are complete when this returns."""
        names = self.configure_three(settings)
        self.start_complete(*names)
        return names

    def start_complete(self, *names: str, settings: Settings | None = None) -> None:
        """Start nodes, with these settings if given; they are complete when this returns."""
        if settings is not None:
            for name in names:
                self.configure(name, settings)
        self.start(*names)
        self.seen.wait_for("all are complete", lambda: self.seen.are_complete(*names))

    def is_aligning(self, name: str) -> bool:
        """Whether a node has begun to take in the set of a fellow; on a fast machine it may be done, too."""
        shown = self.seen.node(name)
        return shown is not None and any(space.phase in ("align", "complete") for space in shown.name_spaces)

    def ospltool(self, name: str, *arguments: str) -> tuple[int, str]:
        """Run a command for the configuration of a node: its exit code, and what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "ospltool.cli.app", *arguments, str(self.home(name) / "ospl.xml")],
            env={**self.environ, "PYTHONPATH": str(ROOT), "OSPL_LOGPATH": str(self.home(name))},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        return done.returncode, done.stdout

    def status(self, name: str) -> dict[str, Any]:
        """What `ospltool status` says of a node that a supervisor has started."""
        (shown,) = json.loads(self.ospltool(name, "status", "--json")[1])["data"]
        assert isinstance(shown, dict)
        return shown

    def deliveries(self) -> list[str]:
        """The states of the deliveries of history that nodes show."""
        shown = [self.seen.node(name) for name in self._processes]
        return [view.state for node in shown if node is not None for view in node.deliveries]

    def wait_delivered(self, count: int = 1) -> None:
        """Until nodes show so many deliveries of history, all of them at their end."""

        def ended() -> bool:
            states = self.deliveries()
            return len(states) >= count and "running" not in states

        self.seen.wait_for(f"{count} deliveries have ended", ended)

    def start_again(self, *names: str) -> int:
        """Start nodes that know each other; they wait for each other. Returns the wall clock before it."""
        before_ns = time.time_ns()
        for name in names:
            self.configure(name, dataclasses.replace(self._settings[name], discovery_s=10.0))
        self.start(*names)
        self.seen.wait_for("all are complete again", lambda: self.seen.are_complete(*names))
        return before_ns

    # Nodes.

    def start(self, *names: str, environ: Mapping[str, str] | None = None) -> None:
        """Start nodes; each has been configured."""
        for name in names:
            self._processes[name] = self.launch(name, environ)

    def launch(self, name: str, environ: Mapping[str, str] | None = None) -> Process:
        """Start the process of a node that nobody expects to stay."""
        home = self.home(name)
        shift_s = self.shifts_s.get(name)
        module = ("engine",) if shift_s is None else ("chaos.skewed", str(shift_s))
        with (home / "output.log").open("ab") as output, Path(os.devnull).open("rb") as nothing:
            return begin(
                [sys.executable, "-m", *module, str(home / "ospl.xml")],
                {**self.environ, "PYTHONPATH": str(ROOT), "OSPL_LOGPATH": str(home), **(environ or {})},
                (nothing, output, output),
                self.prefixes.get(name, ()),
            )

    def process(self, name: str) -> Process:
        return self._processes[name]

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def kill(self, *names: str) -> None:
        """SIGKILL to all of them, one right after the other."""
        for name in names:
            self._processes[name].send_signal(signal.SIGKILL)
        for name in names:
            self._processes.pop(name).wait(END_S)
        if self.watch:
            self.watch.forget(*names)

    def stop(self, *names: str) -> list[int]:
        """SIGTERM; returns the exit codes."""
        for name in names:
            self._processes[name].terminate()
        codes = [self._processes.pop(name).wait(END_S) for name in names]
        if self.watch:
            self.watch.forget(*names)
        return codes

    def output(self, name: str) -> str:
        """What a node wrote to its standard streams."""
        return (self.home(name) / "output.log").read_text(encoding="utf-8")

    def errors(self, name: str) -> str:
        """Its ospl-error.log."""
        return self._report(name, "ospl-error.log")

    def information(self, name: str) -> str:
        """Its ospl-info.log."""
        return self._report(name, "ospl-info.log")

    def _report(self, name: str, file: str) -> str:
        path = self.home(name) / file
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def trace(self, name: str, *events: str, since_ns: int = 0) -> list[dict[str, str]]:
        """The fields of these events in its trace, in order, each with `event`."""
        found = []
        starts = tuple(catalogue()[event].text.partition("{")[0] for event in events)
        for text in (self.home(name) / "trace.log").read_text(encoding="utf-8").splitlines():
            # A trace has a hundred thousand lines at times: to match each of them takes minutes.
            line = read_line(text) if any(start in text for start in starts) else None
            matched = catalogue().match(line.text) if line else None
            if line and matched and matched[0].id in events and (line.time_ns or 0) >= since_ns:
                found.append({"event": matched[0].id, **matched[1]})
        return found

    def on_disk(self, name: str, name_space: str = "stock") -> dict[tuple[str, str], list[bytes]]:
        """The digests of all samples in a node's complete set, verified, by (partition, topic)."""
        found: dict[tuple[str, str], list[bytes]] = {}
        damage = DamageLog()
        with StoreView(self.home(name) / "store") as view:
            for info in view.sets(name_space):
                if info.state is not SetState.COMPLETE:
                    continue
                for description, samples in view.load(info.version, damage):
                    group = description.group
                    found.setdefault((group.partition, group.topic), []).extend(s.digest for s in samples)
        assert damage.count == 0, damage.first
        return found

    # Applications.

    def program(
        self,
        role: str,
        *,
        prefix: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Program:
        """Start an application; it is ended with the test."""
        seen = {**self.environ, **(environ or {})}
        program = Program(role, {"domain": self.domain, **options}, seen, prefix)
        self._programs.append(program)
        return program

    def adopt(self, program: Program) -> None:
        """End a program that was started otherwise with the test."""
        self._programs.append(program)

    def watch_from(self, node: str, environ: Mapping[str, str] | None = None) -> Watch:
        """What is seen from the host of a node, in a process there."""
        program = self.program("watch", prefix=self.prefixes[node], environ=environ)
        program.answer("ready")
        watch = Watch(ProgramSource(program))
        watch.check = self.check
        return watch

    def write(self, *steps: dict[str, Any], prefix: Sequence[str] = (), **options: Any) -> None:
        """A writer that carries out the steps and is gone when this returns."""
        program = self.program("writer", prefix=prefix, steps=list(steps), **options)
        program.answer("done")
        assert program.end() == 0

    def writer_below_its_topic(self) -> Program:
        """A TRANSIENT writer of a PERSISTENT topic, made once the topic has been told of in the domain."""
        with NodeParticipant(self.domain, self.uri, "looks", os.urandom(16), TagRole.CLIENT) as participant:
            flag = Signal(participant)
            topics = TopicDiscovery(participant, flag)
            program = self.program(
                "refused_writer",
                reliable=True,
                durability=DurabilityKind.TRANSIENT,
                topic_durability=DurabilityKind.PERSISTENT,
            )
            name = program.answer("topic")
            there = flag.wait_until(lambda: any(each.topic == name for each in topics.take()), 20.0)
            assert there, f"nothing is told of topic {name!r}"
        program.tell(go=True)
        return program

    def writer_before_its_topic(self, durability: DurabilityKind, count: int, readers: int = 1) -> Program:
        """A writer of which nodes hear before any topic is told; it has written so much."""
        program = self.program(
            "writer",
            durability=durability,
            topic_durability=DurabilityKind.VOLATILE,
            steps=[{"count": count, "time": 1_000}],
            readers=readers,
        )
        program.answer("done")
        return program

    def check_refused(self, program: Program, node: str, policy: str) -> int:
        """A `refused_writer` is told, and a node that just started counts it and names both sides.

        Returns how many the traces of the node name, of all its runs.
        """
        answer = program.line(30)
        assert answer["refused"], "OFFERED_INCOMPATIBLE_QOS at the application's own writer"

        def is_counted() -> bool:
            shown = self.seen.node(node)
            return shown is not None and shown.counters.get("refused_writers") == 1

        self.seen.wait_for("it is counted", is_counted)
        found = self.trace(node, "group.qos-mismatch")
        assert answer["guid"] in found[-1]["endpoint"]
        for text in (found[-1]["cause"], self.information(node)):
            assert policy in text
        assert program.end() == 0
        return len(found)

    def reader(self, *, prefix: Sequence[str] = (), **options: Any) -> Reader:
        """A reader that is there when this returns."""
        program = self.program("reader", prefix=prefix, **options)
        program.answer("ready")
        return Reader(program, self)

    def readers(self, count: int, **options: Any) -> list[Reader]:
        """Readers in processes of their own that start at the same time."""
        programs = [self.program("reader", **options) for _ in range(count)]
        for program in programs:
            program.answer("ready")
        return [Reader(program, self) for program in programs]

    # The end.

    def check(self) -> None:
        """No node has ended by itself."""
        for name, process in self._processes.items():
            code = process.poll()
            if code is not None:
                raise AssertionError(f"{name} ended with code {code}: {self.output(name)[-2000:]}")

    def close(self) -> None:
        for program in self._programs:
            program.end()
        self.stop_all()
        if self.watch:
            self.watch.close()

    def stop_all(self) -> None:
        """End the nodes that run, in order if they can."""
        end_all(self._processes.values(), END_S)
        self._processes.clear()


class Reader:
    """An application that counts what it gets."""

    def __init__(self, program: Program, lab: Lab) -> None:
        self.program = program
        self._lab = lab

    def wait(self, arrivals: int, timeout_s: float = PATIENCE_S, **states: int) -> None:
        """Until it has so many valid samples, and so many instances in each of the states."""
        wanted = {"arrivals": arrivals, "states": {name.replace("_", " "): n for name, n in states.items()}}
        self.program.tell(want=wanted)
        try:
            self.program.expect(lambda line: line.get("reached") == wanted, timeout_s)
        except AssertionError as error:
            self._lab.check()
            raise AssertionError(f"{error}; it has {self.tally()}") from None

    def wait_instances(self, count: int, timeout_s: float = PATIENCE_S) -> None:
        """Until it has so many instances, however often each of them came."""
        self.wait(0, timeout_s, instances=count)

    def tally(self, *, detailed: bool = False) -> dict[str, Any]:
        """What it has now."""
        self.program.tell(tally="detailed" if detailed else "short")
        tally: dict[str, Any] = self.program.answer("tally")
        return tally
