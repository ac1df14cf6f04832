"""The splice-daemon's part: start a node, watch its lease, apply its FailureAction, stop it in order.

No module here imports DDS: the supervisor must survive faults of the node.
"""
