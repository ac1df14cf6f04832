"""Both stores obey the same laws: a rule-based machine drives them beside a plain model."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.dataset.dataset import DataSet
from engine.store.interface import MAX_BACKUPS, DamageLog, GroupChange, RememberedFellow, SetState, Soundness
from engine.store.memory import Medium, MemoryStore
from engine.store.sqlite import SqliteStore
from tests.unit.store.making import description, sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.core.name_spaces import Group
    from engine.dataset.groups import GroupDescription
    from engine.dataset.sample import Sample
    from engine.store.interface import Marks, SetInfo, SetWriter, Store

NAMES = ("left", "right")
NODE_ID = "0123456789abcdef0123456789abcdef"
Content = dict["Group", dict[bytes, "Sample"]]

groups = st.integers(0, 2).map(description)
numbers = st.integers(0, 8)  # few, so that samples come, go and come again
names = st.sampled_from(NAMES)
some_marks = st.dictionaries(st.sampled_from("ab"), st.none() | st.text(max_size=5))


@dataclasses.dataclass
class Model:
    """What a name-space's sets should be."""

    complete: Content | None = None
    filling: Content | None = None
    writer: SetWriter | None = None
    mark: str = ""
    kept: list[tuple[str, Content]] = dataclasses.field(default_factory=list)
    marks: dict[str, str] = dataclasses.field(default_factory=dict)
    fellows: tuple[RememberedFellow, ...] = ()

    def remember(self, marks: Marks) -> None:
        known = {**self.marks, **marks}
        self.marks = {key: value for key, value in known.items() if value is not None}


def apply(content: Content, group: GroupDescription, added: list[Sample], evicted: list[Sample]) -> None:
    rows = content.setdefault(group.group, {})
    for item in added:
        rows[item.digest] = item
    for item in evicted:
        rows.pop(item.digest, None)


def content_of(store: Store, name: str, version: int | None = None) -> Content:
    """What a version holds, the complete one by default, as reading it tells."""
    damage = DamageLog()
    read: Content = {}
    for group, pieces in store.load(name, damage, version):
        listed = [one for rows in pieces for one in rows]
        assert listed == sorted(listed), "oldest first"
        read[group.group] = {item.digest: item for item in listed}
        assert len(read[group.group]) == len(listed), "each once"
    assert damage.count == 0, damage.first
    return read


def check_summaries(info: SetInfo, content: Content) -> None:
    """The watermarks say of a set what the data set's own summary says of the same samples."""
    same = DataSet()
    for group, rows in content.items():
        group_set = same.open_group(group, 0)
        for item in rows.values():
            group_set.apply(item)
    assert info.stored.same_content(same.summary())
    for group_info in info.groups:
        group = group_info.description.group
        assert group_info.stored.same_content(same.groups[group].summary())


