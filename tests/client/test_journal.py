"""The journal: whatever was torn off or damaged, what is intact counts, and nothing that was not written."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from engine.dataset.sample import DATA, DISPOSE, Sample, make_sample
from engine.dds.cdr import Malformed
from engine.dds.client_protocol import naming
from engine.dds.client_protocol.naming import SampleVerdict
from ospltool.client import JournalError, JournalInUse, JournalMismatch
from ospltool.client import journal as journal_module
from ospltool.client.journal import MAX_COPIES, Journal
from ospltool.client.ledger import NodeVerdicts, PendingQueue
from tests.disks import small_disk

OWNER = {"topic": "Reading", "type": "depot.Reading", "partitions": ["stock"]}


def sample(number: int, size: int = 20) -> Sample:
    return make_sample(1_000 + number, b"w" * 16, DATA, number.to_bytes(4), bytes([number % 256]) * size)


def fill(path: Path, count: int, stored: int = 0) -> list[Sample]:
    """A journal with so many samples of which the first are stored; the others."""
    made = Journal(path, OWNER, sync=False)
    samples = [sample(number) for number in range(count)]
    for one in samples:
        made.append(one)
    made.stored([one.digest for one in samples[:stored]])
    made.close()
    return samples[stored:]


def test_what_is_not_stored_is_there_again_in_order(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    left = fill(path, 10, stored=4)
    again = Journal(path, OWNER, sync=True)
    assert (again.samples, again.found.samples, again.found.damaged_bytes) == (left, 6, 0)
    with pytest.raises(JournalInUse):
        Journal(path, OWNER, sync=True)
    again.stored([one.digest for one in left])
    again.close()
    last = Journal(path, OWNER, sync=True)
    assert last.samples == []
    last.close()


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_no_link_leads_two_writers_to_one_journal(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    path, other = tmp_path / "journal", tmp_path / "other"
    left = fill(path, 10)
    before = path.read_bytes()
    link(path, other)
    for opened in (other, path) if link is os.link else (other,):
        with pytest.raises(JournalError, match="hard links" if link is os.link else "symbolic link"):
            Journal(opened, OWNER, sync=False)
    assert (path.read_bytes(), other.is_symlink()) == (before, link is os.symlink)
    other.unlink()
    first = Journal(path, OWNER, sync=False)
    link(path, other)  # while it is open
    with pytest.raises(JournalInUse if link is os.link else JournalError):
        Journal(other, OWNER, sync=False)
    assert first.samples == left
    first.close()


def test_links_that_were_planted_beside_a_journal_are_not_followed(tmp_path: Path) -> None:
    path, victim = tmp_path / "journal", tmp_path / "victim"
    left = fill(path, 10, stored=4)
    path.write_bytes(path.read_bytes() + b"torn")
    victim.write_text("dear diary", encoding="utf-8")
    for name in ("journal.new", "journal.damaged", "journal.lock"):
        (tmp_path / name).symlink_to(victim)
    torn, copies = path.read_bytes(), []
    for _ in range(MAX_COPIES + 1):  # a copy is where it is said to be, or is not said to be
        path.write_bytes(torn)
        made = Journal(path, OWNER, sync=False)
        assert made.samples == left
        copies.append(made.found.copy)
        made.close()
    assert victim.read_text(encoding="utf-8") == "dear diary"
    assert not path.is_symlink()
    assert copies[-2:] == [None, None], "nine copies beside the link"
    assert len({*copies}) == MAX_COPIES
    for copy in filter(None, copies):
        assert copy.read_bytes() == torn
    modes = {one.name: one.stat().st_mode & 0o777 for one in (path, *filter(None, copies))}
    assert set(modes.values()) == {0o600}, modes
    # Without a copy, what is flipped stays in the file.
    path.write_bytes(flipped := torn[:100] + bytes([torn[100] ^ 1]) + torn[101:-4])
    made = Journal(path, OWNER, sync=False)
    assert made.found.damaged_bytes
    made.close()
    assert path.read_bytes()[: len(flipped)] == flipped


@hypothesis.given(cut=st.integers(0, 10_000))
def test_of_a_torn_journal_all_that_is_whole_counts(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("torn") / "journal"
    samples = fill(path, 12)
    whole = path.read_bytes()
    head = whole.index(naming.pack_samples([samples[0]])) - 13
    end = head + cut % (len(whole) - head + 1)
    path.write_bytes(whole[:end])
    again = Journal(path, OWNER, sync=False)
    each = (len(whole) - head) // 12
    assert again.samples == samples[: (end - head) // each]
    assert again.found.torn_bytes == (end - head) % each
    more = sample(99)
    again.append(more)
    again.close()
    assert Journal(path, OWNER, sync=False).samples == [*samples[: (end - head) // each], more]


@hypothesis.given(bits=st.lists(st.integers(0, 1 << 20), min_size=1, max_size=4))
@hypothesis.settings(max_examples=2 * hypothesis.settings().max_examples)
def test_flipped_bits_cost_the_records_they_hit_and_are_reported(
    tmp_path_factory: pytest.TempPathFactory, bits: list[int]
) -> None:
    path = tmp_path_factory.mktemp("flipped") / "journal"
    samples = fill(path, 20)
    data = bytearray(path.read_bytes())
    before = bytes(data)
    for bit in bits:
        at = bit % (8 * len(data))
        data[at // 8] ^= 1 << at % 8
    path.write_bytes(data)
    again = Journal(path, OWNER, sync=False)
    lost = len(samples) - len(again.samples)
    assert lost <= len(bits)
    assert [one for one in samples if one in again.samples] == again.samples
    assert bool(again.found.damaged_bytes or again.found.torn_bytes) == (data != before)
    if data != before:
        assert again.found.copy is not None
        assert again.found.copy.read_bytes() == bytes(data)
    again.close()


def test_a_file_of_others_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text("dear diary", encoding="utf-8")
    with pytest.raises(JournalMismatch, match="is not a journal"):
        Journal(path, OWNER, sync=False)
    assert path.read_text(encoding="utf-8") == "dear diary"
    path.unlink()
    fill(path, 3)
    before = path.read_bytes()
    for change in ({"topic": "Other"}, {"partitions": ["elsewhere"]}, {"type": "depot.Writing"}):
        with pytest.raises(JournalMismatch, match="belongs to"):
            Journal(path, {**OWNER, **change}, sync=False)
    assert path.read_bytes() == before
    with pytest.raises(JournalError, match="cannot be opened"):
        Journal(tmp_path / "nowhere" / "journal", OWNER, sync=False)


def test_a_journal_does_not_grow_with_what_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ospltool.client.ledger import PendingQueue

    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 20_000)
    journal = Journal(tmp_path / "journal", OWNER, sync=False)
    ledger = PendingQueue(("stock",), 1, 1_000, 1 << 20, journal)
    sizes = []
    for number in range(2_000):
        entry = ledger.add(sample(number, 200))
        assert entry is not None
        entry.is_written = True
        entries = ledger.first()
        verdicts = [naming.SampleVerdict.STORED] * len(entries)
        ledger.judge(entries[:-1], [NodeVerdicts("n", ("stock",), True, verdicts[:-1], "s")])
        sizes.append(journal.size)
    assert max(sizes) < 25_000
    journal.close()
    again = Journal(tmp_path / "journal", OWNER, sync=False)
    assert [one.digest for one in again.samples] == [sample(1_999, 200).digest]
    again.close()


REFUSED = """
import resource, sys
from pathlib import Path
from tests.client.test_journal import OWNER, sample
from ospltool.client.journal import Journal, JournalError
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal(Path(sys.argv[1]), OWNER, sync=False)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, resource.RLIM_INFINITY))
kept = 0
try:
    for number in range(1_000):
        journal.append(sample(number))
        kept += 1
