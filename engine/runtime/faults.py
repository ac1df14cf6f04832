"""Faults of peers in the data that they send."""


class StreamFault(ValueError):
    """A batch or comparison message that is foreign, damaged, or out of order."""