class StoreLaws(RuleBasedStateMachine):
    """Opens, fills, appends, switches, kills and opens again."""

    def __init__(self) -> None:
        super().__init__()
        self.models = {name: Model() for name in NAMES}
        self.incarnation = 0
        self.start(clean=True)
        self.store.commit_complete(self.store.begin_set("left"))
        self.models["left"].complete = {}

    def open(self) -> Store:
        raise NotImplementedError

    def kill(self) -> None:
        raise NotImplementedError

    def start(self, *, clean: bool) -> None:
        self.store = self.open()
        self.incarnation += 1
        report = self.store.report
        assert report.node_id == NODE_ID
        assert report.incarnation == self.incarnation
        assert report.clean_shutdown == clean
        assert not report.is_damaged
        interrupted = sum(model.filling is not None for model in self.models.values())
        assert sum("interrupted" in finding for finding in report.findings) == interrupted
        for name, model in self.models.items():
            assert report.fellows.get(name, ()) == model.fellows
            model.writer = None

    @rule(name=names)
    def go_on(self, name: str) -> None:
        """What was filling, in this run or a former one, is all there and can be filled further."""
        model = self.models[name]
        writer = self.store.filling(name)
        assert (writer is None) == (model.filling is None)
        if writer is not None and model.filling is not None:
            assert writer.stored.count == sum(map(len, model.filling.values()))
            assert content_of(self.store, name, writer.version) == model.filling
            model.writer = writer

    @rule(name=names)
    def begin(self, name: str) -> None:
        model = self.models[name]
        model.writer = self.store.begin_set(name)
        model.filling = {}

    @rule(name=names, group=groups, new=st.lists(numbers, max_size=12), old=st.lists(numbers, max_size=4))
    def fill(self, name: str, group: GroupDescription, new: list[int], old: list[int]) -> None:
        model = self.models[name]
        if model.writer is not None and model.filling is not None:
            added, evicted = [sample(n) for n in new], [sample(n) for n in old]
            model.writer.add(group, added, evicted)
            apply(model.filling, group, added, evicted)
            assert model.writer.stored.count == sum(map(len, model.filling.values()))

    @rule(name=names, mark=st.text(max_size=8), keep=st.booleans(), marks=some_marks)
    def commit(self, name: str, mark: str, keep: bool, marks: Marks) -> None:
        model = self.models[name]
        if model.writer is not None:
            note = f"replaced by {mark}"
            if keep and model.complete is not None:
                model.kept = [*model.kept, (note, model.complete)][-MAX_BACKUPS:]
            kept_as = note if keep else None
            info = self.store.commit_complete(model.writer, mark, keep_previous=kept_as, marks=marks)
            model.remember(marks)
            assert info.soundness is Soundness.INTACT
            assert info == self.store.complete_set(name)
            model.complete, model.mark = model.filling, mark
            model.filling = model.writer = None

    @rule(name=names)
    def drop_the_oldest_backup(self, name: str) -> None:
        kept = [one.version for one in self.store.sets(name) if one.state is SetState.KEPT]
        if kept:
            self.store.drop_backup(kept[0])
            del self.models[name].kept[0]
        else:
            complete = self.store.complete_set(name)
            with pytest.raises(LookupError):
                self.store.drop_backup(complete.version if complete else 1 << 40)

    @rule(name=names)
    def read_backups(self, name: str) -> None:
        kept = [one for one in self.store.sets(name) if one.state is SetState.KEPT]
        for one, (_, content) in zip(kept, self.models[name].kept, strict=True):
            assert content_of(self.store, name, one.version) == content

    @rule(name=names)
    def abandon(self, name: str) -> None:
        model = self.models[name]
        if model.writer is not None:
            self.store.abandon(model.writer)
            with pytest.raises(LookupError):
                model.writer.add(description(), [sample(1)])
            model.filling = model.writer = None

    @rule(
        name=names,
        steps=st.lists(st.tuples(groups, st.none() | numbers, st.lists(numbers, max_size=3)), max_size=12),
        marks=some_marks,
    )
    def append(
        self, name: str, steps: list[tuple[GroupDescription, int | None, list[int]]], marks: Marks
    ) -> None:
        changes = [
            GroupChange(group, None if n is None else sample(n), [sample(o) for o in old if o != n])
            for group, n, old in steps
        ]
        model = self.models[name]
        if model.complete is None:
            with pytest.raises(LookupError):
                self.store.append(name, changes, marks)
            return
        watermarks = self.store.append(name, changes, marks)
        model.remember(marks)
        for group, added, evicted in changes:
            apply(model.complete, group, [added] if added else [], list(evicted))
        assert set(watermarks) == {change.description.group for change in changes}
        for key, stored in watermarks.items():
            assert stored.count == len(model.complete[key])

    @rule(name=names, marks=some_marks)
    def mark(self, name: str, marks: Marks) -> None:
        self.store.mark(name, marks)
        self.models[name].remember(marks)

    @rule(name=names, ids=st.sets(st.sampled_from("abc")))
    def fellows(self, name: str, ids: set[str]) -> None:
        known = tuple(sorted(RememberedFellow(f"{one}" * 32, f"node {one}", "role") for one in ids))
        self.store.remember_fellows(name, known)
        self.models[name].fellows = known

    @rule()
    def tidy(self) -> None:
        for _ in range(1000):
            if not self.store.tidy():
                return
        raise AssertionError("tidying never ends")

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store.close()
        self.start(clean=True)

    @rule()
    def crash(self) -> None:
        self.kill()
        self.start(clean=False)

    @rule(name=names)
    @precondition(lambda self: any(model.complete is not None for model in self.models.values()))
    def read(self, name: str) -> None:
        model = self.models[name]
        if model.complete is None:
            return
        read = content_of(self.store, name)
        assert read == model.complete
        info = self.store.complete_set(name)
        assert info is not None
        assert info.soundness is Soundness.INTACT
        times = [item.source_time_ns for rows in read.values() for item in rows.values()]
        assert info.quality_ns is not None
        assert info.quality_ns >= max(times, default=0)
        for limit in (0, *times[:3]):
            expected = max((time for time in times if time <= limit), default=0)
            assert self.store.newest_until(name, limit) == expected

    @invariant()
    def agrees_with_the_model(self) -> None:
        for name, model in self.models.items():
            info = self.store.complete_set(name)
            assert (info is None) == (model.complete is None)
            if info is not None and model.complete is not None:
                assert info.mark == model.mark
                check_summaries(info, model.complete)
            states = [one.state for one in self.store.sets(name)]
            kept = [one.mark for one in self.store.sets(name) if one.state is SetState.KEPT]
            assert kept == [note for note, _ in model.kept]
            assert states.count(SetState.FILLING) == (model.filling is not None)
            assert self.store.marks(name) == model.marks
            if info is not None or model.filling is not None or model.marks:
                assert name in self.store.name_spaces()


