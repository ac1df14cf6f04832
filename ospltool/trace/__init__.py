"""Traces and logs: read, merge, filter, follow, explain; of the real OpenSplice and of our engine."""
