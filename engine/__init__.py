"""The durability service for Eclipse Cyclone DDS: one process per node."""
