"""How thoroughly laws are tried: `house` always takes the same examples, `deep` looks for new ones.

pytest tests/property --hypothesis-profile deep
"""

from __future__ import annotations

import hypothesis

_QUIET = (hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large)
hypothesis.settings.register_profile(
    "house", max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=_QUIET
)
hypothesis.settings.register_profile("deep", max_examples=5_000, deadline=None, suppress_health_check=_QUIET)


def pytest_configure() -> None:
    """Choose the profile of the house where none was asked for."""
    if hypothesis.settings.get_current_profile_name() == "default":
        hypothesis.settings.load_profile("house")
