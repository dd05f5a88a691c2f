"""A model's own settings of generation: defaults of the artifact, or warnings.

transformers follows generation_config.json, or config.json where there is none. What optc has too
becomes the artifact's default; whatever else would change a text is named.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from optc.errors import RequestError
from optc.importer.json_file import read_object
from optc.importer.text_model.stated import stated
from optc.runtime.params import SamplingParams

if TYPE_CHECKING:
    from optc.importer.imported import ImportedModel

FILE = "generation_config.json"
#: Keys that are followed, with the names of `SamplingParams`.
FOLLOWED = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repetition_penalty": "repetition_penalty",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "max_new_tokens": "max_tokens",
    "stop_strings": "stop",
}
#: Other keys that change what is generated, with values that mean "off".
OTHERS: dict[str, tuple[object, ...]] = {
    "assistant_early_exit": (),
    "bad_words_ids": ([],),
    "begin_suppress_tokens": ([],),
    "constraints": ([],),
    "diversity_penalty": (0,),
    "dola_layers": (),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "guidance_scale": (1,),
    "max_time": (),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "no_repeat_ngram_size": (0,),
    "num_beam_groups": (1,),
    "num_beams": (1,),
    "num_return_sequences": (1,),
    "penalty_alpha": (0,),
    "sequence_bias": ({}, []),
    "suppress_tokens": ([],),
    "token_healing": (False,),
    "top_h": (),
    "watermarking_config": (),
}
#: The ``max_length`` that transformers writes where nobody has said it.
_DEFAULT_LENGTH = 20
#: In config.json these are sizes of the model in some families.
_OF_MODELS = frozenset({"top_k"})


class GenerationSettings(NamedTuple):
    """A model's settings of generation.

    Attributes:
        defaults: Those that are followed, as values of `SamplingParams`.
        warnings: One sentence for all that are not.
    """

    defaults: dict[str, Any]
    warnings: tuple[str, ...]


def generation_settings(imported: ImportedModel) -> GenerationSettings:
    """The settings of a model.

    Raises:
        InputError: The file is damaged.
    """
    file = next((one for one in imported.tokenizer_files if one.name == FILE), None)
    given, where = _given(file, imported.config), FILE if file else "config.json"
    defaults = {}
    left = {k: v for k, v in given.items() if k in OTHERS and v not in (None, *OTHERS[k])}
    for key, name in FOLLOWED.items():
        if given.get(key) is not None:
            try:
                params = SamplingParams(**{name: given[key]})
            except RequestError:
                left[key] = given[key]
            else:
                if getattr(params, name) != getattr(SamplingParams(), name):
                    defaults[name] = given[key]
    if given.get("do_sample") is False:
        defaults["temperature"] = 0.0
    length = given.get("max_length")
    if isinstance(length, int) and _DEFAULT_LENGTH != length < imported.max_context:
        left["max_length"] = length
    if not left:
        return GenerationSettings(defaults, ())
    listed = ", ".join(f"{key}={value!r}" for key, value in sorted(left.items()))
    return GenerationSettings(defaults, (f"settings of {where} are not followed: {listed[:500]}",))


def _given(file: Path | None, config: dict[str, Any]) -> dict[str, Any]:
    if file is not None:
        return read_object(file)
    return {key: value for key, value in stated(config).items() if key not in _OF_MODELS}
