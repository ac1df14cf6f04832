"""What the views of persistence services say, in words: the same for the console and the commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from engine.persistence.service.view import ReplicaView, WriterView

MAX_LAG_PERIODS: Final = 2
"""A provider that is further behind than so many periods of source time is avoided by the choice."""

NOTHING: Final = "-"


def why_none(mode: str) -> str:
    """What to say where there is no persistence service, and how to start one; `mode` is the feed's."""
    if mode == "simulated":
        return (
            "simulated systems have no persistence services; `ospltool persistence rehearse` rehearses them"
        )
    if mode == "recorded":
        return "no persistence service was heard up to this moment of the recording"
    return "no persistence service heard; `ospltool persistence run FILE --name NAME` starts one"


def is_of_interest(writer: WriterView) -> bool:
    """Something comes or is missing; a writer that is gone and of which all is there is of none."""
    return bool(
        writer.provider or writer.filling or writer.selected or writer.selected_filling or writer.lag_ns
    )


def lacks_provider(writer: WriterView) -> bool:
    """Something is missing, and nobody gives it."""
    return bool(writer.lag_ns and not writer.provider and not writer.filling)


def lags(writer: WriterView, period_ms: int) -> bool:
    """It is so far behind that it would be avoided as a provider."""
    return writer.lag_ns > MAX_LAG_PERIODS * period_ms * 1_000_000


def used(writer: WriterView) -> str:
    """Whose samples are used now: `original` or a replica, and those that give the rest."""
    return _joined(writer.provider, writer.filling)


def selected(writer: WriterView) -> str:
    """Likewise, as the last period chose."""
    return _joined(writer.selected, writer.selected_filling)


def _joined(live: str, filling: tuple[str, ...]) -> str:
    return "+".join((live, *filling) if live else filling) or NOTHING


def lag(lag_ns: int) -> str:
    """Source time in seconds, below a tenth in milliseconds; a dash for none."""
    if 0 < lag_ns < 100_000_000:
        return f"{max(1, lag_ns // 1_000_000)} ms"
    return f"{lag_ns / 1e9:,.1f} s" if lag_ns else NOTHING


def stability(writer: WriterView) -> str:
    """Whether the choice is stable, for how many of the periods that takes it was the same, or forced.

    Forced is what was put into use after `unsettled_of` periods without a stable choice.
    """
    if writer.stable >= writer.stable_of:
        return "stable"
    if writer.stable and not writer.unsettled:
        return f"forced at {writer.unsettled_of}"
    return f"{writer.stable} of {writer.stable_of}"


def path(writer: WriterView) -> str:
    """The replicas through which samples come; a dash where none come."""
    return " > ".join(writer.path) or NOTHING


def short_name(writer: WriterView, ellipsis: str = "…") -> str:
    """Both ends of its GUID, and whether this is its stream of late samples."""
    return f"{writer.writer[:8]}{ellipsis}{writer.writer[-8:]}{' late' if writer.late else ''}"


def connected(view: ReplicaView) -> list[str]:
    """The other replicas with which its link is up."""
    return [peer.name for peer in view.peers if peer.link == "up"]


def in_doubt(counts: dict[str, int]) -> str:
    """What members have acknowledged and the quorum has not: how many samples, by member."""
    return ",".join(f"{member} {count}" for member, count in counts.items()) or NOTHING


def members(names: Iterable[str]) -> str:
    """Readers of a durable subscription that are there."""
    return ",".join(names) or NOTHING


def worst_stability(writers: Sequence[WriterView]) -> str:
    """One word for all: stable, how many were forced, or how many are not stable yet; a dash for none."""
    if not writers:
        return NOTHING
    told = [stability(writer) for writer in writers]
    forced = sum(1 for one in told if one.startswith("forced"))
    unstable = sum(1 for one in told if one != "stable")
    if forced:
        return f"{forced} forced"
    return f"{unstable} unstable" if unstable else "stable"
