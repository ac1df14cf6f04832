"""Make two sets equal at the cost of their difference: aligner, alignee, messages, resumption."""
