"""A rehearsal of persistence services: replicas under virtual time."""
