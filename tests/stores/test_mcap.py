"""Stores as MCAP files, read again by MCAP's own reader."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("mcap", reason="needs the extra `mcap`")

import pathlib

from mcap.reader import make_reader

from ospltool.cli.app import main
from tests.stores.making import BASE_NS, Held, Message, Version, write_kv
from tests.stores.own_stores import described, write_ours
from tests.stores.persistence_stores import write_persistence


def test_the_reader_of_mcap_finds_every_sample_with_its_schema(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    messages = tuple(Message(key, text=f"text {key}", time_ns=BASE_NS + key) for key in range(20))
    store = write_kv(tmp_path / "kv", Version((Held(messages),)))
    assert (
        main(["store", "export", str(store), "--format", "mcap", "-o", str(tmp_path / "s.mcap"), "--json"])
        == 0
    )
    assert json.loads(capfd.readouterr().out)["data"]["samples"] == 20
    with (tmp_path / "s.mcap").open("rb") as stream:
        reader = make_reader(stream)
        summary = reader.get_summary()
        assert summary is not None
        assert summary.statistics is not None
        assert summary.statistics.message_count == 20
        found = list(reader.iter_messages())
    assert [message.log_time for _, _, message in found] == [BASE_NS + key for key in range(20)]
    schema, channel, message = found[3]
    assert schema is not None
    assert (channel.topic, channel.message_encoding, schema.encoding) == ("depot.Items", "json", "jsonschema")
    properties = json.loads(schema.data)["properties"]
    assert properties["fields"]["properties"]["text"] == {"type": "string"}
    assert json.loads(message.data)["fields"]["text"] == "text 3"
    assert set(json.loads(message.data)) == set(properties)


@pytest.mark.parametrize("make", ["ours", "persistence"])
def test_a_type_that_nobody_knows_leaves_the_bytes(make: str, tmp_path: pathlib.Path) -> None:
    if make == "ours":
        store = write_ours(tmp_path / "store", {described("p"): [Message(1).sample(), Message(2).sample()]})
    else:
        store = write_persistence(tmp_path / "store", range(2))
    assert main(["store", "export", str(store), "--format", "mcap", "-o", str(tmp_path / "s.mcap")]) == 0
    with (tmp_path / "s.mcap").open("rb") as stream:
        data = [json.loads(message.data) for _, _, message in make_reader(stream).iter_messages()]
    assert [one["fields"] for one in data] == [None, None]
    assert all(one["payload"] for one in data)


def test_a_file_that_is_there_is_not_overwritten(tmp_path: pathlib.Path) -> None:
    store = write_ours(tmp_path / "store", {described("p"): [Message(1).sample()]})
    (tmp_path / "s.mcap").write_text("precious")
    assert main(["store", "export", str(store), "--format", "mcap", "-o", str(tmp_path / "s.mcap")]) == 2
    assert (tmp_path / "s.mcap").read_text() == "precious"
