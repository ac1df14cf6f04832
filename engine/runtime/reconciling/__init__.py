"""Make two sets equal at the cost of their difference: the aligner, the alignee, and their messages."""
