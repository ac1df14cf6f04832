"""Sets that were replaced: `ospltool store` lists them, looks at them, compares them and takes them back."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="comparing needs the extra `sql`")

from engine.dataset.sample import DATA, Sample, make_sample
from engine.node.disk import open_store
from engine.runtime.shared_state import PART, WHOLE
from engine.store.interface import Replaced
from engine.store.store_directory import DATABASE
from tests.stores.conftest import Run, data
from tests.stores.own_stores import NAME_SPACE, described, write_ours

GROUP = described("part", "Topic")
BASE_NS = 1_700_000_000_000_000_000
HOSTILE = "\x1b]0;owned\x07\x1b[31m\u202e\r\n"


def samples(*numbers: int) -> list[Sample]:
    return [
        make_sample(BASE_NS + n, bytes(16), DATA, n.to_bytes(4), b"payload of %d" % n, sequence=n)
        for n in numbers
    ]


def replace(directory: Path, new: list[Sample], note: Replaced, name_space: str = NAME_SPACE) -> None:
    """What a node does when another set takes the place of its own."""
    store = open_store(directory, "n1")
    writer = store.begin_set(name_space)
    writer.add(GROUP, new)
    store.commit_complete(writer, keep_previous=note.to_mark())
    store.close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The store of a node whose set of three samples was replaced by one of two."""
    directory = write_ours(tmp_path / "store", {GROUP: samples(1, 2, 3)})
    replace(directory, samples(3, 4), Replaced("node n1", BASE_NS, "merge policy Replace", 3, 2))
    return directory


def test_backups_are_listed_with_who_when_and_why(run: Run, store: Path) -> None:
    code, text, _ = run("backups", store)
    assert code == 0
    (_, header, row) = text.splitlines()
    assert header.split() == [
        "SET",
        "NAME-SPACE",
        "SAMPLES",
        "REPLACED",
        "AT",
        "BY",
        "SAMPLES",
        "THEN",
        "WHY",
    ]
    assert row.split(maxsplit=3)[:3] == ["1", NAME_SPACE, "3"]
    assert "2023-11-14T22:13:20.000000000Z  node n1  2             merge policy Replace" in row
    (found,) = data(run("backups", store, "--json")[1], "store-backups")["stores"]
    (backup,) = found["backups"]
    assert (backup["number"], backup["samples"], backup["note"]["after"]) == (1, 3, 2)
    assert "replaced 2023-11-14T22:13:20.000000000Z by node n1: merge policy Replace" in run("info", store)[1]


def test_a_backup_can_be_looked_at_compared_and_verified(run: Run, store: Path, tmp_path: Path) -> None:
    assert "payload of 1"[:8] in run("show", store, "--set", 1, "--key", "00000001")[1]
    code, text, _ = run("diff", f"{store}@1", f"{store}@2", "--json")
    assert code == 1
    assert data(text, "store-diff")["differing"] == 3
    assert run("export", store, "--set", 1, "-o", tmp_path / "out.jsonl", "--format", "jsonl")[0] == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 3
    assert run("verify", store)[0] == 0
    content = (store / DATABASE).read_bytes()
    place = content.index(b"payload of 1")
    (store / DATABASE).write_bytes(content[:place] + b"P" + content[place + 1 :])
    code, text, _ = run("verify", store)
    assert code == 1
    assert "set 1 (stock): NOT SOUND" in text
    assert "set 2 (stock): sound" in text
    code, _, told = run("restore", store)
    assert code == 2
    assert "set 1 is damaged" in told
    assert run("replace", store, store, "--set", 1, "--without-damaged")[0] == 1


def test_a_backup_is_taken_back_and_back_again(run: Run, store: Path) -> None:
    before = write_ours(store.parent / "before", {GROUP: samples(1, 2, 3)})
    after = write_ours(store.parent / "after", {GROUP: samples(3, 4)})
    node = open_store(store, "n1")
    node.mark(NAME_SPACE, {"lineage": "1/a/1"})
    node.close()
    code, text, _ = run("restore", store)
    assert code == 0
    assert "set 1 with 3 samples is the current one; set 2 with 2 samples is kept" in text
    assert run("diff", before, store)[0] == 0
    node = open_store(store, "n1")
    assert "lineage" not in node.marks(NAME_SPACE), "it is not what its fellows have"
    node.close()
    code, text, _ = run("restore", store, "--set", 2, "--json")
    assert code == 0
    assert data(text, "store-restore") == {
        "name_space": NAME_SPACE,
        "number": 2,
        "samples": 2,
        "aside": 1,
        "samples_aside": 3,
    }
    assert run("diff", after, store)[0] == 0
    (found,) = data(run("backups", store, "--json")[1], "store-backups")["stores"]
    assert [(one["number"], one["note"]["by"]) for one in found["backups"]] == [(1, "ospltool store restore")]


