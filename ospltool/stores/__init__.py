"""Stores of ours and of OpenSplice, opened, verified, compared, copied."""
