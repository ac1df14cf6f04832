"""What of a domain the doctor looks at."""

from __future__ import annotations

import itertools

import pytest

from engine.dds.discovery import EndpointSeen, ParticipantSeen
from engine.dds.qos import EndpointQos
from ospltool.doctor.listening import ObservedSystem

_numbers = itertools.count(1)
OWNER = ParticipantSeen(b"p" * 16, None, (), "host", 1, "application", False)


def endpoint(topic: str, partition: str = "ships", type_name: str = "T") -> EndpointSeen:
    guid = next(_numbers).to_bytes(16)
    return EndpointSeen(guid, OWNER.guid, True, topic, type_name, None, EndpointQos(partitions=(partition,)))


@pytest.mark.parametrize("shows_all", [True, False])
def test_own_topics_of_opensplice_and_ros_are_looked_at_only_when_asked_for(shows_all: bool) -> None:
    notes = ObservedSystem(shows_all=shows_all)
    built_in = [
        endpoint("DCPSParticipant"),
        endpoint("DCPSHeartbeat"),
        endpoint("CMDataWriter"),
        endpoint("d_status", "elsewhere"),
        endpoint("Ship", "__BUILT-IN PARTITION__"),
        endpoint("ros_discovery_info", type_name="rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_"),
        endpoint("rq/n/get_parametersRequest", type_name="rcl_interfaces::srv::dds_::GetParameters_Request_"),
        endpoint("rt/rosout", type_name="rcl_interfaces::msg::dds_::Log_"),
    ]
    applications = [endpoint("Ship"), endpoint("CMD"), endpoint("DCP"), endpoint("rq/x")]
    applications += [endpoint("rt/map", type_name="nav_msgs::msg::dds_::OccupancyGrid_")]
    notes.update([OWNER, *built_in, *applications])
    picture = notes.picture()
    assert len(picture.endpoints) == len(applications) + shows_all * len(built_in)
    assert picture.built_in_endpoints == (0 if shows_all else len(built_in))
