"""The trace of a node: what can be said (catalogue), how it is written, and who hears it."""
