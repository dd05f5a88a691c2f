from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A test never depends on time: not on a busy machine's either. The same examples in every run.
settings.register_profile(
    "optc", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("optc")


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests keep no measurements in the user's cache folder."""
    folder: Path = tmp_path_factory.mktemp("cache")
    patch = pytest.MonkeyPatch()
    patch.setenv("OPTC_CACHE", str(folder))
