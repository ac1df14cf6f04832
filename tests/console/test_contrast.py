"""Every tone can be read on everything that it stands on, and no two look alike to anybody."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from textual.color import Color

import tui
from ospltool.views.cells import Tone
from tui.themes import ALL, OWN

LEAST = 4.5
"""Contrast of text by WCAG 2.2, 1.4.3."""
LEAST_APART = 15.0
"""Distance of two colours in CIELAB; 2 is about what an eye tells apart side by side."""

COLOURED = [name for name, theme in ALL.items() if not theme.ansi]
STYLES = (Path(tui.__path__[0]) / "ops.tcss").read_text(encoding="utf-8")
BACKGROUNDS = sorted(
    {"background", *re.findall(r"\bbackground: \$(ops-[a-z]+);(?! color: \$background)", STYLES)}
)
"""What text of each tone stands on. Text in the page's colour reads on a tone as that tone on the page."""
ROLES = [tone for tone in Tone if tone is not Tone.STRONG]

Seen = tuple[tuple[float, float, float], ...]
EYES: dict[str, Seen] = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no green": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "no blue": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""What eyes see of linear red, green and blue: Machado, Oliveira and Fernandes 2009, the severe forms."""


def linear(colour: str) -> list[float]:
    parts = (part / 255 for part in Color.parse(colour).rgb)
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it, 0 to 1."""
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def seen(colour: str, eyes: Seen) -> tuple[float, float, float]:
    """The place of a colour in CIELAB, as these eyes see it."""
    parts = linear(colour)
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, parts, strict=True)))) for row in eyes
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def apart(one: str, other: str, eyes: Seen) -> float:
    pairs = zip(seen(one, eyes), seen(other, eyes), strict=True)
    return float(sum((a - b) ** 2 for a, b in pairs) ** 0.5)


def test_contrast_is_what_it_is() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_all_backgrounds_of_text_are_looked_at() -> None:
    assert BACKGROUNDS == ["background", "ops-bar", "ops-cursor"]
    assert {"ops-dark", "ops-light", "nord", "solarized-light"} <= set(COLOURED)
    stale = STYLES.partition(".-stale #header .tone--")[2].partition("{")[0]
    assert [tone for tone in ROLES if f"tone--{tone}" not in f"tone--{stale}"] == []


def test_every_tone_can_be_read_in_every_theme() -> None:
    poor = {}
    for name, background in itertools.product(COLOURED, BACKGROUNDS):
        variables = ALL[name].variables
        page = ALL[name].background or ("#121212" if ALL[name].dark else "#efefef")
        behind = page if background == "background" else variables[background]
        for tone in ROLES:
            if (ratio := contrast(variables[f"ops-{tone}"], behind)) < LEAST - 0.01:  # colours are rounded
                poor[name, background, tone] = ratio
    assert poor == {}


@pytest.mark.parametrize("name", [name for name in OWN if name in COLOURED])
def test_nobody_takes_one_tone_for_another(name: str) -> None:
    alike = {}
    for one, other in itertools.combinations(ROLES, 2):
        for eyes, matrix in EYES.items():
            first, second = (OWN[name].variables[f"ops-{tone}"] for tone in (one, other))
            if (distance := apart(first, second, matrix)) < LEAST_APART:
                alike[one, other, eyes] = distance
    assert alike == {}
