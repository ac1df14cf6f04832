"""Redundant persistence services: replicas that keep the same data, each sample fetched once.

The decisions only: no clock, no network, no disk. See docs/redundant-persistence.md.
"""
