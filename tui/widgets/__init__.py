"""Widgets that draw spans, lines and tables."""
