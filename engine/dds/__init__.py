"""Everything that touches Cyclone DDS; nothing else in the project imports `cyclonedds`."""
