"""The longest sequence, by whatever name a configuration has for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers

from optc.errors import InputError
from optc.importer.text_model.context import UNLIMITED, read_context


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        (transformers.LlamaConfig(max_position_embeddings=77), 77),
        (transformers.GPT2Config(n_positions=88), 88),
        (transformers.MptConfig(max_seq_len=99), 99),
        (transformers.BloomConfig(seq_length=66), 66),
        # nothing in them ends, and some state a length all the same
        (transformers.MambaConfig(), UNLIMITED),
        (transformers.Mamba2Config(), UNLIMITED),
        (transformers.MambaConfig(max_position_embeddings=55), 55),
    ],
)
def test_names_of_families(config: transformers.PretrainedConfig, tokens: int) -> None:
    assert read_context(config, Path("model")) == tokens


@pytest.mark.parametrize("stated", [{}, {"seq_length": "many"}, {"seq_length": 0}])
def test_without_any_the_hint_says_what_to_add(stated: dict[str, object]) -> None:
    config = transformers.PretrainedConfig()
    for name, value in stated.items():
        setattr(config, name, value)
    with pytest.raises(InputError, match="how long may a sequence be") as caught:
        read_context(config, Path("model"))
    assert caught.value.where == "model/config.json"
    assert 'add "max_position_embeddings"' in caught.value.hint
