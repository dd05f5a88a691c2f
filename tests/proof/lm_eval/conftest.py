from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "examples/models/pycode"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is fetched, and paths in the example's tasks begin in the repository."""
    monkeypatch.chdir(ROOT)
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TQDM_DISABLE"):
        monkeypatch.setenv(name, "1")
    return None
