"""What is said of a system on a screen: tables, lines and words, as pure functions."""
