from __future__ import annotations

from pathlib import Path

from optc.artifact.choose import Choice, Rejected
from optc.runtime.engine_info import EngineInfo
from tests.runtime.support.artifacts import write_artifact


def test_it_names_what_was_chosen_and_the_reasons_against_others(tmp_path: Path) -> None:
    entry = write_artifact(tmp_path / "toy").manifest.engines[0]
    info = EngineInfo.of(tmp_path / "toy", Choice(entry, (Rejected("other", "too large"),)))
    assert info == EngineInfo(
        tmp_path / "toy", "target", "toy", "any", (Rejected("other", "too large"),)
    )
    assert info.to_json() == {
        "name": "target",
        "backend": "toy",
        "target": "any",
        "rejected": [{"name": "other", "reason": "too large"}],
    }
    assert str(info) == f"'{tmp_path / 'toy'}': target (toy for any)"
