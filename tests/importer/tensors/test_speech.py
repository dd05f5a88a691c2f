"""Folders of models of speech: what they state, and what they lack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optc.errors import InputError, UnsupportedError
from optc.importer.tensors.speech import import_speech
from optc.system.sources.speech_folder import may_transcribe
from tests.compiling.speech.whisper import (
    DE,
    EN,
    NO_SPEECH,
    NO_TIMES,
    TRANSCRIBE,
    TRANSLATE,
    whisper,
)


def change(file: Path, **values: Any) -> None:
    stated = json.loads(file.read_text())
    file.write_text(json.dumps({**stated, **values}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return whisper(tmp_path / "w")


def test_conventions_come_from_the_names_of_tokens_where_nothing_states_them(folder: Path) -> None:
    file = folder / "generation_config.json"
    stated = json.loads(file.read_text())
    for key in ("lang_to_id", "task_to_id", "no_timestamps_token_id"):
        del stated[key]
    file.write_text(json.dumps(stated))
    found = import_speech(folder).conventions
    assert found.languages == {"en": EN, "de": DE}
    assert found.tasks == {"transcribe": TRANSCRIBE, "translate": TRANSLATE}
    assert (found.no_timestamps, found.no_speech) == (NO_TIMES, NO_SPEECH)
    assert found.precision == 0.02
    assert found.layers == 2


def test_a_model_of_one_language(folder: Path) -> None:
    change(folder / "generation_config.json", is_multilingual=False)
    found = import_speech(folder).conventions
    assert not found.languages
    assert found.prompt(found.language("en"), "transcribe", timestamps=False)[1:] == [NO_TIMES]


def test_folders_are_told_by_their_config(folder: Path, tmp_path: Path) -> None:
    assert may_transcribe(folder)
    assert not may_transcribe(tmp_path)
    change(folder / "config.json", is_encoder_decoder=False)
    assert not may_transcribe(folder)
    (folder / "config.json").write_text("no JSON")
    assert not may_transcribe(folder)


def test_what_cannot_be_imported(folder: Path) -> None:
    preprocessor = folder / "preprocessor_config.json"
    change(preprocessor, feature_size=20)
    with pytest.raises(InputError, match="features have 20 rows, and the model takes 16"):
        import_speech(folder)
    change(preprocessor, feature_size="many")
    with pytest.raises(InputError, match="mels: expected 'int', got 'str'"):
        import_speech(folder)
    change(preprocessor, feature_extractor_type="OtherExtractor")
    with pytest.raises(UnsupportedError, match="features are those of OtherExtractor"):
        import_speech(folder)
    preprocessor.unlink()
    with pytest.raises(InputError, match=r"no preprocessor_config\.json"):
        import_speech(folder)


def test_a_tokenizer_that_is_none(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="is no tokenizer"):
        import_speech(folder)
