"""Redundant persistence services: `core`, which decides, and `service`, the process."""
