from __future__ import annotations

from pathlib import Path

import pytest

import optc
from optc.compiling.speech import compile as compiling
from optc.importer.tensors.speech import import_speech
from tests.compiling.speech.whisper import sound, whisper
from tests.support.cost.imported_once import import_once


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whisper(tmp_path_factory.mktemp("whisper") / "tiny-whisper")


@pytest.fixture(scope="session", autouse=True)
def imported_once() -> None:
    import_once(pytest.MonkeyPatch(), compiling, import_speech)


@pytest.fixture(scope="session")
def artifact(folder: Path, imported_once: None) -> Path:
    sounds = [sound(seconds, seed) for seed, seconds in enumerate((0.3, 1.0, 1.9, 2.0, 0.7))]
    return optc.compile(folder, output=folder.parent / "a", inputs=sounds).path
