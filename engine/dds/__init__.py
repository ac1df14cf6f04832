"""Everything in `engine` that touches Cyclone DDS."""
