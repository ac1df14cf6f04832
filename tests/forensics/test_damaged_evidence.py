"""Evidence that is cut, copied or of a wrong clock makes no conclusion untrue."""

from __future__ import annotations

import collections
import datetime
import gzip
import json
import pathlib
import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from engine.dataset.sample import DATA, make_sample
from ospltool.cli.app import main
from tests.stores.own_stores import described, write_ours
from tests.trace.making import Trace, Traces
from tests.trace.words import GOT_REQUEST, LINK, POLICY, REQUEST

START_NS = 1_760_000_000_000_000_000
LOST = "Removing confirmed fellow {}."
SENT = "Sent 50 samples for group p.T to fellow 1001 (1 fellows total)."
_TIMES = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\+0000) (\d{10})(?=\.\d{9} )")


def judged(capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capfd.readouterr()
    main(["trace", "anomalies", *arguments, "--json"])
    data = json.loads(capfd.readouterr().out)["data"]
    assert isinstance(data, dict)
    return data


def told(data: dict[str, Any]) -> list[tuple[str, str]]:
    """The findings, without their last digits, as a clock is only corrected to milliseconds."""
    return sorted((one["rule"], re.sub(r"\.\d+ s", " s", one["title"])) for one in data["findings"])


def set_clock(log: pathlib.Path, by_s: int) -> None:
    """Moves all times of a trace."""

    def moved(found: re.Match[bytes]) -> bytes:
        local = datetime.datetime.fromisoformat(found[1].decode()) + datetime.timedelta(seconds=by_s)
        return f"{local.isoformat()}+0000 {int(found[3]) + by_s}".encode()

    packed = log.suffix == ".gz"
    moved_all = _TIMES.sub(moved, gzip.decompress(log.read_bytes()) if packed else log.read_bytes())
    log.write_bytes(gzip.compress(moved_all, 1) if packed else moved_all)


def log_of(directory: pathlib.Path, node: str) -> pathlib.Path:
    return next((directory / node).glob("durability.log*"))


@pytest.fixture
def copied(samples: pathlib.Path, tmp_path: pathlib.Path) -> Callable[[str], pathlib.Path]:
    """Copies a sample, which can be damaged then."""

    def copy(name: str) -> pathlib.Path:
        shutil.copytree(samples / "traces" / name, tmp_path / name)
        return tmp_path / name

    return copy


@pytest.mark.parametrize(
    ("sample", "node", "by_s"),
    [("late-joiner", "n2", 180), ("master-livelock", "n3", -300), ("own-engine", "n1", 7)],
)
def test_a_wrong_clock_is_corrected_and_told(
    sample: str,
    node: str,
    by_s: int,
    copied: Callable[[str], pathlib.Path],
    capfd: pytest.CaptureFixture[str],
) -> None:
    directory = copied(sample)
    right = judged(capfd, str(directory))
    set_clock(log_of(directory, node), by_s)
    wrong = judged(capfd, str(directory))
    assert told(wrong) == told(right)
    assert [one["kind"] for one in wrong["conclusions"]] == [one["kind"] for one in right["conclusions"]]
    starts = [sorted(each["start_ns"] for each in data["findings"]) for data in (wrong, right)]
    assert all(abs(one - other) < 100_000_000 for one, other in zip(*starts, strict=True))
    assert not [one for one in right["unknown"] if "clock" in one]
    (said,) = [one for one in wrong["unknown"] if "clock" in one]
    assert f"that of {node} is" in said
    corrected = re.search(rf"--skew {node}=([+-][\d.]+)s", said)
    assert corrected is not None
    assert float(corrected[1]) == pytest.approx(-by_s, abs=0.1)


VIEWS = [
    ("late-joiner", "n2", 180, "partA.T1"),
    ("master-livelock", "n3", -300, "partA.T1"),
    ("own-engine", "n1", 7, "ships.Observation"),
]


def views_of(capfd: pytest.CaptureFixture[str], group: str, name: str, *options: str) -> list[Any]:
    """The alignments of a group and their steps, all in a timeline; each with what is unknown."""
    found: list[Any] = []
    for command in (["conversation", group], ["timeline"]):
        capfd.readouterr()
        assert main(["trace", *command, name, *options, "--json"]) == 0
        said = capfd.readouterr()
        data = json.loads(said.out)["data"]
        assert all(one in said.err for one in data["unknown"])
        what = ("alignee", "aligner", "group", "count", "complete", "end", "samples")
        aligned = [
            [*(one.get(each) for each in what), sorted(each["step"] for each in one.get("steps", ()))]
            for one in data["alignments"]
        ]
        found += [sorted(aligned, key=str), data["unknown"]]
    return found


def apart(some: list[Any], others: list[Any]) -> int:
    """How many alignments only one of two pairs of views has."""
    counts = [collections.Counter(map(str, (*views[0], *views[2]))) for views in (some, others)]
    return ((counts[0] - counts[1]) + (counts[1] - counts[0])).total()


@pytest.mark.parametrize("in_case", [False, True])
@pytest.mark.parametrize(("sample", "node", "by_s", "group"), VIEWS)
def test_all_views_correct_a_wrong_clock(
    sample: str,
    node: str,
    by_s: int,
    group: str,
    *,
    in_case: bool,
    copied: Callable[[str], pathlib.Path],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Two steps that follow each other within the error of the correction may change places."""
    directory = copied(sample)
    name = str(directory)
    right = views_of(capfd, group, name)
    set_clock(log_of(directory, node), by_s)
    if in_case:
        pytest.importorskip("duckdb", reason="cases need the extra `sql`")
        name = str(directory.with_name("case"))
        assert main(["trace", "load", str(directory), "-o", name]) == 0
    wrong = views_of(capfd, group, name)
    assert apart(wrong, right) <= 2
    assert (right[1], right[3]) == ([], [])
    assert all(f"that of {node} is" in one and f"--skew {node}=" in one for one in (*wrong[1], *wrong[3]))
    assert (len(wrong[1]), len(wrong[3])) == (1, 1)
    as_it_is = views_of(capfd, group, name, "--skew", f"{node}=0s")
    assert apart(as_it_is, right) > 2
    assert all("into a wrong order" in one for one in (*as_it_is[1], *as_it_is[3]))


@pytest.mark.parametrize("in_case", [False, True])
@pytest.mark.parametrize("part", ["whole", "first half", "last half"])
def test_a_copy_of_a_trace_counts_once(
    part: str, in_case: bool, copied: Callable[[str], pathlib.Path], capfd: pytest.CaptureFixture[str]
) -> None:
    """Under the name of its node, as of a rotation, or of another one."""
    directory = copied("own-engine")
    log = log_of(directory, "n1")
    lines = log.read_bytes().splitlines(keepends=True)
    half = len(lines) // 2
    given = b"".join({"whole": lines, "first half": lines[:half], "last half": lines[half:]}[part])
    right, views = judged(capfd, str(directory)), views_of(capfd, "ships.Observation", str(directory))
    log.with_name("durability.log.1").write_bytes(given)
    (directory / "n9").mkdir()
    (directory / "n9" / "durability.log").write_bytes(given)
    name = str(directory)
    if in_case:
        pytest.importorskip("duckdb", reason="cases need the extra `sql`")
        name = str(directory.with_name("case"))
        assert main(["trace", "load", str(directory), "-o", name]) == 0
    found = judged(capfd, name)
    assert [(one["rule"], one["title"]) for one in found["findings"]] == [
        (one["rule"], one["title"]) for one in right["findings"]
    ]
    assert [one["text"] for one in found["conclusions"]] == [one["text"] for one in right["conclusions"]]
    left = [one for one in found["unknown"] if "is a log of its own" in one]
    assert [one.partition(" (of ")[0].rpartition("/")[2] for one in left] == [
        "durability.log.1",
        "durability.log",
    ]
    assert set(found["unknown"]) == {*left, *right["unknown"]}
    shown = views_of(capfd, "ships.Observation", name)
    assert (shown[0], shown[2]) == (views[0], views[2])
    assert all({*left} <= {*unknown} for unknown in (shown[1], shown[3]))


def test_a_node_whose_trace_was_cut_is_not_called_dead(
    traces: Traces, capfd: pytest.CaptureFixture[str]
) -> None:
    """Others heard it later. Without that, it is not known whether it died."""
    traces.node("b", "1002").begin(0).line(5, "x")
    a = traces.node("a", "1001").begin(0).line(30, LOST.format("1002"), "remoteReader").line(60, "end")
    (unheard,) = judged(capfd, traces.write(), "--rule", "fellow-lost")["findings"]
    assert "it died or was killed, or its trace was cut" in unheard["explanation"]
    a.lines.insert(-2, Trace(a.path).line(28, GOT_REQUEST.replace("1001", "1002")).lines[0])
    data = judged(capfd, traces.write(), "--rule", "fellow-lost")
    (heard,) = data["findings"]
    assert "received something from it until 2.00 s before: its trace was cut" in heard["explanation"]
    assert heard["code"] != "DUL-NODE-GONE"
    assert any(one.startswith("what b did after 2026-11-21T01:03:25") for one in data["unknown"])


def test_an_aligner_whose_trace_was_cut_did_not_fail_to_receive(
    traces: Traces, capfd: pytest.CaptureFixture[str]
) -> None:
    traces.node("a", "1001").begin(0).line(20, REQUEST).line(60, "end")
    traces.node("b", "1002").begin(0).line(5, "x")
    (finding,) = judged(capfd, traces.write(), "--rule", "request-unanswered")["findings"]
    assert "The trace of the aligner does not cover that time" in finding["explanation"]


def test_a_request_that_the_trace_of_its_node_lacks_is_not_an_earlier_one_to_all(
    traces: Traces, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each aligner receives a request to all once; a later one is another, whose line was cut."""
    a = traces.node("a", "1001").begin(0).line(1, REQUEST.replace("fellow 1002", "fellow 0"))
    a.line(1.4, LINK, "d_sampleChain").line(1.5, "Group p.T is now complete.", "d_sampleChain").line(
        60, "end"
    )
    b = traces.node("b", "1002").begin(0).line(60, "end")
    for at in (1.1, 30):
        b.lines[-1:-1] = (
            Trace(b.path).line(at, GOT_REQUEST, "durabilityGroupListener").line(at + 0.1, SENT).lines
        )
    assert judged(capfd, traces.write(), "--rule", "request-unanswered")["findings"] == []


@pytest.mark.parametrize("last_s", [20.0, 60.0])
def test_a_node_whose_trace_ends_before_is_not_said_to_have_kept_its_set(
    last_s: float, traces: Traces, capfd: pytest.CaptureFixture[str]
) -> None:
    a, b = (traces.node(name, address).begin(0) for name, address in (("a", "1001"), ("b", "1002")))
    a.line(2, REQUEST).line(2.1, LINK, "d_sampleChain").line(
        2.3, "Group p.T is now complete.", "d_sampleChain"
    )
    a.line(40, POLICY.format("DELETE")).line(80, "end")
    b.line(last_s, "end")
    (emptied,) = judged(capfd, traces.write(), "--rule", "set-emptied")["findings"]
    assert emptied["facts"]["kept"] == (["b"] if last_s > 40 else [])
    assert ("whether b kept it is unknown" in emptied["title"]) == (last_s < 40)


ABSENCES = {"request-unanswered", "conflict-unresolved", "thread-silent", "two-masters", "set-diverged"}
"""Rules that conclude from what a trace does not say."""


@pytest.mark.parametrize(
    ("sample", "node", "first", "last"),
    [
        ("master-livelock", "n2", 0.3, 0.6),
        ("master-livelock", "n3", 0.5, 1.0),
        ("late-joiner", "n1", 0.5, 0.7),
        ("late-joiner", "n2", 0.0, 0.6),
        ("own-engine", "n1", 0.3, 0.6),
    ],
)
def test_missing_lines_are_no_evidence(
    sample: str,
    node: str,
    first: float,
    last: float,
    copied: Callable[[str], pathlib.Path],
    capfd: pytest.CaptureFixture[str],
) -> None:
    directory = copied(sample)
    right = judged(capfd, str(directory))
    log = log_of(directory, node)
    packed = log.suffix == ".gz"
    lines = (gzip.decompress(log.read_bytes()) if packed else log.read_bytes()).splitlines(keepends=True)
    rest = b"".join([*lines[: int(first * len(lines))], *lines[int(last * len(lines)) :]])
    log.write_bytes(gzip.compress(rest, 1) if packed else rest)
    found = judged(capfd, str(directory))
    assert ABSENCES & {one["rule"] for one in found["findings"]} <= {one["rule"] for one in right["findings"]}
    assert set(found["unknown"]) > set(right["unknown"])


@pytest.mark.parametrize("in_case", [False, True])
@pytest.mark.parametrize("is_own", [False, True])
def test_a_copied_store_is_not_that_of_another_node(
    *,
    is_own: bool,
    in_case: bool,
    samples: pathlib.Path,
    tmp_path: pathlib.Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if in_case:
        pytest.importorskip("duckdb", reason="cases need the extra `sql`")
    stores = tmp_path / "stores"
    made = [
        make_sample(START_NS + number, bytes(16), DATA, number.to_bytes(4), b"\0\1\0\0payload")
        for number in range(5)
    ]
    for node in ("n1", "n2"):
        if is_own:
            write_ours(stores / node, {described("depot"): made})
        else:
            shutil.copytree(samples / "stores" / "after-merge" / node, stores / node)

    def concluded() -> tuple[list[str], list[str]]:
        name = str(stores)
        if in_case:
            name = str(tmp_path / f"case-{len(list(stores.iterdir()))}")
            assert main(["trace", "load", str(stores), "-o", name]) == 0
        data = judged(capfd, name)
        return [one["kind"] for one in data["conclusions"]], data["unknown"]

    before = concluded()
    assert not any("copy" in one for one in before[1])
    shutil.copytree(stores / "n1", stores / "n9")
    kinds, unknown = concluded()
    assert kinds == before[0]
    (said,) = set(unknown) - set(before[1])
    what = "the id of one node, " if is_own else "the same bytes, BLAKE2b "
    assert said.startswith(f"the store of n9: {stores / 'n9'} and {stores / 'n1'}, of n1, have {what}")


@pytest.mark.parametrize(
    ("sample", "files", "said"),
    [
        ("own-engine", "n?", "its configuration names {}, of which there is another trace"),
        ("late-joiner", "n?/durability.log", "they tell the address of {}, and none of"),
        ("late-joiner", "n?/ospl-info.log", "they tell the address of {}, and none of"),
        ("late-joiner", "n?", ""),
    ],
)
def test_exchanged_files_are_told(
    sample: str,
    files: str,
    said: str,
    copied: Callable[[str], pathlib.Path],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Traces of OpenSplice have no name: nothing tells that all files of two nodes are exchanged."""
    directory = copied(sample)
    group = "ships.Observation" if sample == "own-engine" else "partA.T1"
    right = [judged(capfd, str(directory))["unknown"], *views_of(capfd, group, str(directory))[1::2]]
    first, second = (directory / files.replace("?", node) for node in "12")
    first.rename(directory / "exchanged")
    second.rename(first)
    (directory / "exchanged").rename(second)
    wrong = [judged(capfd, str(directory))["unknown"], *views_of(capfd, group, str(directory))[1::2]]
    for before, after in zip(right, wrong, strict=True):
        told = sorted(one for one in after if one not in before)
        assert len(told) == (2 if said else 0), told
        for one, (name, other) in zip(told, (("n1", "n2"), ("n2", "n1")), strict=bool(said)):
            assert f" {name} here: " in one
            assert said.format(other) in one


@pytest.mark.parametrize("content", [b"", b"no database", None], ids=["empty", "garbage", "sound"])
def test_a_store_that_cannot_be_read_is_the_verdict(
    content: bytes | None, samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The others agree, but nobody may sign that the stores do: here, and in a case of the same files."""
    files, case = tmp_path / "files", str(tmp_path / "case")
    shutil.copytree(samples / "stores" / "after-merge", files)
    if content is not None:
        (files / "n1" / "kv.sqlite").write_bytes(content)
    found = judged(capfd, str(files))
    assert ("the store of n1 cannot be read: " in found["verdict"]) == (content is not None)
    assert [one["nodes"] for one in found["conclusions"] if one["kind"] == "damaged"] == (
        [] if content is None else [["n1"]]
    )
    shutil.copytree(samples / "traces" / "late-joiner", files / "traces")
    for _ in range(2):
        assert main(["trace", "load", str(files), "-o", case]) == (content is not None)
    told = [judged(capfd, where) for where in (str(files), case)]
    assert told[0]["conclusions"] == told[1]["conclusions"]
    assert main(["store", "verify", case, "--json"]) == (0 if content is None else 2)
    stores = json.loads(capfd.readouterr().out)["data"]["stores"]
    assert len(stores) == 3, "what is sound is told, whatever is not"


def test_a_traced_node_without_a_store_is_unknown(
    samples: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stores = samples / "stores" / "after-merge"
    names = [str(samples / "traces" / "late-joiner"), str(stores / "n1"), str(stores / "n3")]
    said = "what is on the disks of n2: there are stores of n1, n3 only"
    assert said in judged(capfd, *names)["unknown"]
    assert said not in judged(capfd, *names, str(stores / "n2"))["unknown"]


def test_a_file_of_which_nothing_can_be_read_is_unknown_in_a_case_too(
    copied: Callable[[str], pathlib.Path], tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory, case = copied("late-joiner"), str(tmp_path / "case")
    log = log_of(directory, "n2")
    log.with_name("durability.log.gz").write_bytes(b"\x1f\x8b\x08" + bytes(200))
    log.unlink()
    assert main(["trace", "load", str(directory), "-o", case]) == 1
    for where in (str(directory), case):
        unknown = judged(capfd, where)["unknown"]
        assert [one for one in unknown if "n2/durability.log.gz: cannot be read beyond byte 0" in one]
        assert main(["trace", "anomalies", where]) == 1


def test_details_of_damaged_names_are_the_same_in_a_case(
    copied: Callable[[str], pathlib.Path], tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory, case = copied("late-joiner"), str(tmp_path / "case")
    log = log_of(directory, "n1")
    log.write_bytes(log.read_bytes().replace(b"partA.T1", b"part\xb7.T1"))
    assert main(["trace", "load", str(directory), "-o", case]) == 0
    told = [judged(capfd, where)["conclusions"] for where in (str(directory), case)]
    assert told[0] == told[1]
    assert r"part\xb7.T1" in told[0][0]["facts"]["groups"]
