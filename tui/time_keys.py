"""The part of the console that moves in time: pause, recordings, simulations, the past of a live system."""

from __future__ import annotations

import abc
from typing import Final

from textual.app import App

from ospltool.health.health import Health
from ospltool.live.feed import Feed, TimeTravel
from ospltool.live.model import SystemModel
from tui.console import CommandFault, Systems
from tui.screens.base import OpsScreen

SECOND_NS: Final = 1_000_000_000

TRAVEL_ACTIONS: Final = frozenset({"step", "wind", "faster", "mark", "next_mark"})


class TimeKeys(App[int]):
    """What is shown of which moment, and the keys that change it.

    Attributes:
        systems: all watched systems.
        paused_ns: the moment at which a live picture stands still; 0 while it goes on.
    """

    systems: Systems
    paused_ns: int

    @abc.abstractmethod
    def say(self, text: str) -> None:
        """Show a message at the bottom for a while."""

    @abc.abstractmethod
    def refresh_all(self) -> None:
        """Poll and show the system at once."""

    @property
    def feed(self) -> Feed:
        """The feed of the shown system."""
        return self.systems.shown.feed

    @property
    def model(self) -> SystemModel:
        """The model of the shown system."""
        return self.systems.shown.model

    @property
    def health(self) -> Health:
        """The health of the shown system."""
        return self.systems.shown.health

    @property
    def travel(self) -> TimeTravel | None:
        """The feed, if the console controls its time."""
        return self.feed if isinstance(self.feed, TimeTravel) else None

    def action_pause(self) -> None:
        """Freeze the picture, or continue. Updates wait in the feed, within its bounds."""
        if self.travel is not None:
            self.travel.pause(paused=not self.travel.timeline.paused)
        else:
            self.paused_ns = 0 if self.paused_ns else self.feed.now_ns()
        self.refresh_all()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Allow keys for winding only in recordings and simulations, and in the past of a live system."""
        if action in TRAVEL_ACTIONS:
            return self.travel is not None
        if action == "past":
            return self.travel is None and bool(self.systems.recordings)
        if action == "live":
            return self.systems.past is not None
        return super().check_action(action, parameters)

    def wind_to(self, moment_ns: int) -> None:
        """Show the recording or simulation, or the past of a live system, at a moment."""
        if self.travel is None and self.systems.recordings:
            try:
                self.systems.go_back()
            except CommandFault as fault:
                self.say(str(fault))
                return
            self._turn_time()
        if self.travel is not None:
            self.travel.seek(moment_ns)
            self.refresh_all()

    def action_past(self, seconds: int) -> None:
        """Show the system as a recording has it, `seconds` from now; they are negative."""
        self.wind_to((self.paused_ns or self.feed.now_ns()) + seconds * SECOND_NS)

    def action_live(self) -> None:
        """Return from the past of a system to the system as it is."""
        self.systems.return_to_present()
        self._turn_time()
        self.refresh_all()

    def _turn_time(self) -> None:
        self.paused_ns = 0
        self.refresh_bindings()

    def action_wind(self, seconds: int) -> None:
        """Wind forward or back, from the target of an earlier key."""
        if self.travel is not None:
            self.wind_to(self.travel.timeline.now_ns + seconds * SECOND_NS)

    def action_step(self, direction: int) -> None:
        """Pause at the next event, or the previous one."""
        if self.travel is not None:
            if not self.travel.step(direction):
                self.say("no event after this moment" if direction > 0 else "no event before this moment")
            self.refresh_all()

    def action_faster(self, factor: float) -> None:
        """Play faster or slower, between a tenth and a thousand times."""
        if self.travel is not None:
            self.travel.set_speed(min(max(self.travel.timeline.speed * factor, 0.1), 1000.0))
            self.refresh_all()

    def action_mark(self) -> None:
        """Mark this moment; a note may follow."""
        if isinstance(self.screen, OpsScreen):
            self.screen.action_command("mark ")

    def action_next_mark(self) -> None:
        """Pause at the next mark; after the last comes the first."""
        if self.travel is not None:
            marks = [moment_ns for moment_ns, _ in self.travel.notes()]
            later = [moment_ns for moment_ns in marks if moment_ns > self.feed.now_ns()]
            if marks:
                moment_ns = later[0] if later else marks[0]
                self.travel.pause(paused=True)
                self.wind_to(moment_ns)
                self.say(f"mark: {dict(self.travel.notes())[moment_ns] or 'without a note'}")
            else:
                self.say("no marks yet; m makes one")
