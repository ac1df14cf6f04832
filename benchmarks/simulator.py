"""How much faster than real time systems of five nodes are simulated, on all cores.

The configured ones have the defaults of the configuration: a fellow is lost after 10 s without a heartbeat.
The drawn ones have what `ospltool simulate --nodes 5` draws: two thirds of them lose it after 2 or 4 s, which
is up to five times as many messages. The time is that of the whole campaign, process starts included.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import TYPE_CHECKING, Final

from benchmarks.rows import Bar, Is, Row
from engine.config import load
from engine.simulator.campaign import Campaign

if TYPE_CHECKING:
    from engine.config import Configuration

AREA: Final = "simulator"
NODES: Final = 5
RUNS: Final = 60
REACHED: Final = Bar(Is.AT_LEAST, 2000)
FAULTS: Final = {"none": "no faults", "any": "faults drawn"}
CONFIGURATION: Final = """\
<OpenSplice>
  <Domain><Name>bench</Name><Id>7</Id></Domain>
  <DurabilityService name="durability">
    <Network/>
    <Persistent><StoreDirectory>/nowhere</StoreDirectory></Persistent>
    <NameSpaces>
      <NameSpace name="all"><Partition>*</Partition></NameSpace>
      <Policy nameSpace="*" durability="Durable" aligner="true" alignee="Initial">
        <Merge type="Merge" scope="*"/>
      </Policy>
    </NameSpaces>
  </DurabilityService>
</OpenSplice>
"""


def run(repeat: int) -> list[Row]:
    """Five nodes with default settings, and five drawn ones, each without and with faults."""
    rows: list[Row] = []
    for faults, words in FAULTS.items():
        configured = Campaign(faults, configurations=_configurations())
        bar = REACHED if faults == "none" else None
        rows += [
            _row(f"{NODES} nodes, defaults, {words}", configured, repeat, bar),
            _row(f"{NODES} drawn nodes, {words}", Campaign(faults, nodes=NODES), repeat),
        ]
    return rows


def _row(name: str, campaign: Campaign, repeat: int, bar: Bar | None = None) -> Row:
    return Row(AREA, name, "times real time", tuple(_speed(campaign) for _ in range(repeat)), bar=bar)


def _speed(campaign: Campaign) -> float:
    """Virtual seconds in a second; the same seeds each time.

    Raises:
        RuntimeError: a rule was broken, so the figure would be that of something else.
    """
    started = time.monotonic()
    outcomes = list(campaign.run_all(range(1, RUNS + 1), os.cpu_count() or 1))
    elapsed_s = time.monotonic() - started
    for outcome in outcomes:
        if outcome.violation:
            raise RuntimeError(f"{outcome.violation}; replay: {outcome.replay}")
    return sum(outcome.virtual_s for outcome in outcomes) / elapsed_s


def _configurations() -> dict[str, Configuration]:
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(CONFIGURATION)
        file.flush()
        return {f"n{number + 1}": load(file.name, {}) for number in range(NODES)}
