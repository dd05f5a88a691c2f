"""Settings of generation that a folder of an encoder-decoder of text states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optc.errors import InputError

#: Settings that are followed.
_FOLLOWED = frozenset(
    {
        *("decoder_start_token_id", "bos_token_id", "eos_token_id", "forced_bos_token_id"),
        *("forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "bad_words_ids"),
        *("min_length", "min_new_tokens", "no_repeat_ngram_size", "repetition_penalty"),
        *("max_length", "max_new_tokens"),
    }
)
#: Settings that do not change which token is the likeliest, or that matter to beams or draws alone,
#: of which `num_beams` and `do_sample` are told.
_MOOT = frozenset(
    {
        *("pad_token_id", "transformers_version", "_from_model_config", "use_cache"),
        *("return_dict_in_generate", "output_attentions", "output_hidden_states", "output_scores"),
        *("output_logits", "length_penalty", "early_stopping", "temperature", "top_k", "top_p"),
        *("typical_p", "epsilon_cutoff", "eta_cutoff", "min_p", "top_h", "num_return_sequences"),
        *("num_beam_groups", "diversity_penalty", "renormalize_logits", "remove_invalid_values"),
        *("cache_implementation", "disable_compile", "compile_config"),
    }
)
#: Tokens of a text where nothing is stated, its end among them.
_USUAL_TOKENS = 256
#: Values by which settings say that they do nothing.
_NOTHING: tuple[object, ...] = (None, False, 0, 1, 1.0, [], {})


def text_settings(model: Any, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Fields of `optc.runtime.text_to_text.conventions.TextConventions`, and what is not followed.

    Args:
        model: Of transformers, which resolves generation_config.json and config.json.
        folder: For messages.

    Raises:
        InputError: Nothing states the token that the decoder starts with.
    """
    stated: Mapping[str, Any] = model.generation_config.to_diff_dict()
    warnings = [
        f"the setting {name} of generation_config.json is not followed: each token is the "
        "likeliest one"
        for name, value in sorted(stated.items())
        if name not in _FOLLOWED | _MOOT and value not in _NOTHING
    ]
    names = ("decoder_start_token_id", "bos_token_id")
    places = (stated, model.config.to_dict())
    starts = (place.get(name) for name in names for place in places)
    start = next((one for one in starts if isinstance(one, int)), None)
    if start is None:
        raise InputError(
            "nothing states the token that its decoder starts with",
            where=str(folder),
            hint="decoder_start_token_id in generation_config.json does",
        )
    words = stated.get("bad_words_ids") or []
    if any(len(one) != 1 for one in words):
        warnings.append("bad_words_ids of several tokens are not followed")
    single = [one[0] for one in words if len(one) == 1]
    suppressed = {*(stated.get("suppress_tokens") or ()), *single}
    ends = _listed(stated.get("eos_token_id"))
    length = stated.get("max_length")
    most = stated.get("max_new_tokens") or (length - 1 if length else _USUAL_TOKENS)
    return {
        "start": start,
        "ends": ends,
        "first": stated.get("forced_bos_token_id"),
        "last": next(iter(_listed(stated.get("forced_eos_token_id"))), None),
        "suppressed": sorted(suppressed),
        "suppressed_first": sorted(stated.get("begin_suppress_tokens") or ()),
        "least_length": stated.get("min_length") or 0,
        "least_tokens": stated.get("min_new_tokens") or 0,
        "no_repeat": stated.get("no_repeat_ngram_size") or 0,
        "repetition_penalty": float(stated.get("repetition_penalty") or 1),
        "most_tokens": most,
    }, warnings


def _listed(tokens: Any) -> list[int]:
    if tokens is None:
        return []
    return list(tokens) if isinstance(tokens, list | tuple) else [tokens]
