"""Durable data sets: sample, instance, history, ordering and digest."""
