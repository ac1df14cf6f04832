"""What every command's output has in common: the JSON envelope, terminal-safe text, tables and streams."""
