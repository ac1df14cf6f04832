"""Faults of peers in the data that they send."""


class StreamFault(ValueError):
    """A batch or a note that is foreign, damaged, or out of order."""
