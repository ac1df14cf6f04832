"""No module imports, in a roundabout way, itself: not even for types, nor inside a function."""

from __future__ import annotations

import pytest

from tests.hygiene.test_names import PRODUCT

grimp = pytest.importorskip("grimp", reason="import-linter brings it, which is in the dependency group lint")


def test_no_module_is_in_a_circle() -> None:
    """A protocol in the lower module, or a move, cuts one."""
    graph = grimp.build_graph(*PRODUCT, cache_dir=None)
    needs = {module: graph.find_upstream_modules(module) for module in graph.modules}
    assert {module for module in needs if any(module in needs[each] for each in needs[module])} == set()