except JournalError as error:
    assert "cannot be written" in str(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.append(sample(5_000))
print(kept)
"""


def test_a_sample_that_the_disk_refuses_is_not_in_the_journal_and_harms_none_that_follows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal"
    done = subprocess.run(
        [sys.executable, "-c", REFUSED, str(path)], check=True, capture_output=True, text=True, timeout=60
    )
    kept = int(done.stdout)
    assert 0 < kept < 1_000
    again = Journal(path, OWNER, sync=False)
    assert again.samples == [*(sample(number) for number in range(kept)), sample(5_000)]
    assert again.found.torn_bytes == again.found.damaged_bytes == 0
    again.close()


def taken(journal: Journal) -> Iterator[Sample]:
    """The samples that a journal takes until its disk is full."""
    for number in range(1_000):
        try:
            journal.append(sample(number, 1_000))
        except JournalError:
            return
        yield sample(number, 1_000)


@pytest.mark.parametrize("stored", [0, 1, None], ids=["none", "one", "all"])
def test_a_journal_on_a_full_disk_opens_and_takes_samples_again_when_it_can(
    tmp_path: Path, stored: int | None
) -> None:
    """If all of it is obsolete its own room is enough; else it needs some room on the disk."""
    with small_disk(tmp_path, "256k") as disk:
        path = disk / "journal"
        made = Journal(path, OWNER, sync=True)
        kept = list(taken(made))
        gone = kept[:stored]
        with contextlib.suppress(OSError):
            (disk / "ballast").write_bytes(bytes(256 << 10))
        assert shutil.disk_usage(disk).free == 0
        made.stored([one.digest for one in gone])
        identity = made.identity
        made.close()
        again = Journal(path, OWNER, sync=True)  # the marks of what is stored did not all fit either
        assert (again.identity == identity) == bool(again.samples), "who has nothing left begins anew"
        assert again.samples[-len(kept[len(gone) :]) or len(again.samples) :] == kept[len(gone) :]
        queue = PendingQueue(("stock",), 1, 10_000, 1 << 20, again)
        while first := queue.first():
            queue.judge(
                first, [NodeVerdicts("n1", ("stock",), True, [SampleVerdict.STORED] * len(first), "s")]
            )
        for number in range(2_000, 2_050):
            queue.add(sample(number, 1_000))
        again.close()
        last = Journal(path, OWNER, sync=True)
        assert last.samples == [sample(number, 1_000) for number in range(2_000, 2_050)]
        last.close()


@pytest.mark.parametrize("later", ["append", "close", "full"])
def test_a_mark_that_a_full_disk_refuses_is_written_as_soon_as_it_can(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, later: str
) -> None:
    """Without it, the next run would hand over what may have been disposed and forgotten meanwhile."""
    with small_disk(tmp_path, "256k") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(64 << 10))
        made = Journal(disk / "journal", OWNER, sync=True)
        kept = list(taken(made))
        size = made.size
        left = [] if later == "full" else kept[-1:]
        made.stored([one.digest for one in kept[: len(kept) - len(left)]])
        assert later == "full" or made.size == size, "the mark did not fit"
        if later != "full":
            ballast.unlink()
        if later == "append":
            left.append(sample(5_000, 1_000))
            made.append(left[-1])
        else:
            made.close()
        as_it_is = shutil.copy(disk / "journal", tmp_path_factory.mktemp("elsewhere"))
        made.close()
        again = Journal(Path(as_it_is), OWNER, sync=True)
        assert again.samples == left
        again.close()


names = st.builds(
    naming.SampleName,
    st.integers(-(1 << 62), 1 << 62),
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=16, max_size=16),
    st.integers(1, 7),
    st.binary(max_size=40),
)


@hypothesis.given(st.lists(names, max_size=30), st.data())
def test_names_and_samples_travel_whole_or_not_at_all(
    some: list[naming.SampleName], data: st.DataObject
) -> None:
    block = naming.pack_names(some)
    assert naming.unpack_names(block) == tuple(some)
    samples = [make_sample(one.source_time_ns, one.writer, one.status, one.key, b"\0\1\0\0x") for one in some]
    packed = naming.pack_samples(samples)
    assert naming.unpack_samples(packed) == samples
    for content, unpack in ((block, naming.unpack_names), (packed, naming.unpack_samples)):
        cut = data.draw(st.integers(0, len(content)))
        try:
            found = unpack(content[:cut])
        except Malformed:
            continue
        assert list(found) == list(unpack(content))[: len(found)]


def test_what_is_not_a_name_or_a_verdict_is_refused() -> None:
    assert naming.unpack_verdicts(b"\6\0", 2) == (naming.SampleVerdict.STORED, naming.SampleVerdict.MISSING)
    for wrong in (b"\6", b"\6\7"):
        with pytest.raises(Malformed):
            naming.unpack_verdicts(wrong, 2)
    one = naming.SampleName(1, b"w" * 16, b"d" * 16, DISPOSE, b"")
    with pytest.raises(Malformed):
        naming.unpack_names(naming.pack_names([one] * (naming.MAX_NAMES + 1)))
    assert naming.first_names([one] * (naming.MAX_NAMES + 1)) == naming.MAX_NAMES
    large = naming.SampleName(1, b"w" * 16, b"d" * 16, DISPOSE, bytes(naming.MAX_BLOCK_BYTES))
    assert naming.first_names([large, large]) == 1
