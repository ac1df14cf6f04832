"""The real node process: runtime, Cyclone DDS, store thread and real clock."""
