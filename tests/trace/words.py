"""Lines of durability traces from which tests of anomalies are made, and what the rules find in them."""

from __future__ import annotations

from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading.reader import merged
from ospltool.trace.reading.sources import find_sources
from ospltool.trace.rules import TraceFinding, anomalies
from tests.trace.making import Traces

SELF = "Confirming master: I am the master for nameSpace 'ns'."
FELLOW = "Confirming master: Fellow '{}' is the master for nameSpace 'ns'."
CONFLICT = "Master conflict in namespace 'ns' for fellow {} detected, conflict {} created (use_legacy: 0)"
SPACE = (
    "Received nameSpace 'ns' from fellow {} (his master: {}, confirmed: 1, mergeState: (DefaultRole,1), "
    "quality: 1.0, "
    "mergedStates:{{}}, extensions: {{masterPriority, {}}})."
)
MERGE = "Inserting merge requests to merge 2 groups to 1 fellows for nameSpace 'ns'"
REQUEST = "Write samplerequest for group p.T to fellow 1002 using source (0,0,0)"
GOT_REQUEST = (
    "Received sample request for group p.T from fellow 1001 using source (0,0,0), adding it to queue."
)
LINK = "Received link from fellow 1002 for group p.T containing 50 samples. #links == 1"

POLICY = "Applying {} merge policy for group p.T"
MERGED = "Updating state of namespace 'ns' to '{}' for role 'DefaultRole'"
SLAVED = "Slaving to my master, set the state of namespace 'ns' to '{}' for role 'DefaultRole'"


def found(traces: Traces, *rules: str) -> list[TraceFinding]:
    facts = TraceFacts.from_records(merged(find_sources([traces.write()]).sources))
    return anomalies(facts, rules or None)
