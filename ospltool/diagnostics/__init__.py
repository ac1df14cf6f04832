"""Findings, and the renderers of their formats."""
