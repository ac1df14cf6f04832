from __future__ import annotations

import pytest

from engine.dataset.living import ends, returning, unregistered, whole, written
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample

STATUS = {"S": DATA, "D": DISPOSE, "U": UNREGISTER, "X": DISPOSE | UNREGISTER}
LETTER = {status: letter for letter, status in STATUS.items()}


def history(text: str) -> list[Sample]:
    """The samples of one instance: what, and by which writer, at times 1, 2 and so on."""
    return [
        make_sample(time_ns, word[1].encode() * 16, STATUS[word[0]], b"k", b"payload")
        for time_ns, word in enumerate(text.split(), 1)
    ]


def writers(names: str) -> frozenset[bytes]:
    return frozenset(name.encode() * 16 for name in names)


@pytest.mark.parametrize(
    ("samples", "living", "expected"),
    [
        ("Sa", "a", "S1+"),
        ("Sa", "", "S1-"),
        ("Sa", "b", "S1-"),
        ("Sa Sb", "a", "S1+ S2+"),
        ("Sa Da", "a", "S1- D2-"),
        ("Sa Da Sa", "a", "S1+ D2+ S3+"),
        ("Sa Ua", "a", "S1- U2-"),
        ("Sa Sb Ub", "a", "S1+ S2+"),
        ("Sa Sb Xb", "ab", "S1- S2- X3-"),
        ("Sa Xa Sb", "b", "S1+ D2+ S3+"),
    ],
)
def test_what_a_late_joiner_is_given(samples: str, living: str, expected: str) -> None:
    """A plus is behind what the writer writes that stays."""
    steps = whole(history(samples), writers(living))
    found = [f"{LETTER[s.status]}{s.source_time_ns}{'-+'[is_written]}" for s, is_written in steps]
    assert " ".join(found) == expected


@pytest.mark.parametrize(
    ("samples", "living", "disposing", "expected"),
    [
        ("Sa", "", "a", "S1 D1"),
        ("Sa", "b", "a", "S1 D1"),
        ("Sa Sb", "b", "a", "S1 S2"),
        ("Sa Ua", "", "a", "S1 U2"),
        ("Sa Da", "", "a", "S1 D2"),
    ],
)
def test_what_a_writer_with_autodispose_left_is_disposed(
    samples: str, living: str, disposing: str, expected: str
) -> None:
    steps = whole(history(samples), writers(living), writers(disposing))
    assert " ".join(f"{LETTER[s.status]}{s.source_time_ns}" for s, _ in steps) == expected


@pytest.mark.parametrize(
    ("samples", "living", "returned", "shown", "is_end"),
    [
        ("Sa", "a", "a", "S1", True),
        ("Sa Sa", "a", "a", "S2", True),
        ("Sa Sb", "ab", "a", "", False),
        ("Sa Sb", "a", "a", "S2", True),
        ("Sa Da", "a", "a", "", False),
        ("Sa Ua", "a", "a", "", False),
        ("Sb", "a", "a", "", False),
    ],
)
def test_what_depends_on_a_writer_is_shown_again_and_ends_with_it(
    samples: str, living: str, returned: str, shown: str, is_end: bool
) -> None:
    (writer,) = writers(returned)
    steps = returning(history(samples), writer, writers(living))
    assert " ".join(f"{LETTER[s.status]}{s.source_time_ns}" for s, _ in steps) == shown
    found = list(ends(history(samples), writer, writers(living) - {writer}))
    ended = [(b"k", len(samples.split()))] if is_end else []
    assert [(end.key, end.source_time_ns) for end in found] == ended


def test_what_has_a_living_writer_is_shown_by_its_newest_write() -> None:
    other = [sample._replace(key=b"other") for sample in history("Sb")]
    steps = list(written([*history("Sa Sa Ub"), *other], writers("a")))
    assert [(step.sample.source_time_ns, step.sample.status) for step in steps] == [(2, DATA)]


@pytest.mark.parametrize(
    ("samples", "new", "living", "expected"),
    [
        ("Sa Ua", 1, "a", ["U2"]),
        ("Sa Ua", 2, "a", ["U2"]),
        ("Sa Sb Ua", 1, "ab", []),
        ("Sa Sb Ua", 1, "a", ["U3"]),
        ("Ua Sa", 2, "a", []),
        ("Sa", 1, "", []),
    ],
)
def test_what_a_merge_tells_that_the_last_writer_unregistered(
    samples: str, new: int, living: str, expected: list[str]
) -> None:
    kept = history(samples)
    found = unregistered(kept[-new:], kept, writers(living))
    assert [f"U{end.source_time_ns}" for end in found] == expected
