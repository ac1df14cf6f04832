"""Four looks: dark, light, the sixteen colours of any terminal, and none at all.

Control-room practice: everything normal is grey, colour says "not normal", and never colour alone.
Every text has a contrast of at least 4.5 : 1 to what it stands on, under the cursor too (WCAG 2.2, 1.4.3).
"""

from __future__ import annotations

import dataclasses
from typing import Final

from textual.theme import Theme

STYLES: Final = {
    "ops-plain-style": "none",
    "ops-dim-style": "none",
    "ops-strong-style": "bold",
    "ops-accent-style": "bold",
    "ops-warn-style": "none",
    "ops-fault-style": "bold",
    "ops-conflict-style": "bold",
    "ops-cursor-style": "none",
}
"""Styles of tones in themes with colours; the themes without enough colours replace them."""

DARK: Final = Theme(
    name="ops-dark",
    primary="#7fa6c9",
    secondary="#8a94a0",
    accent="#7fa6c9",
    warning="#e0b84c",
    error="#ff7a6e",
    success="#c3c9d0",
    foreground="#c3c9d0",
    background="#14171a",
    surface="#14171a",
    panel="#1d2226",
    dark=True,
    variables={
        **STYLES,
        "ops-plain": "#c3c9d0",
        "ops-dim": "#979fa8",
        "ops-strong": "#e6e9ec",
        "ops-accent": "#8fb8dc",
        "ops-warn": "#e0b84c",
        "ops-fault": "#ff7a6e",
        "ops-conflict": "#e58ae5",
        "ops-row": "#1d2226",
        "ops-cursor": "#22384d",
        "ops-bar": "#1d2226",
        "ops-scroll": "#3a424a",
    },
)

LIGHT: Final = Theme(
    name="ops-light",
    primary="#235580",
    secondary="#5c6670",
    accent="#235580",
    warning="#7a4e00",
    error="#a8201a",
    success="#3a4148",
    foreground="#3a4148",
    background="#f2f3f4",
    surface="#f2f3f4",
    panel="#e3e6e8",
    dark=False,
    variables={
        **STYLES,
        "ops-plain": "#3a4148",
        "ops-dim": "#545d65",
        "ops-strong": "#101418",
        "ops-accent": "#235580",
        "ops-warn": "#7a4e00",
        "ops-fault": "#a8201a",
        "ops-conflict": "#8e1f8e",
        "ops-row": "#e6e9eb",
        "ops-cursor": "#c5daec",
        "ops-bar": "#e3e6e8",
        "ops-scroll": "#b9c0c6",
    },
)

ANSI: Final = Theme(
    name="ops-ansi",
    ansi=True,
    primary="ansi_blue",
    secondary="ansi_cyan",
    accent="ansi_cyan",
    warning="ansi_yellow",
    error="ansi_red",
    success="ansi_default",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    dark=True,
    variables={
        **STYLES,
        "ops-plain": "ansi_default",
        "ops-dim": "ansi_default",
        "ops-dim-style": "dim",
        "ops-strong": "ansi_default",
        "ops-accent": "ansi_cyan",
        "ops-warn": "ansi_yellow",
        "ops-fault": "ansi_bright_red",
        "ops-conflict": "ansi_bright_magenta",
        "ops-row": "ansi_default",
        "ops-cursor": "ansi_default",
        "ops-cursor-style": "reverse",
        "ops-bar": "ansi_default",
        "ops-scroll": "ansi_bright_black",
        "ansi-background": "ansi_black",
        "ansi-foreground": "ansi_white",
        "border-blurred": "ansi_black",
        "block-cursor-foreground": "ansi_black",
        "block-cursor-background": "ansi_white",
        "input-cursor-background": "ansi_white",
        "input-cursor-foreground": "ansi_black",
        "input-cursor-text-style": "none",
    },
)

MONO: Final = dataclasses.replace(
    ANSI,
    name="ops-mono",
    primary="ansi_default",
    secondary="ansi_default",
    accent="ansi_default",
    warning="ansi_default",
    error="ansi_default",
    variables={
        **ANSI.variables,
        "ops-accent": "ansi_default",
        "ops-warn": "ansi_default",
        "ops-warn-style": "bold",
        "ops-fault": "ansi_default",
        "ops-fault-style": "bold reverse",
        "ops-conflict": "ansi_default",
        "ops-conflict-style": "bold underline",
    },
)

ALL: Final = {theme.name: theme for theme in (DARK, LIGHT, ANSI, MONO)}


def choose(name: str | None, *, no_color: bool, term: str) -> str:
    """Return the theme to start with: the one asked for, or what the terminal can show.

    Args:
        name: wish of the user; None for none.
        no_color: the user wants no colours (NO_COLOR).
        term: value of TERM.
    """
    if name:
        return name
    if no_color:
        return MONO.name
    return DARK.name if term not in ("linux", "vt100", "vt220", "ansi", "xterm-mono") else ANSI.name
