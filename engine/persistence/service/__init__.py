"""The process of a persistence service: what `engine.persistence.core` decides, on Cyclone DDS."""
