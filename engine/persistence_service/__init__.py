"""The process of a persistence service: the decisions of `engine.redundancy` on Cyclone DDS, with a store."""
