"""Fields of requests that are followed, and those that are known and cannot be."""

from __future__ import annotations

from collections.abc import Mapping

from optc.runtime.params import SamplingParams
from optc.system.options.option import options_of

#: Those of `SamplingParams` that only files of requests may hold.
_NOT_SERVED = frozenset({"beam_width", "length_penalty", "early_stopping"})
#: Sampling parameters of a request, by their names here.
SAMPLING = frozenset(options_of(SamplingParams)) - _NOT_SERVED

_STRUCTURED = "use structured_outputs"
#: Known fields that cannot be followed, and what to do instead. Those that ask for nothing are
#: gone before (`optc.runtime.openai.fields.asked`).
REFUSED: Mapping[str, str] = {
    "allowed_token_ids": "forbid tokens by logit_bias",
    "audio": "texts are the only answers",
    "bad_words": "forbid tokens by logit_bias",
    "beam_width": "optc run has beam search",
    "best_of": "use n",
    "chat_template": "the model's own template is used",
    "early_stopping": "optc run has beam search",
    "function_call": "use tool_choice",
    "functions": "use tools",
    "guided_choice": _STRUCTURED,
    "guided_grammar": _STRUCTURED,
    "guided_json": _STRUCTURED,
    "guided_regex": _STRUCTURED,
    "include_stop_str_in_output": "leave it out",
    "kv_transfer_params": "leave it out",
    "length_penalty": "optc run has beam search",
    "logits_processors": "leave it out",
    "logprob_token_ids": "use logprobs",
    "min_tokens": "leave it out",
    "modalities": "texts are the only answers",
    "prediction": "leave it out",
    "return_tokens_as_token_ids": "leave it out",
    "spaces_between_special_tokens": "leave it out",
    "structural_tag": _STRUCTURED,
    "suffix": "leave it out",
    "thinking_token_budget": "leave it out",
    "truncate_prompt_tokens": "shorten the prompt",
    "use_beam_search": "optc run has beam search",
    "verbosity": "say so in a message",
    "web_search_options": "leave it out",
}
