"""Measurements: `python -m benchmarks --area start`. What is compared is measured side by side in one run."""