def test_what_cannot_be_taken_back_is_said(run: Run, store: Path, tmp_path: Path) -> None:
    assert run("restore", tmp_path / "nothing")[0] == 2
    assert not (tmp_path / "nothing").exists()
    plain = write_ours(tmp_path / "plain", {GROUP: samples(1)})
    code, _, told = run("restore", plain)
    assert (code, "there are no back-ups" in told) == (2, True)
    assert run("backups", plain)[1] == f"{plain}: no back-ups\n"
    replace(store, samples(5), Replaced("node n1", BASE_NS, "again", 2, 1))
    code, _, told = run("restore", store)
    assert (code, "choose a back-up with --set: 1, 2" in told) == (2, True)
    assert run("restore", store, "--set", 3)[0] == 2, "the current one"
    node = open_store(store, "n7")
    code, _, told = run("restore", store, "--set", 1)
    node.close()
    assert (code, "in use by node 'n7'" in told) == (2, True)
    assert run("restore", store, "--set", 1)[0] == 0


def test_a_database_that_was_put_aside_is_read_and_taken_back(run: Run, store: Path) -> None:
    aside = store / f"{DATABASE}.damaged-1"
    content = (store / DATABASE).read_bytes()
    place = content.index(b"payload of 4")
    aside.write_bytes(content[:place] + b"P" + content[place + 1 :])
    node = open_store(store, "n1")
    try:
        assert run("verify", aside, "--set", 1)[0] == 0
        assert run("diff", f"{aside}@1", f"{store}@1")[0] == 0
    finally:
        node.close()
    assert run("replace", aside, store)[0] == 2, "it is damaged"
    assert run("replace", aside, store, "--without-damaged")[0] == 1
    code, text, _ = run("ls", store)
    assert (code, "00000003" in text, "00000004" in text) == (0, True, False)


@pytest.mark.parametrize("mark", ["", "1/ab/2", '{"by": 1}', '{"at_ns": 1}', "[" * 5000, HOSTILE])
def test_a_backup_of_an_earlier_release_has_no_note(run: Run, store: Path, mark: str) -> None:
    node = open_store(store, "n1")
    writer = node.begin_set(NAME_SPACE)
    node.commit_complete(writer, keep_previous=mark)
    node.close()
    for verb in ("backups", "info"):
        code, text, _ = run(verb, store)
        assert code == 0
        assert "\x1b" not in text
        assert "\u202e" not in text
    (found,) = data(run("backups", store, "--json")[1], "store-backups")["stores"]
    assert [one["note"] is None for one in found["backups"]] == [False, True]


def test_hostile_notes_reach_no_terminal_alive(run: Run, store: Path) -> None:
    replace(store, samples(9), Replaced(HOSTILE, BASE_NS, HOSTILE, 1 << 90, 1 << 90))
    for verb in ("backups", "info"):
        code, text, _ = run(verb, store)
        assert code == 0
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_hostile_names_in_messages_look_like_no_other_message(run: Run, store: Path, tmp_path: Path) -> None:
    replace(store, samples(9), Replaced("n2", BASE_NS, "why", 1, 1), f"{HOSTILE}ospltool: FORGED")
    place = tmp_path / f"{HOSTILE}ospltool: FORGED"
    for arguments, code in (
        (("export", store, "-o", place), 0),
        (("export", store, "-o", place), 2),
        (("info", tmp_path / f"no{HOSTILE}ospltool: FORGED"), 2),
        (("import", store, tmp_path / "new"), 0),
        (("import", store, tmp_path / "new"), 2),
    ):
        answer = run(*arguments)
        assert answer[0] == code
        for line in "".join(answer[1:]).splitlines():
            assert line.isprintable()
            assert not line.startswith("ospltool: FORGED")


def test_a_part_is_called_so_until_its_owner_says_that_it_is_all(
    run: Run, store: Path, tmp_path: Path
) -> None:
    ours = open_store(store, "n1")
    ours.mark(NAME_SPACE, {PART: "yes", WHOLE: "[]"})
    ours.close()
    text = run("info", store)[1]
    assert f"{NAME_SPACE}, current, a part (what a Lazy node kept)" in text
    (current,) = [
        one
        for one in data(run("info", store, "--json")[1], "store-info")["stores"][0]["sets"]
        if one["kind"] == "current"
    ]
    assert (current["complete"], current["part"]) == (False, True)
    assert run("verify", store)[0] == 0, "it is sound"

    snapshot = tmp_path / "snapshot"
    number = current["number"]
    assert run("export", store, "--set", number, "-o", snapshot)[0] == 0
    assert run("replace", snapshot, store, "--name-space", NAME_SPACE)[0] == 0
    assert f"{NAME_SPACE}, current, complete" in run("info", store)[1]
    ours = open_store(store, "n1")
    assert not ours.marks(NAME_SPACE).get(PART)
    ours.close()
