"""Findings, and one renderer for each format."""
