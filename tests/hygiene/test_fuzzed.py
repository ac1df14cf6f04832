"""Every module that parses bytes of others is known here, with the readers of `make fuzz` that reach it."""

from __future__ import annotations

import pathlib
import re
from typing import Final

import engine

ROOT: Final = pathlib.Path(engine.__path__[0]).parent
PARSES: Final = re.compile(
    r"json\.loads?\(|(?:json|msgpack)\.(?:decode|Decoder)\(|json_reader\(|unpack_from\(|\.unpack\(|tomllib\.loads?\(|ParserCreate\(|XMLParser\(|read_json\("
)
"""Calls that parse."""

READERS: Final[dict[str, str]] = {
    "engine/config/fleet.py": "fleet",
    "engine/config/reader.py": "check configuration persistence-service",
    "engine/core/untrusted.py": "message monitor",
    "engine/dataset/blocks.py": "block stream",
    "engine/dds/cdr.py": "bytes named",
    "engine/dds/client_protocol/encoding.py": "client-history client-history-request client-state",
    "engine/dds/client_protocol/messages.py": "client-history client-history-request client-state",
    "engine/dds/client_protocol/extensions.py": "client-history client-storage client-pending",
    "engine/dds/client_protocol/naming.py": "sample-names samples client-state-request",
    "engine/dds/proofs.py": "proof",
    "engine/dds/typeinfo.py": "type",
    "engine/persistence/core/messages.py": "replica-delivery replica-books replica-hello subscriber answer",
    "engine/persistence/core/replica_link.py": "replica-frame",
    "engine/persistence/service/kept_groups.py": "replica-groups service-store",
    "engine/persistence/service/service_parts.py": "registration",
    "engine/persistence/service/replica_store.py": "service-store",
    "engine/persistence/service/replica_view.py": "replica-view",
    "engine/runtime/codec.py": "message",
    "engine/runtime/monitor.py": "monitor",
    "engine/runtime/past.py": "past",
    "engine/runtime/pending_writers.py": "store-marks",
    "engine/runtime/reconciling/messages.py": "comparison",
    "engine/runtime/runtime.py": "message-group",
    "engine/runtime/startup.py": "store-marks node-store",
    "engine/runtime/stream.py": "stream",
    "engine/store/interface.py": "store-marks",
    "engine/store/catalog.py": "node-store",
    "engine/store/store_directory.py": "node-store-ledger node-store-lock",
    "engine/supervisor/launch.py": "launch",
    "engine/supervisor/rundir.py": "run-record run-state",
    "ospltool/analytics/case.py": "case case-version",
    "ospltool/client/journal.py": "journal",
    "ospltool/forensics/attachments.py": "case-attachments",
    "ospltool/health/mutes.py": "mutes",
    "ospltool/live/recording.py": "replay recording",
    "ospltool/stores/cdr.py": "stored-sample",
    "ospltool/stores/opensplice_stores.py": "kv/kv.sqlite kvmt/kvmt.sqlite",
    "ospltool/stores/opensplice_values.py": "xml/Items.xml xml/Items_meta.xml kvmt/kvmt.sqlite",
    "ospltool/stores/ours.py": "persistence/persistence.sqlite",
    "ospltool/stores/snapshot.py": "snapshot-kv/snapshot.json",
    "ospltool/trace/reading/reader.py": "trace trace-events",
}
"""Readers by module."""

OWN: Final[dict[str, str]] = {
    "ospltool/forensics/pipeline.py": "the plan of the user who runs it, and what names its own case",
    "engine/client_service/service.py": "additions to requests, which `extensions` parses",
    "engine/dataset/sample.py": "digests that this process computed",
    "engine/dds/abi.py": "structures of Cyclone DDS in this process",
    "engine/dds/writer_names.py": "structures of Cyclone DDS in this process",
    "engine/dds/capture_reader.py": "records of the compiled library in this process",
    "engine/store/database.py": "100 bytes of fixed layout, with the store",
    "engine/supervisor/control.py": "the progress of a supervisor that this process started",
    "engine/tracing/catalogue.py": "a file of the wheel",
    "ospltool/check/rule_book.py": "a file of the wheel",
    "ospltool/cli/options.py": "a file of the wheel",
    "ospltool/trace/meaning/reports.py": "a file of the wheel",
    "ospltool/client/asking.py": "additions to answers, which `extensions` parses",
    "ospltool/client/reader.py": "additions to answers, which `extensions` parses",
    "ospltool/client/session.py": "additions to answers, which `extensions` parses",
    "ospltool/demo/acts.py": "the output of a program that the demo started",
    "ospltool/health/codes.py": "a file of the wheel",
    "ospltool/output/installation.py": "what the installer of this environment wrote into it",
}
"""Modules that parse only what this process or its own files of the wheel contain, and what that is."""


def test_every_module_that_parses_is_fuzzed_or_reads_its_own_bytes(tmp_path: pathlib.Path) -> None:
    from tests.fuzz import all_targets

    found = {
        str(path.relative_to(ROOT))
        for package in ("engine", "ospltool", "tui")
        for path in (ROOT / package).rglob("*.py")
        if PARSES.search(path.read_text("utf-8"))
    }
    assert found == {*READERS, *OWN}
    names = {target.name for target in all_targets(tmp_path)}
    unknown = {reader for readers in READERS.values() for reader in readers.split()} - names
    assert not unknown
