"""Comments that take findings away, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ospltool.diagnostics.model import Report

STORE = "<StoreDirectory>/var/lib/durability/n1</StoreDirectory>"
BAD = "<StoreDirectory>/tmp/n1</StoreDirectory>"


def codes(report: Report) -> list[str]:
    return [each.code for each in report.diagnostics]


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ('<!-- ospl: ignore[DUR605] reason="a demo" -->', []),
        ("<!--ospl:ignore[ dur605 ] reason='a demo'-->", []),
        ('<!-- ospl: ignore[temporary-store] reason="a demo" -->', []),
        ('<!-- ospl: ignore[DUR605, DUR606] reason="a demo" -->', ["DUR901"]),
        ("<!-- ospl: ignore[DUR605] -->", ["DUR902"]),
        ('<!-- ospl: ignore[DUR605] reason="  " -->', ["DUR902"]),
        ('<!-- ospl: ignore[DUR606] reason="a demo" -->', ["DUR901", "DUR605"]),
        ('<!-- ospl: ignore[DUR9999] reason="a demo" -->', ["DUR903", "DUR605"]),
        ('<!-- ospl: ignore[] reason="a demo" -->', ["DUR903", "DUR605"]),
        ('<!-- ospl: ignore reason="a demo" -->', ["DUR903", "DUR605"]),
        ('<!-- ospl: ignore[DUR901] reason="a demo" -->', ["DUR903", "DUR605"]),
        ("<!-- ospl: nonsense -->", ["DUR903", "DUR605"]),
        ("<!-- an ordinary comment about ospl: things -->", ["DUR605"]),
    ],
)
def test_a_suppression_covers_the_element_that_follows(
    varied: Callable[..., str], checked: Callable[..., Report], comment: str, expected: list[str]
) -> None:
    report = checked(varied((STORE, f"{comment}\n      {BAD}")))
    assert codes(report) == expected
    assert report.suppressed == (0 if "DUR605" in expected else 1)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("<Persistent>", '<!-- ospl: ignore[DUR605] reason="r" --><Persistent>', []),
        ("<OpenSplice>", '<!-- ospl: ignore[DUR605] reason="r" --><OpenSplice>', []),
        ("</OpenSplice>", '<!-- ospl: file-ignore[DUR605] reason="r" --></OpenSplice>', []),
        ("</Persistent>", '<!-- ospl: ignore[DUR605] reason="r" --></Persistent>', ["DUR605", "DUR903"]),
        ("<NameSpaces>", '<!-- ospl: ignore[DUR605] reason="r" --><NameSpaces>', ["DUR605", "DUR901"]),
    ],
)
def test_a_suppression_reaches_as_far_as_its_element(
    varied: Callable[..., str], checked: Callable[..., Report], old: str, new: str, expected: list[str]
) -> None:
    assert codes(checked(varied((STORE, BAD), (old, new)))) == expected


def test_a_suppression_is_not_called_unused_when_its_rule_was_not_run(
    varied: Callable[..., str], checked: Callable[..., Report]
) -> None:
    text = varied((STORE, f'<!-- ospl: ignore[DUR326] reason="a deployment rule" -->{STORE}'))
    assert codes(checked(text)) == []
    assert codes(checked(text, codes=["DUR901"])) == []


def test_a_suppression_in_one_file_of_a_deployment(
    varied: Callable[..., str], checked_fleet: Callable[..., Report]
) -> None:
    nodes = [varied(('masterPriority="100"', f'masterPriority="{p}"')) for p in (200, 100, 50)]
    assert "DUR326" in codes(checked_fleet(*nodes))
    nodes[2] = nodes[2].replace("<Policy", '<!-- ospl: ignore[DUR326] reason="known" --><Policy')
    report = checked_fleet(*nodes)
    assert "DUR326" not in codes(report)
    assert report.suppressed == 1
