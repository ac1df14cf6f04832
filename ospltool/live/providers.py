"""The views of persistence services in words, for the console and the commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from engine.persistence.service.view import ReplicaView, WriterView

MAX_LAG_PERIODS: Final = 2
"""Periods of source time that a provider may be behind before others avoid it."""

NOTHING: Final = "-"


def why_none(mode: str) -> str:
    """Return a sentence for an empty screen, with the command to run; `mode` is the feed's."""
    if mode == "simulated":
        return (
            "simulated systems have no persistence services; `ospltool persistence rehearse` rehearses them"
        )
    if mode == "recorded":
        return "no persistence service was heard up to this moment of the recording"
    return "no persistence service heard; `ospltool persistence run FILE --name NAME` starts one"


def is_of_interest(writer: WriterView) -> bool:
    """Whether samples of a writer come or are missing."""
    return bool(
        writer.provider or writer.filling or writer.selected or writer.selected_filling or writer.lag_ns
    )


def lacks_provider(writer: WriterView) -> bool:
    """Whether samples are missing and no provider gives them."""
    return bool(writer.lag_ns and not writer.provider and not writer.filling)


def lags(writer: WriterView, period_ms: int) -> bool:
    """Whether the replica is so far behind that others avoid it as a provider."""
    return writer.lag_ns > MAX_LAG_PERIODS * period_ms * 1_000_000


def used(writer: WriterView) -> str:
    """Return the providers in use: `original` or a replica, and the filling replicas."""
    return _joined(writer.provider, writer.filling)


def selected(writer: WriterView) -> str:
    """Return the providers that the last period chose."""
    return _joined(writer.selected, writer.selected_filling)


def _joined(live: str, filling: tuple[str, ...]) -> str:
    return "+".join((live, *filling) if live else filling) or NOTHING


def lag(lag_ns: int) -> str:
    """Return source time in seconds, below a tenth in milliseconds; a dash for none."""
    if 0 < lag_ns < 100_000_000:
        return f"{max(1, lag_ns // 1_000_000)} ms"
    return f"{lag_ns / 1e9:,.1f} s" if lag_ns else NOTHING


def stability(writer: WriterView) -> str:
    """Return "stable", the periods with the same choice of those needed, or "forced at" the bound.

    A choice is forced if it was put into use after `unsettled_of` periods without a stable one.
    """
    if writer.stable >= writer.stable_of:
        return "stable"
    if writer.stable and not writer.unsettled:
        return f"forced at {writer.unsettled_of}"
    return f"{writer.stable} of {writer.stable_of}"


def path(writer: WriterView) -> str:
    """Return the replicas through which samples come; a dash if none come."""
    return " > ".join(writer.path) or NOTHING


def short_name(writer: WriterView, ellipsis: str = "…") -> str:
    """Return both ends of its GUID, with "late" for its stream of late samples."""
    return f"{writer.writer[:8]}{ellipsis}{writer.writer[-8:]}{' late' if writer.late else ''}"


def connected(view: ReplicaView) -> list[str]:
    """Return the names of the other replicas to which its link is up."""
    return [peer.name for peer in view.peers if peer.link == "up"]


def in_doubt(counts: dict[str, int]) -> str:
    """Return the samples that members have acknowledged and the quorum has not, by member."""
    return ",".join(f"{member} {count}" for member, count in counts.items()) or NOTHING


def members(names: Iterable[str]) -> str:
    """Return the connected readers of a durable subscription; a dash for none."""
    return ",".join(names) or NOTHING


def worst_stability(writers: Sequence[WriterView]) -> str:
    """Return "stable" for all, or the number of forced or unstable choices; a dash for no writer."""
    if not writers:
        return NOTHING
    told = [stability(writer) for writer in writers]
    forced = sum(1 for one in told if one.startswith("forced"))
    unstable = sum(1 for one in told if one != "stable")
    if forced:
        return f"{forced} forced"
    return f"{unstable} unstable" if unstable else "stable"
