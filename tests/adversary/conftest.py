from __future__ import annotations

from tests.integration.conftest import lab as lab
