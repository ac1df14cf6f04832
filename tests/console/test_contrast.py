"""Every tone can be read on everything that it stands on, in every theme that has colours of its own."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from textual.color import Color

import tui
from ospltool.views.cells import Tone
from tui.themes import ALL

LEAST = 4.5
"""Contrast of text by WCAG 2.2, 1.4.3."""

OWN_COLOURS = [name for name, theme in ALL.items() if not theme.ansi]
STYLES = (Path(tui.__path__[0]) / "ops.tcss").read_text(encoding="utf-8")
BACKGROUNDS = sorted({"background", *re.findall(r"\bbackground: \$(ops-[a-z]+)", STYLES)})


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it, 0 to 1."""
    parts = (part / 255 for part in Color.parse(colour).rgb)
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_is_what_it_is() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_all_backgrounds_of_text_are_looked_at() -> None:
    assert BACKGROUNDS == ["background", "ops-bar", "ops-cursor", "ops-row"]
    assert OWN_COLOURS == ["ops-dark", "ops-light"]


@pytest.mark.parametrize(("name", "background"), [*itertools.product(OWN_COLOURS, BACKGROUNDS)])
def test_every_tone_can_be_read(name: str, background: str) -> None:
    theme = ALL[name]
    behind = theme.background if background == "background" else theme.variables[background]
    assert behind
    found = {tone: contrast(theme.variables[f"ops-{tone}"], behind) for tone in Tone}
    assert {tone: ratio for tone, ratio in found.items() if ratio < LEAST} == {}
