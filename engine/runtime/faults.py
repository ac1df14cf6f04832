"""What a peer can do wrong when it sends."""


class StreamFault(ValueError):
    """A batch or a note that is not ours, damaged, or out of order."""
