"""QoS of topics and writers that a persistence service must respect, between real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import own_domain, topic_discovery
from tests.integration.lab import Lab
from tests.redundancy.instances import Instances

pytestmark = pytest.mark.dds

TRANSIENT, PERSISTENT = 2, 3
COUNT = 5


def test_a_writer_that_offers_less_than_its_topic_says_is_not_captured(tmp_path: Path) -> None:
    domain, tag = own_domain()
    lab = Lab(tmp_path, domain, tag, topic_discovery(tag), watched=False)
    instances = Instances(lab)
    try:
        instances.start("a")
        refused = lab.program(
            "refused_writer", durability=TRANSIENT, reliable=True, topic_durability=PERSISTENT
        )
        answer = refused.line(30)
        assert answer["refused"], "OFFERED_INCOMPATIBLE_QOS at the application's own writer"
        instances.wait_for("it is counted", lambda: instances.counter("a", "refused_writers") == 1)
        said = instances.log("a").read_text()
        assert answer["guid"] in said
        assert "DURABILITY: offered TRANSIENT, requested PERSISTENT" in said
        lab.write({"count": COUNT, "time": 1_000}, durability=PERSISTENT)
        instances.wait_values(COUNT, "a")
    finally:
        instances.close()
        lab.close()
