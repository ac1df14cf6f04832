"""The output of commands: the JSON envelope, terminal-safe text, tables, progress and streams."""
