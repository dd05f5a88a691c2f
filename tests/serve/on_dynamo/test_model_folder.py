"""The files by which Dynamo's frontend encodes: those of Hugging Face, without weights."""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers

from optc.serve.on_dynamo.model_folder import write_model_folder
from tests.serve.toys import TEMPLATE, toy_engine


def test_the_frontend_finds_tokenizer_template_and_sizes(tmp_path: Path) -> None:
    with toy_engine() as engine:
        write_model_folder(engine, tmp_path)
        assert engine.tokenizer is not None
        backend = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        assert backend.encode("hi").ids == engine.tokenizer.backend.encode("hi").ids
        config = json.loads((tmp_path / "config.json").read_text())
        assert config["max_position_embeddings"] == engine.max_context
        assert config["eos_token_id"] == list(engine.eos_token_ids)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert settings["chat_template"] == TEMPLATE
    assert (tmp_path / "generation_config.json").exists()


def test_a_model_without_a_template_has_none(tmp_path: Path) -> None:
    with toy_engine(template="") as engine:
        write_model_folder(engine, tmp_path)
    assert "chat_template" not in json.loads((tmp_path / "tokenizer_config.json").read_text())
