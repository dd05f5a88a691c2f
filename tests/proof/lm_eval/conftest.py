from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import optc
from tests.support.shared import made_once

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "examples/models/pycode"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is fetched, and paths in the example's tasks begin in the repository."""
    monkeypatch.chdir(ROOT)
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TQDM_DISABLE"):
        monkeypatch.setenv(name, "1")
    return None


@pytest.fixture(scope="session")
def exact_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained example in float32."""

    def compile(folder: Path) -> Path:
        return optc.compile(MODEL, "fp32", folder / "artifact", no_gates=True).path

    return made_once(tmp_path_factory, "pycode-scored", compile)
