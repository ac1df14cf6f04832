"""What is shown of a trace: records, overviews, time lines, conversations."""
