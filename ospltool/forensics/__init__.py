"""Conclusions that can be signed: what became of the data, the story of how, and what is unknown."""
