"""`ospltool store ...`: what it says, and how it ends."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="the local engine needs the extra `sql`")
pytest.importorskip("cyclonedds", reason="fields of our stores need the extra `dds`")

import pyarrow.parquet as pq

from engine.dataset.groups import GroupDescription
from engine.dataset.sample import DISPOSE
from engine.dataset.sample_rows import SampleRows
from engine.node.disk import open_store
from engine.store.interface import GroupChange
from engine.store.sqlite import SqliteStore
from ospltool.cli import app
from tests.stores.conftest import Run, data
from tests.stores.making import BASE_NS, Held, Message, Version, write_kv, write_kvmt, write_xml
from tests.stores.own_stores import NAME_SPACE, described, write_ours

WRITES = (
    Message(1, text="one"),
    Message(2, text="two", time_ns=BASE_NS + 5),
    Message(3, status=DISPOSE, time_ns=BASE_NS + 6),
)
MORE = (*WRITES, Message(4, text="four", time_ns=BASE_NS + 9))
HOSTILE = "\x1b]0;owned\x07\x1b[31m<script>alert(1)</script>\u202e\r\n"


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return write_kv(tmp_path / "one", Version((Held(WRITES),)))


@pytest.fixture
def more(tmp_path: Path) -> Path:
    return write_kvmt(tmp_path / "more", Version((Held(MORE),)))


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write_kv(tmp_path / "broken", Version((Held(WRITES),)), damaged=1)


def test_info_tells_sets_groups_and_counts(run: Run, one: Path) -> None:
    code, text, _ = run("info", one, "--json")
    (store,) = data(text, "store-info")["stores"]
    (held,) = store["sets"]
    (group,) = held["groups"]
    assert code == 0
    assert (store["format"], held["name_space"], held["complete"]) == (
        "opensplice-kv",
        "defaultNamespace",
        True,
    )
    assert (
        group["samples"],
        group["instances"],
        group["disposed"],
        group["oldest_ns"],
        group["newest_ns"],
    ) == (
        3,
        3,
        1,
        BASE_NS,
        BASE_NS + 6,
    )
    code, text, _ = run("info", one)
    assert code == 0
    assert "set 0: defaultNamespace, current, complete" in text
    assert "depot.Items  depot::Item  1      3" in text


def test_ls_lists_instances_by_their_key_fields(run: Run, one: Path) -> None:
    code, text, _ = run("ls", one, "--json", "--limit", 2)
    answer = data(text, "store-instances")
    assert (code, answer["left_out"]) == (0, 1)
    assert [each["key_fields"] for each in answer["instances"]] == [{"id": 1}, {"id": 2}]
    code, text, _ = run("ls", one, "--key", "02", "--samples")
    assert text.splitlines()[1].split()[:4] == ["depot.Items", '{"id":', "2}", "write"]


def test_show_tells_metadata_fields_and_bytes(run: Run, one: Path) -> None:
    digest = MORE[0].sample().digest.hex()
    code, text, _ = run("show", one, digest[:8].upper())
    assert code == 0
    for expected in (digest, f"({BASE_NS})", '"text": "one"', "00000000  00 01 00 00 01 00 00 00"):
        assert expected in text
    code, text, _ = run("show", one, "--key", "03000000", "--json")
    (shown,) = data(text, "store-samples")["samples"]
    assert (shown["status"], shown["fields"], shown["sequence"]) == ("dispose", {"id": 3}, "1")


@pytest.mark.parametrize("arguments", [["00ff"], ["--key", "99"], ["--group", "x.y"], ["--set", "9"]])
def test_show_of_nothing_is_told(arguments: list[str], run: Run, one: Path) -> None:
    code, text, told = run("show", one, *arguments)
    assert (code, text) == (2, "")
    assert str(one) in told


def test_cat_of_a_stored_group_without_samples_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = write_kv(tmp_path / "store", Version((Held(()),)))
    assert app.main(["cat", "Items", "--store", str(store)]) == 1
    out, err = capfd.readouterr()
    assert (out, "topic 'Items': no samples in its groups in the complete sets of " in err) == ("", True)


def test_what_is_not_hexadecimal_is_wrong_usage(run: Run, one: Path) -> None:
    assert run("show", one, "xyz")[0] == 2
    assert run("ls", one, "--key", "key")[0] == 2


@pytest.mark.parametrize("command", ["info", "ls", "show", "verify", "export", "watch", "import", "replace"])
def test_a_place_without_a_store_ends_with_2(command: str, run: Run, tmp_path: Path) -> None:
    rest: dict[str, list[object]] = {
        "export": ["-o", tmp_path / "out"],
        "watch": ["--looks", 1],
        "import": [tmp_path / "target"],
        "replace": [tmp_path / "source"],
    }
    code, text, told = run(command, tmp_path / "nothing", *rest.get(command, []))
    assert (code, text) == (2, "")
    assert "nothing: " in told


def test_verify_ends_with_1_on_damage_and_lists_it(run: Run, one: Path, broken: Path) -> None:
    assert run("verify", one)[0] == 0
    code, text, _ = run("verify", one, broken)
    assert code == 1
    assert f"{one}, set 0 (defaultNamespace): sound, 3 samples" in text
    assert "NOT SOUND, 2 samples" in text
    assert "message 0:0:0" in text
    assert data(run("verify", one, broken, "--json")[1], "store-verify")["sound"] is False


def test_verify_finds_a_changed_byte_in_our_store(run: Run, tmp_path: Path) -> None:
    path = write_ours(tmp_path / "ours", {described("p"): [each.sample() for each in MORE]})
    assert run("verify", path)[0] == 0
    with sqlite3.connect(path / "store.sqlite") as connection:
        connection.execute("UPDATE sample SET payload = x'00010000ff' WHERE sequence = 1 AND status = 4")
    connection.close()
    code, text, _ = run("verify", path)
    assert code == 1
    assert "the content does not match its digest" in text
    assert run("verify", path)[1] == text, "looking changes nothing"


@pytest.mark.parametrize("command", ["info", "ls", "export"])
def test_other_commands_tell_damage_and_end_with_1(
    command: str, run: Run, broken: Path, tmp_path: Path
) -> None:
    options = ["-o", tmp_path / "out"] if command == "export" else []
    code, text, told = run(command, broken, *options)
    assert code == 1
    assert "message 0:0:0" in text + told


# Copies.


def test_an_exported_snapshot_is_a_store_like_any_other(run: Run, one: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    assert run("export", one, "-o", snapshot)[0] == 0
    assert run("diff", one, snapshot)[0] == 0
    assert run("verify", snapshot)[0] == 0
    assert '"text": "two"' in run("show", snapshot, "--key", "02")[1]
    assert run("export", one, "-o", snapshot)[0] == 2, "nothing is overwritten"
    table = pq.read_table(snapshot / "samples.parquet")
    assert table.num_rows == 3


def test_a_snapshot_that_lost_rows_is_damaged(run: Run, one: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    run("export", one, "-o", snapshot)
    table = pq.read_table(snapshot / "samples.parquet")
    pq.write_table(table.slice(1), snapshot / "samples.parquet")
    code, text, _ = run("verify", snapshot)
    assert code == 1
    assert "3 samples were written, 2 are there" in text
    (snapshot / "snapshot.json").write_text("{}")
    assert run("verify", snapshot)[0] == 2


def test_exported_lines_have_the_fields(run: Run, one: Path, tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    assert run("export", one, "-o", file, "--format", "jsonl")[0] == 0
    lines = [json.loads(line)["data"] for line in file.read_text().splitlines()]
    assert [(line["fields"]["id"], line["status"]) for line in lines] == [
        (1, "write"),
        (2, "write"),
        (3, "dispose"),
    ]
    assert run("export", one, "-o", file, "--format", "jsonl")[0] == 2, "nothing is overwritten"


@pytest.mark.parametrize("write", [write_kv, write_kvmt, write_xml])
def test_an_imported_store_is_proven_to_be_the_same(
    write: Callable[..., Path], run: Run, tmp_path: Path
) -> None:
    source, target = write(tmp_path / "source", Version((Held(MORE),))), tmp_path / "target"
    code, text, _ = run("import", source, target, "--json")
    (report,) = data(text, "store-copy")["sets"]
    assert code == 0
    assert report["name_space"] == "defaultNamespace"
    assert [(group["read"], group["stored"], group["beyond_depth"]) for group in report["groups"]] == [
        (4, 4, 0)
    ]
    assert run("diff", source, target)[0] == 0
    assert run("verify", target)[0] == 0


def test_an_import_keeps_what_the_depth_keeps_and_counts_the_rest(run: Run, tmp_path: Path) -> None:
    newer = dataclasses.replace(WRITES[0], time_ns=BASE_NS + 60, text="newer")
    source = write_xml(tmp_path / "source", Version((Held((*WRITES, newer)),)))
    code, text, _ = run("import", source, tmp_path / "target", "--json")
    (group,) = data(text, "store-copy")["sets"][0]["groups"]
    assert (code, group["read"], group["stored"], group["beyond_depth"]) == (0, 4, 3, 1)
    assert '"text": "newer"' in run("show", tmp_path / "target", "--key", "01")[1]


def test_a_damaged_source_is_imported_only_on_demand(run: Run, broken: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    code, _, told = run("import", broken, target)
    assert code == 2
    assert "1 record cannot be read" in told
    code, text, _ = run("import", broken, target, "--without-damaged")
    assert code == 1
    assert "left out, damaged" in text
    assert data(run("info", target, "--json")[1], "store-info")["stores"][0]["sets"][0]["samples"] == 2


def test_what_is_stored_wrongly_does_not_take_its_place(
    run: Run, one: Path, more: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    run("import", one, target)
    before = run("info", target)[1]
    load = SqliteStore.load

    def losing(self: SqliteStore, *arguments: Any) -> Iterator[tuple[GroupDescription, Iterator[SampleRows]]]:
        for description, pieces in load(self, *arguments):
            yield description, (piece.without({next(piece.each_digest())}) for piece in pieces)

    monkeypatch.setattr(SqliteStore, "load", losing)
    code, _, told = run("replace", more, target)
    assert code == 2
    assert "the new set differs from the source" in told
    assert run("info", target)[1].splitlines()[4:] == before.splitlines()[4:], "all but its openings"


def test_an_import_leaves_a_set_that_is_there(run: Run, one: Path, more: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    run("import", one, target)
    code, _, told = run("import", more, target)
    assert code == 2
    assert "has a set already" in told
    assert run("import", more, target, "--name-space", "other")[0] == 0
    assert run("diff", one, f"{target}@1")[0] == 0


def test_a_replaced_set_is_marked_and_the_one_of_before_kept(
    run: Run, one: Path, more: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    assert run("replace", more, target)[0] == 2, "there is nothing to replace yet"
    assert not target.exists()
    run("import", one, target)
    code, text, _ = run("replace", more, target)
    assert code == 0
    assert "the set of before is kept" in text
    assert run("diff", more, target)[0] == 0
    assert run("diff", one, f"{target}@1")[0] == 0
    (store,) = data(run("info", target, "--json")[1], "store-info")["stores"]
    assert [each["kind"] for each in store["sets"]] == ["backup", "current"]
    assert store["sets"][1]["mark"] == "ospltool store replace"
    note = json.loads(store["detail"]["defaultNamespace/replaced"])
    assert (note["by"], note["set"]) == ("ospltool store replace", 0)


@pytest.mark.parametrize("command", ["import", "replace"])
def test_no_set_is_written_beside_a_store_of_another_kind_or_over_its_source(
    command: str, run: Run, one: Path, more: Path, tmp_path: Path
) -> None:
    ours = tmp_path / "ours"
    run("import", one, ours)
    (snapshot := tmp_path / "snapshot").mkdir()
    (snapshot / "snapshot.json").touch()
    xml = write_xml(tmp_path / "xml", Version((Held(WRITES),)))
    refusals = {
        (ours, one): f"one: a store of OpenSplice, which is not written to; the source comes first, as in "
        f"`ospltool store {command} {one} {ours}`",
        (one, more): "more: a store of OpenSplice, which is not written to; the source comes first",
        (ours, xml): "xml: a store of OpenSplice, ",
        (ours, snapshot): "snapshot: a snapshot, ",
        (ours / "store.sqlite", ours): "ours: source and target are the same store",
        (ours, tmp_path / "x" / ".." / "ours"): "source and target are the same store",
    }
    for (source, target), said in refusals.items():
        before = {each: each.stat().st_mtime_ns for each in target.iterdir()} if target.exists() else {}
        code, text, told = run(command, source, target, "--name-space", "other")
        assert (code, text, said in told.replace("\n", "")) == (2, "", True), told
        assert not before or {each: each.stat().st_mtime_ns for each in target.iterdir()} == before


def test_the_store_of_a_running_node_is_read_but_not_replaced(
    run: Run, one: Path, more: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    run("import", one, target)
    node = open_store(target, "n7")
    try:
        code, _, told = run("replace", more, target)
        assert code == 2
        assert "in use by node 'n7'" in told
        assert run("import", more, target, "--name-space", "other")[0] == 2
        code, text, _ = run("info", target)
        assert code == 0
        assert "in use by node n7" in text
        assert run("diff", one, target)[0] == 0
        assert run("verify", target)[0] == 0
    finally:
        node.close()


def test_one_set_is_chosen_where_a_name_is_given(run: Run, tmp_path: Path) -> None:
    source = write_kv(tmp_path / "source", Version((Held(WRITES),)), Version((Held(MORE),), version=1))
    code, _, told = run("import", source, tmp_path / "t", "--set", 0, "--set", 1, "--name-space", "x")
    assert code == 2
    assert "choose one set" in told
    assert run("import", source, tmp_path / "t", "--set", 0, "--name-space", "x")[0] == 0
    assert run("diff", f"{source}@0", tmp_path / "t")[0] == 0


# Comparison.


def test_diff_ends_with_0_1_or_2(run: Run, one: Path, more: Path, broken: Path) -> None:
    assert run("diff", one, one)[0] == 0
    assert run("diff", one, more)[0] == 1
    assert run("diff", broken, broken)[0] == 1
    assert run("diff", one, one.with_name("no"))[0] == 2
    assert run("diff", one)[0] == 2


@pytest.mark.parametrize(
    "options",
    [
        ["--spark-setting", "x"],
        ["--format", "yaml"],
        ["--engine", "sqlite"],
        ["--format", "parquet"],
        ["--format", "html", "-o", "/no/x"],
    ],
)
def test_wrong_options_of_diff_end_with_2(options: list[str], run: Run, one: Path, more: Path) -> None:
    assert run("diff", one, more, *options)[0] == 2


def test_diff_tells_what_is_only_in_one(run: Run, one: Path, more: Path) -> None:
    code, text, _ = run("diff", one, more, "--fields")
    assert code == 1
    assert "1 instance differs (1 never aligned)" in text
    assert "name-space defaultNamespace: groups: 1 differ; instances: 3 equal, 1 differ" in text
    assert 'depot.Items  key 04000000 {"id": 4}  A:0 B:1' in text
    assert '{"flag": 1, "id": 4, "value": 1.5, "text": "four"}' in text


def test_a_bar_shows_how_much_is_where(run: Run, tmp_path: Path) -> None:
    left = write_kv(tmp_path / "l", Version((Held(tuple(map(Message, range(8)))),)))
    changed = (*(Message(number, text="z") for number in range(6)), *(Message(n) for n in range(20, 22)))
    right = write_kv(tmp_path / "r", Version((Held(changed),)))
    line = run("diff", left, right, "--stat")[1].splitlines()[6]
    assert line.split() == ["depot.Items", "10", "A" * 8 + "B" * 8 + "~" * 24]


def test_json_and_json_lines_carry_the_same_report(run: Run, one: Path, more: Path) -> None:
    whole = data(run("diff", one, more, "--json")[1], "store-diff")
    lines = [json.loads(line) for line in run("diff", one, more, "--format", "jsonl")[1].splitlines()]
    assert [line["kind"] for line in lines] == [
        "store-diff-summary",
        "store-diff-group",
        "store-diff-instance",
    ]
    assert lines[0]["data"]["verdict"] == whole["verdict"] == "differ"
    assert lines[1]["data"] == whole["groups"][0]
    assert lines[2]["data"] == whole["instances"][0]
    assert whole["instances"][0]["samples"][0]["sequence"] == "1"


def test_parquet_has_a_row_for_each_sample_that_not_all_have(
    run: Run, one: Path, more: Path, tmp_path: Path
) -> None:
    file = tmp_path / "diff.parquet"
    assert run("diff", one, more, "--format", "parquet", "-o", file, "--fields")[0] == 1
    (row,) = pq.read_table(file).to_pylist()
    assert (row["partition"], row["key"], row["stores"], row["cause"]) == (
        "depot",
        "04000000",
        "B",
        "never aligned",
    )
    assert json.loads(row["fields"])["text"] == "four"


@pytest.mark.parametrize(
    "command",
    [["info"], ["ls"], ["ls", "--samples"], ["show"], ["verify"], ["diff", "--fields"], ["diff", "--stat"]],
    ids=" ".join,
)
def test_no_control_character_of_a_store_reaches_the_terminal(
    command: list[str], run: Run, tmp_path: Path
) -> None:
    """In names of partitions, topics and name-spaces, in content and in paths."""
    odd = f"odd{HOSTILE}".replace("/", "")
    held = Held((Message(1, text=HOSTILE),), partition=odd, topic=odd)
    source = write_kv(tmp_path / "\x1b[2Jstore", Version((held,), name_space=odd))
    stores: list[Path] = [source]
    if command[0] == "diff":
        stores.append(write_kv(tmp_path / "other", Version((Held((), partition=odd, topic=odd),))))
    code, text, told = run(command[0], *stores, *command[1:])
    assert code in (0, 1)
    assert all(character.isprintable() or character == "\n" for character in text + told)
    assert "\\x1b" in text or "\\u001b" in text


def test_watch_shows_what_a_node_writes(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = described("p")
    path = write_ours(tmp_path / "ours", {group: [WRITES[0].sample()]})
    node = open_store(path, "n1")
    pauses: list[float] = []

    def writing(seconds: float) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # of a library that another test has started
        pauses.append(seconds)
        if len(pauses) == 1:
            node.append(NAME_SPACE, [GroupChange(group, WRITES[1].sample())])

    monkeypatch.setattr("time.sleep", writing)
    try:
        code, text, _ = run("watch", path, "--interval", 0.5, "--looks", 3, "--json")
    finally:
        node.close()
    lines = [json.loads(line)["data"] for line in text.splitlines()]
    assert (code, pauses) == (0, [0.5, 0.5])
    counts = [(line["what"], line["before"], line["samples"]) for line in lines]
    assert counts == [("there", 0, 1), ("changed", 1, 2)]
    assert lines[-1]["newest_ns"] == WRITES[1].time_ns


def test_watch_of_an_opensplice_store_sees_new_records(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_xml(tmp_path, Version((Held(WRITES),)))

    def writing(_: float) -> None:
        if threading.current_thread() is threading.main_thread():
            write_xml(path, Version((Held(MORE),)))

    monkeypatch.setattr("time.sleep", writing)
    code, text, _ = run("watch", path, "--looks", 2)
    assert code == 0
    assert "changed  set 2: defaultNamespace current depot.Items  4 samples (+1)" in text


def test_watch_that_is_interrupted_ends_with_130(
    run: Run, one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    assert run("watch", one)[0] == 130
