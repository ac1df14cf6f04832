"""Views of a trace: records, overviews, time lines, conversations."""
