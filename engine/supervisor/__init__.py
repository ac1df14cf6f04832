"""The splice-daemon's part: starts a node, watches its lease, applies its FailureAction, stops it in order.

Nothing in here imports DDS: the supervisor must live on when a node cannot.
"""
