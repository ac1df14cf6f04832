"""Nodes that speak two versions of the protocol in one domain: two systems, and both say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.runtime import codec
from engine.simulator.simulated_node import SharedCodec
from tests.simulation.scenarios import EXPIRY_S, Scenario, node

if TYPE_CHECKING:
    from engine.core.messages import Outgoing
    from engine.runtime.codec import Envelope


class OneVersion(SharedCodec):
    """The real codec of a version."""

    def __init__(self, version: int) -> None:
        super().__init__()
        self._version = version

    def encode(self, outgoing: Outgoing) -> bytes:
        own, other = (b'"version":%d,' % version for version in (codec.VERSION, self._version))
        return codec.encode(outgoing).replace(own, other, 1)

    def decode(self, data: bytes) -> Envelope:
        own, other = (b'"version":%d,' % version for version in (codec.VERSION, self._version))
        return codec.decode(
            data.replace(own, b'"version":0,', 1).replace(other, own, 1) if own != other else data
        )


def test_nodes_of_two_versions_refuse_each_other_and_name_both() -> None:
    scenario = Scenario(*(node(name) for name in "abc"))
    versions = {"a": codec.VERSION, "b": codec.VERSION + 1, "c": codec.VERSION + 1}
    for name, version in versions.items():
        scenario.cluster.codec = OneVersion(version)
        scenario.start(name)
    scenario.until(scenario.complete)
    scenario.write("a", 1)
    scenario.run(2 * EXPIRY_S)
    masters = [epoch.node for name in "abc" if (epoch := scenario.state(name).following)]
    assert masters[0] == scenario.node("a").id
    assert masters[1] == masters[2] != masters[0]
    for name, others in (("a", "bc"), ("b", "a"), ("c", "a")):
        told = scenario.traced("message.unsupported", name)
        assert {(record["name"], record["fellow"]) for record in told if record["topic"] == "d_status"} == {
            (name, other) for other in others
        }
        assert not scenario.traced("message.malformed", name)
        fellows = {record["fellow"] for record in scenario.traced("fellow.confirmed", name)}
        assert len(fellows) == (0 if name == "a" else 1)
