"""Decisions of redundant persistence services: replicas keep the same data and fetch each sample once.

No clock, no network and no disk here. See docs/redundant-persistence.md.
"""
