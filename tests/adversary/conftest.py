"""Attacks on real nodes: each test tries what a document says that it cannot do."""

from tests.integration.conftest import lab

__all__ = ["lab"]
