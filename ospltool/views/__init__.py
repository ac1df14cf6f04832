"""The text of each screen: tables, lines and words, as pure functions."""
