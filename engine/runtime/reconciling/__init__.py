"""How two sets become equal at the cost of what differs: aligner, alignee, messages, and what is resumed."""
