"""Widgets that draw spans, lines and tables of the view model."""
