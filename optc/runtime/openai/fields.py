"""Fields of OpenAI's requests that ask for nothing, and those that are for the chat template.

Clients send many fields with the value that means "off". Fields are those of OpenAI's schema of
completions and chat completions, and those that vLLM's server adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optc.errors import InputError

#: Without meaning for an answer, whatever they are.
_IGNORED = frozenset(
    {
        "metadata",
        "model",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "request_id",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "user",
    }
)
#: Values that ask for nothing.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "add_generation_prompt": (True,),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": ("",),
    "continue_final_message": (False,),
    "detokenize": (True,),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "guided_choice": ([],),
    "guided_grammar": ("",),
    "guided_json": ({}, ""),
    "guided_regex": ("",),
    "include_reasoning": (True,),
    "include_stop_str_in_output": (False,),
    "kv_transfer_params": ({},),
    "logits_processors": ([],),
    "logprobs": (False,),
    "min_tokens": (0,),
    "mm_processor_kwargs": ({},),
    "modalities": (["text"], []),
    "num_beams": (1,),
    "priority": (0,),
    "prompt_logprobs": (0,),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "seed": (-1,),
    "spaces_between_special_tokens": (True,),
    "stop": ("", []),
    "stop_token_ids": ([],),
    "stream": (False,),
    "structural_tag": ("",),
    "structured_outputs": ({},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "top_logprobs": (0,),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
}
#: Variables of the chat template that are fields of their own.
_VARIABLES = (
    "add_generation_prompt",
    "continue_final_message",
    "documents",
    "reasoning_effort",
    "tools",
)
_MORE_VARIABLES = "chat_template_kwargs"
#: OpenAI's names of parameters that are called otherwise here.
RENAMED = {"max_completion_tokens": "max_tokens"}


def asked(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a body that ask for something."""
    found = {
        name: value
        for name, value in body.items()
        if value is not None and name not in _IGNORED and not _is_neutral(name, value)
    }
    if found.get("best_of") == (body.get("n") or 1):
        found.pop("best_of", None)
    if "max_completion_tokens" in found:  # the older name is for servers that do not know it
        found.pop("max_tokens", None)
    if "logprobs" not in found:
        found.pop("top_logprobs", None)
    if found.get("top_p") == 0:  # of no probability: the likeliest token alone
        found |= {"top_p": 1.0, "top_k": 1}
    if body.get("tool_choice") == "none" or found.get("tools") == []:
        found.pop("tools", None)
    return found


def _is_neutral(name: str, value: object) -> bool:
    """As `NEUTRAL` says, where 0 is not False."""
    return any(type(value) is type(one) and value == one for one in NEUTRAL.get(name, ()))


def take_variables(fields: dict[str, Any]) -> dict[str, Any]:
    """The variables of the chat template, which are taken out of ``fields``.

    Raises:
        InputError: They are no mapping.
    """
    more = fields.pop(_MORE_VARIABLES, None) or {}
    if not isinstance(more, Mapping):
        raise InputError("not an object", where=_MORE_VARIABLES, hint='{"enable_thinking": false}')
    named = {name: fields.pop(name) for name in _VARIABLES if name in fields}
    return {**named, **more}


def with_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values whose ``logit_bias`` has token ids as keys: JSON has no keys that are numbers."""
    biases = values.get("logit_bias")
    if not isinstance(biases, Mapping):
        return dict(values)
    numbers = {int(key) if key.isdecimal() else key: bias for key, bias in biases.items()}
    return {**values, "logit_bias": numbers}


def take_logprobs(changes: dict[str, Any], *, chat: bool) -> dict[str, Any]:
    """The sampling parameters of what asks for log-probabilities, taken out of ``changes``.

    Raises:
        InputError: They are of another type.
    """
    if chat:
        wanted, count = changes.pop("logprobs", False), changes.pop("top_logprobs", 0)
        if wanted is not False and wanted is not True:
            raise InputError("neither true nor false", where="logprobs", hint="and top_logprobs: 5")
        return {"logprobs": count} if wanted else {}
    echo = changes.pop("echo", False)
    if echo is not False and echo is not True:
        raise InputError("neither true nor false", where="echo")
    if not echo or (changes.get("logprobs") is None and changes.get("max_tokens") != 0):
        return {}
    return {"prompt_logprobs": changes.get("logprobs") or 0}
