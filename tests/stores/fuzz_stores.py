"""What reads stores, as targets for damaged files."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence

from engine.dataset.sample import make_sample
from engine.store.interface import DamageLog
from ospltool.output import envelope
from ospltool.stores.copying import backups, backups_text
from ospltool.stores.describe import count_sets, verify_problems
from ospltool.stores.listing import info_text, info_value, verified_text
from ospltool.stores.model import StoreReader, StoreUnreadable
from ospltool.stores.opening import open_reader
from ospltool.stores.snapshot import write_snapshot
from ospltool.stores.types import Undecodable
from tests.fuzzing import Target, damaged, damaged_json
from tests.stores.making import BASE_NS, Compression, Held, Message, Version, write_kv, write_kvmt, write_xml
from tests.stores.own_stores import described, write_ours
from tests.stores.persistence_stores import write_persistence

SAMPLES = 12


def _version() -> Version:
    messages = tuple(
        Message(number, "x" * (number % 30), time_ns=BASE_NS + number) for number in range(SAMPLES)
    )
    return Version((Held(messages), Held(messages[:5], topic="Other")))


def read_all(path: pathlib.Path) -> int:
    """Opens a store and looks at all of it; how many samples there are. What cannot be read is reported."""
    count = 0
    with contextlib.suppress(StoreUnreadable):
        reader = open_reader(path)
        try:
            for one in reader.facts.sets:
                damage = DamageLog()
                for group, samples in reader.read(one.number, damage):
                    for sample in samples:
                        count += 1
                        assert -(1 << 63) <= sample.source_time_ns < 1 << 63
                        with contextlib.suppress(Undecodable):
                            reader.decode(group, sample)
                [str(entry) for entry in damage.first]
            _inform(reader)
        finally:
            reader.close()
    return count


def _inform(reader: StoreReader) -> None:
    """What `store info`, `store backups` and `store verify` show of it, on a terminal and as JSON."""
    counted = list(count_sets(reader))
    lines = [*info_text(reader.facts, counted), *backups_text("store", backups(reader.facts))]
    for one in counted:
        lines += verified_text("store", one, verify_problems(reader, one))
    assert all(line.isprintable() for line in lines)
    envelope.document("store-info", {"stores": [info_value(reader.facts, counted)]})


def _in_a_copy(store: pathlib.Path, name: str) -> Callable[[bytes], None]:
    """Reads a copy of a store in which one file has other bytes."""

    def read(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            copy = pathlib.Path(scratch) / "store"
            shutil.copytree(store, copy)
            (copy / name).write_bytes(data)
            read_all(copy)

    return read


def targets(directory: pathlib.Path) -> Sequence[Target]:
    """All readers of stores; the stores to begin with are made in a directory."""
    version = _version()
    samples = [
        make_sample(BASE_NS + number, bytes(16), 4, number.to_bytes(4), b"\0\1\0\0payload")
        for number in range(SAMPLES)
    ]
    group = described("depot")
    stores = {
        "kv": (write_kv(directory / "kv", version), ["kv.sqlite"]),
        "kv-lzf": (write_kv(directory / "kv-lzf", version, compression=Compression.LZF), ["kv.sqlite"]),
        "kvmt": (write_kvmt(directory / "kvmt", version), ["kvmt.sqlite"]),
        "xml": (write_xml(directory / "xml", version), ["depot/Items.xml", "depot/Items_meta.xml"]),
        "persistence": (write_persistence(directory / "persistence", range(SAMPLES)), ["persistence.sqlite"]),
        "ours": (write_ours(directory / "ours", {group: samples}), ["store.sqlite"]),
    }
    for name in ("kv", "ours"):
        reader = open_reader(stores[name][0])
        write_snapshot(reader, directory / f"snapshot-{name}", reader.facts.current(), DamageLog())
        reader.close()
        stores[f"snapshot-{name}"] = (directory / f"snapshot-{name}", ["samples.parquet", "snapshot.json"])
    return [
        Target(
            f"{name}/{pathlib.Path(file).name}",
            [(store / file).read_bytes()],
            _in_a_copy(store, file),
            damage=damaged_json if file.endswith(".json") else damaged,
        )
        for name, (store, files) in stores.items()
        for file in files
    ]
