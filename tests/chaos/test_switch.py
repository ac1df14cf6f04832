from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from chaos.switch import Rule, Switch

EVERYBODY = b"\xff" * 6


class Cable:
    """A switch whose ports are sockets instead of TAP devices."""

    def __init__(self, *names: str, seed: str = "1") -> None:
        self.switch = Switch(seed)
        self.ends: dict[str, socket.socket] = {}
        self.inner: list[socket.socket] = []
        for name in names:
            inside, outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            outside.setblocking(False)
            self.switch.plug(name, inside.fileno())
            self.inner.append(inside)
            self.ends[name] = outside

    def send(self, source: str, target: bytes, text: bytes, now: float = 0.0) -> None:
        self.switch.forward(source, target + mac(source) + text, now)

    def got(self, name: str) -> list[bytes]:
        """What came out at a port."""
        frames = []
        while True:
            try:
                frames.append(self.ends[name].recv(2048)[12:])
            except BlockingIOError:
                return frames

    def close(self) -> None:
        for end in (*self.inner, *self.ends.values()):
            end.close()


def mac(name: str) -> bytes:
    return b"\x02" + name.encode().ljust(5, b"\0")


@pytest.fixture
def cable() -> Iterator[Cable]:
    with contextlib.closing(Cable("a", "b", "c")) as made:
        yield made


def test_a_frame_goes_to_everybody_until_its_target_is_known(cable: Cable) -> None:
    cable.send("a", mac("b"), b"who")
    assert (cable.got("a"), cable.got("b"), cable.got("c")) == ([], [b"who"], [b"who"])
    cable.send("b", mac("a"), b"me")
    cable.send("a", mac("b"), b"you")
    assert (cable.got("a"), cable.got("b"), cable.got("c")) == ([b"me"], [b"you"], [])
    cable.send("b", EVERYBODY, b"all")
    assert (cable.got("a"), cable.got("c")) == ([b"all"], [b"all"])


def test_a_cut_is_for_one_direction_and_can_be_healed(cable: Cable) -> None:
    cable.switch.set_rule("a", "b", Rule(cut=True))
    cable.send("a", EVERYBODY, b"1")
    cable.send("b", EVERYBODY, b"2")
    assert (cable.got("a"), cable.got("b"), cable.got("c")) == ([b"2"], [], [b"1", b"2"])
    cable.switch.set_rule("a", "b", Rule())
    cable.send("a", EVERYBODY, b"3")
    assert cable.got("b") == [b"3"]


def lost_of_1000(seed: str) -> list[bytes]:
    came = []
    with contextlib.closing(Cable("a", "b", seed=seed)) as cable:
        cable.switch.set_rule("a", "b", Rule(loss=0.3))
        for number in range(1000):
            cable.send("a", EVERYBODY, b"%d" % number)
            came += cable.got("b")
    return came


def test_what_is_lost_is_a_matter_of_the_seed() -> None:
    came = lost_of_1000("1")
    assert 600 < len(came) < 800
    assert came == lost_of_1000("1")
    assert came != lost_of_1000("2")


def test_delayed_frames_come_when_they_are_due_and_jitter_reorders_them(cable: Cable) -> None:
    cable.switch.set_rule("a", "b", Rule(delay_s=0.1, jitter_s=1.0))
    sent = [b"%d" % number for number in range(50)]
    for text in sent:
        cable.send("a", EVERYBODY, text)
    assert cable.switch.deliver_late(0.09) is not None
    assert cable.got("b") == []
    assert cable.switch.deliver_late(1.1) is None
    came = cable.got("b")
    assert sorted(came) == sorted(sent)
    assert came != sent


def test_duplicates_come_twice(cable: Cable) -> None:
    cable.switch.set_rule("a", "b", Rule(duplicate=1.0))
    cable.send("a", EVERYBODY, b"x")
    assert (cable.got("b"), cable.got("c")) == ([b"x", b"x"], [b"x"])
