"""One feed of snapshots and events from a live system, a recording or a simulation, and a model of it."""
