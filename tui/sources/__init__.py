"""What the console shows besides the feed: trace files, and findings about what nodes advertise."""