class MemoryLaws(StoreLaws):
    """The laws on a store in memory."""

    def __init__(self) -> None:
        self.medium = Medium(NODE_ID)
        super().__init__()

    def open(self) -> Store:
        return MemoryStore(self.medium)

    def kill(self) -> None:
        """A store that is not closed is a killed one."""


class SqliteLaws(StoreLaws):
    """The laws on a store on disk; a kill is a copy of its files, as they are, under a new directory."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="store-laws-"))
        self.generation = 0
        super().__init__()

    @property
    def directory(self) -> Path:
        return self.root / str(self.generation)

    def open(self) -> Store:
        return SqliteStore(self.directory, "laws", lambda: NODE_ID)

    def kill(self) -> None:
        before = self.directory
        self.generation += 1
        shutil.copytree(before, self.directory)
        self.store.close()
        shutil.rmtree(before)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.root)


TestMemoryLaws = MemoryLaws.TestCase
TestMemoryLaws.settings = settings(stateful_step_count=40)
TestSqliteLaws = SqliteLaws.TestCase
TestSqliteLaws.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=30)


steps = st.lists(st.tuples(st.none() | numbers, st.lists(numbers, max_size=3)), max_size=12)


def check_sequence(store: Store, before: set[int], sequence: list[tuple[int | None, list[int]]]) -> None:
    """Appended at once, a sequence of changes comes to what it comes to one by one."""
    group = description()
    writer = store.begin_set("left")
    writer.add(group, [sample(n) for n in sorted(before)])
    store.commit_complete(writer)
    expected = {n: sample(n) for n in before}
    changes = []
    for added, evicted in sequence:
        if added is not None:
            expected[added] = sample(added)
        gone = [n for n in evicted if n != added]
        for n in gone:
            expected.pop(n, None)
        changes.append(
            GroupChange(group, None if added is None else sample(added), [sample(n) for n in gone])
        )
    store.append("left", changes)
    assert content_of(store, "left")[group.group] == {one.digest: one for one in expected.values()}
    info = store.complete_set("left")
    assert info is not None
    check_summaries(info, content_of(store, "left"))


@given(before=st.sets(numbers), sequence=steps)
@settings(max_examples=4 * settings().max_examples)
def test_changes_in_memory_come_to_their_sum(
    before: set[int], sequence: list[tuple[int | None, list[int]]]
) -> None:
    check_sequence(MemoryStore(Medium(NODE_ID)), before, sequence)


@pytest.fixture(scope="module")
def disk_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with contextlib.closing(SqliteStore(tmp_path_factory.mktemp("laws"), "laws", lambda: NODE_ID)) as store:
        yield store


@given(before=st.sets(numbers), sequence=steps)
@settings(max_examples=4 * settings().max_examples)
def test_changes_on_disk_come_to_their_sum(
    disk_store: Store, before: set[int], sequence: list[tuple[int | None, list[int]]]
) -> None:
    check_sequence(disk_store, before, sequence)
