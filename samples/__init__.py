"""Runnable samples: deployments, publishers, subscribers and recordings."""
