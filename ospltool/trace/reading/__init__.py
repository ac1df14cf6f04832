"""Reads files as records: every byte of a file belongs to one record."""
