"""The trace of a node: the catalogue of events, the formats, and the outputs and subscribers."""
