"""Conclusions about a past incident: the fate of the data, the story behind it, and what is unknown."""
