"""The longest sequence that a model is right for, by the names that configurations have for it."""

from __future__ import annotations

from pathlib import Path

from transformers import PretrainedConfig

from optc.errors import InputError
from optc.importer.capturing.recurrences import has_known
from optc.importer.text_model.rope import lengthened

#: The first that a configuration has is the model's own.
_NAMES = (
    "max_position_embeddings",
    "max_seq_len",
    "seq_length",
    "n_positions",
    "max_sequence_length",
    "model_max_length",
)


#: Of models that state no length and have nothing that ends: their states take no more room.
UNLIMITED = 1 << 17


def _only_states(config: PretrainedConfig) -> bool:
    """True if every layer carries a state, and none attends."""
    return getattr(config, "num_attention_heads", None) is None and has_known(config)


def read_context(config: PretrainedConfig, folder: Path, *, scaled: bool = True) -> int:
    """Longest sequence in tokens.

    Args:
        config: The decoder's.
        folder: The model's.
        scaled: Behind a rotary scaling; without it what the configuration calls the length.

    Raises:
        InputError: The configuration of the model in ``folder`` does not say.
    """
    text = config.get_text_config()
    stated = {name: getattr(text, name, None) for name in _NAMES}
    tokens = next((value for value in stated.values() if value is not None), None)
    if tokens is None and _only_states(text):
        return UNLIMITED
    if not isinstance(tokens, int) or tokens < 1:
        raise InputError(
            "max_position_embeddings is missing: how long may a sequence be?",
            where=str(folder / "config.json"),
            hint='add "max_position_embeddings": the number of tokens that it was trained for',
        )
    rope = getattr(text, "rope_parameters", None)
    return lengthened(tokens, rope) if scaled else tokens
