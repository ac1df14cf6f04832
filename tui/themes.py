"""The looks: dark, light, the sixteen colours of any terminal, none at all, and Textual's own themes.

Control-room practice: everything normal is grey, colour says "not normal" or "under way", and never colour
alone. Six roles have a colour each (`Tone`, where `STRONG` is plain text in bold). Every text has a contrast
of at least 4.5 : 1 to what it stands on, under the cursor too (WCAG 2.2, 1.4.3).
"""

from __future__ import annotations

import dataclasses
from typing import Final

from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

LEAST_CONTRAST: Final = 4.5

_STYLES: Final = {
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


def _luminance(colour: Color) -> float:
    parts = (part / 255 for part in colour.rgb)
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: Color, other: Color) -> float:
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _readable(colour: Color, behind: tuple[Color, ...], *, is_dark: bool) -> Color:
    """Return the colour, moved as far towards white (or black) as reading it on every background needs."""
    end = Color.parse("white" if is_dark else "black")
    steps = (colour.blend(end, part / 20) for part in range(21))
    return next((one for one in steps if min(_contrast(one, b) for b in behind) >= LEAST_CONTRAST), end)


def with_roles(look: Theme, **given: str) -> Theme:
    """Return a theme with colours of its own, with the colour of every role of the console.

    Args:
        look: a theme of Textual.
        given: colours of roles in place of those that are derived from the theme.
    """
    page = Color.parse(look.background or ("#121212" if look.dark else "#efefef"))  # as Textual has it
    text = Color.parse(look.foreground or ("#e0e0e0" if look.dark else "#1f1f1f"))
    primary = Color.parse(look.primary)
    raised, cursor = page.blend(text, 0.06), page.blend(primary, 0.15)
    roles = {
        "plain": text,
        "dim": text.blend(page, 0.35),
        "accent": primary,
        "warn": Color.parse(look.warning or "#ffa62b"),
        "fault": Color.parse(look.error or "#ba3c5b"),
        "conflict": Color.parse("#ec6bf5" if look.dark else "#a31194"),
    }
    roles |= {name: Color.parse(value) for name, value in given.items()}
    shown = {
        name: _readable(one, (page, raised, cursor), is_dark=look.dark).hex6 for name, one in roles.items()
    }
    variables = {f"ops-{name}": colour for name, colour in shown.items()}
    for name, colour in {"bar": raised, "cursor": cursor, "edge": page.blend(text, 0.28)}.items():
        variables[f"ops-{name}"] = colour.hex6
    return dataclasses.replace(look, variables={**look.variables, **_STYLES, **variables})


DARK: Final = with_roles(
    Theme(
        name="ops-dark",
        primary="#8cc0e6",
        warning="#f2cc3a",
        error="#ff7a66",
        foreground="#d3d8dd",
        background="#14171a",
        surface="#14171a",
        panel="#1f2226",
        dark=True,
    ),
    dim="#979fa8",
)
LIGHT: Final = with_roles(
    Theme(
        name="ops-light",
        primary="#0b40bd",
        warning="#8b5701",
        error="#8f001d",
        foreground="#22282d",
        background="#f2f3f4",
        surface="#f2f3f4",
        panel="#e5e7e8",
        dark=False,
    ),
    dim="#535c64",
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
        **_STYLES,
        "ops-plain": "ansi_default",
        "ops-dim": "ansi_default",
        "ops-dim-style": "dim",
        "ops-accent": "ansi_cyan",
        "ops-warn": "ansi_yellow",
        "ops-fault": "ansi_bright_red",
        "ops-conflict": "ansi_bright_magenta",
        "ops-cursor": "ansi_default",
        "ops-cursor-style": "reverse",
        "ops-bar": "ansi_default",
        "ops-edge": "ansi_bright_black",
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

OWN: Final = {theme.name: theme for theme in (DARK, LIGHT, ANSI, MONO)}
ALL: Final = OWN | {name: with_roles(look) for name, look in BUILTIN_THEMES.items() if not look.ansi}
"""All themes by name: ours, and those of Textual's registry, with colours for every role."""


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
