"""A model's folder with a tokenizer of a token a letter, and a text of random letters."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np


def letters_folder(folder: Path, letters: int = 9000) -> Path:
    """``folder`` with tokenizer.json, config.json and text.txt."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {chr(97 + i): i for i in range(26)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary | {"?": 26}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"bos_token_id": 30, "eos_token_id": [31]}))
    drawn = np.random.default_rng(0).integers(0, 26, letters)
    (folder / "text.txt").write_text("".join(chr(97 + i) for i in drawn))
    return folder


def begin_texts(folder: Path, token: str, number: int) -> None:
    """Let the tokenizer of ``folder`` put a token before each text of its own accord."""
    from tokenizers import Tokenizer, processors

    file = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(file)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", special_tokens=[(token, number)]
    )
    tokenizer.save(file)
