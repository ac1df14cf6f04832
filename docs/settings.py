"""Makes docs/settings.md from the table of settings itself: `python -m docs.settings`.

A test fails when the page is not what this module makes of the table.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from engine.config.fates import SECTIONS, WITHOUT_WARNING, Fate, SettingFate, fates
from engine.config.schema import Type, engine_schema
from engine.config.settings import SERVICE
from engine.node.process import SETTING_OF

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = pathlib.Path(__file__).with_suffix(".md")
HEAD = """# What a node does with each setting

<!-- Made by `python -m docs.settings` from engine/config/opensplice.tsv. -->

A node reads the configuration of OpenSplice: `Domain` and its `DurabilityService`. To see which settings of
a file work, are not needed, or are refused:

```console
$ ospltool check --target ospltool --show info ospl.xml   # DUR128, DUR129: no effect; DUR130: refused
$ ospltool check --effective ospl.xml         # every setting, its origin, and whether it has an effect
```

- **works**: the node follows it.
- **not needed here**: the node does not follow it. It says so at its start with a WARNING in ospl-info.log,
  unless the value asks for nothing but what the node does anyway (column *No word when*). *Any value:
  DUR129*: nothing is lost whatever the value is, so only `check --target ospltool --show info`, `info` and
  `--effective` say it.
- **refused**: going on without it would do harm, so the node does not start. The same holds for security in
  the networking services: `Security` or `DDSSecurity` of a `DDSI2Service`, a profile with a cipher of a
  `DDSI2EService`, and an enabled `Security` of an `SNetworkService`
  ([why](internals/design.md#one-library-of-cyclone-dds)).

An unknown element or attribute keeps the node from starting if it is in the `DurabilityService`. Elsewhere
the node starts with a WARNING that names the setting that was probably meant; `ospltool check` reports an
error (DUR020, DUR021). What `Domain/Service` says of other services does not concern a node.

## Threads that hang

A thread of a node that gives no sign of life for 10 s, or is busy with one piece of work for too long, is
named with an ERROR in ospl-error.log, by `ospltool status` and by `ospltool health` (DUL-NODE-STUCK). With
`Watchdog@deadlockDetection` the lease is withheld until it moves again. Time in which the whole process or
its machine stood still does not count.

If the supervisor gives no sign of life for ExpiryTime of the lease, and at least 3 s, the node names
`supervisor` in the same way; after three times ExpiryTime, and at least 10 s, it ends in order. [How
threads are watched](internals/design.md#threads-that-hang) has the details, and their names.

A node that cannot run, so that another start would end in the same way, is not started again, whatever the
FailureAction says. The exit code is 2, and `start`, `status` and the node's log report the reason once:

- the configuration, a trace file or a report file cannot be read or opened, or does not fit the system;
- the store is in use by another node, is not a store, or is of a newer release; its place is no directory,
  is read-only, may not be written, or has a symbolic link for one of its files;
- Cyclone DDS refuses the settings, a port is in use, or there is another Cyclone DDS than the node can use;
- the program of the node cannot be run.

A shortage (memory, processes, open files) and an error of a device may be over at the next start. For room
on the disk and for a clock the node waits by itself.

## Scheduling

Class and priority apply to each thread, those of Cyclone DDS included. `Realtime` is SCHED_FIFO with a
priority of 1 to 99. `Timeshare` is SCHED_OTHER, where priority 5 is nice -5. `Default` keeps the class of
the process. A `Relative` priority is added to that of the process, which `Domain/Service/Scheduling` sets.
Where Linux has no such priority, the node says at its start what it uses instead. `top -H` shows the threads
by name:

| Setting | Threads |
|---|---|
"""


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join([*_threads(), "", *_sections()]) + "\n"


def _threads() -> Iterator[str]:
    by_setting: dict[str, list[str]] = {}
    for name, setting in SETTING_OF.items():
        shown = {"MainThread": "the main thread", "dq.": "`dq.…`"}.get(name, f"`{name}`")
        by_setting.setdefault(setting, []).append(shown)
    for setting, names in by_setting.items():
        yield f"| {setting} | {', '.join(names)} |"
    yield f"| {SERVICE} | all others, and the base of relative priorities |"


def _sections() -> Iterator[str]:
    for section in SECTIONS:
        rows = _rows(section)
        yield f"## {section}"
        yield ""
        yield f"These work: {', '.join(rows[Fate.WORKS][''])}."
        for fate in (Fate.NOT_NEEDED, Fate.REFUSED):
            if rows[fate]:
                yield ""
                yield f"| {fate.capitalize()} | Why | No word when |"
                yield "|---|---|---|"
                yield from (f"| {', '.join(names)} | {rest} |" for rest, names in rows[fate].items())
        yield ""
    working = sum(each.fate is Fate.WORKS for each in fates().values())
    refused = sum(each.fate is Fate.REFUSED for each in fates().values())
    yield f"{working} work, {len(fates()) - working - refused} are not needed, {refused} are refused."


def _rows(section: str) -> dict[Fate, dict[str, list[str]]]:
    """Return the settings of a section by fate, and by the cells that several have in common."""
    rows: dict[Fate, dict[str, list[str]]] = {fate: {} for fate in Fate}
    for path in engine_schema().paths():
        entry = fates().get(path)
        if entry is None or path.partition("/")[0].partition("@")[0] != section:
            continue
        if engine_schema()[path].type is Type.ELEMENT and path != entry.path:
            continue
        shown = path.removeprefix(f"{section}/").removeprefix(section)
        if entry.fate is Fate.WORKS:
            rows[entry.fate].setdefault("", []).append(f"`{shown}`")
        elif not _is_one_with_its_parent(path, entry):
            below = " and below" if _has_more(path, entry) else ""
            rows[entry.fate].setdefault(f"{entry.reason} | {_accepted(entry)}", []).append(shown + below)
    return rows


def _is_one_with_its_parent(path: str, entry: SettingFate) -> bool:
    """Whether the line of an element above says it all."""
    return path != entry.path and entry.path in fates()


def _has_more(path: str, entry: SettingFate) -> bool:
    return entry.fate is not Fate.WORKS and any(
        other is entry and at != path for at, other in fates().items()
    )


def _accepted(entry: SettingFate) -> str:
    if entry.accepted.startswith("="):
        return f"as {entry.accepted.removeprefix('=')}"
    words = {"*": "any value", WITHOUT_WARNING: "any value: DUR129", "": ""}
    return words.get(entry.accepted, f"`{entry.accepted.replace('|', '`, `')}`")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
