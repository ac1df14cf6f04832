"""Sources of the console besides the feed: trace files, and findings about advertised settings."""
