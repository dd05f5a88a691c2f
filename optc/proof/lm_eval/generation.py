"""The demands of lm-eval's tasks on a generation, as sampling parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optc.errors import InputError
from optc.runtime.params import SamplingParams

#: Options of tasks that are called the same here.
_SAME = frozenset(
    {
        "frequency_penalty",
        "ignore_eos",
        "min_p",
        "presence_penalty",
        "repetition_penalty",
        "seed",
        "skip_special_tokens",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
    }
)
#: Values that ask for nothing.
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "early_stopping": (False, True),
    "length_penalty": (1, 1.0),
    "num_beams": (1,),
    "num_return_sequences": (1,),
    "use_cache": (True,),
}


def params_of(options: Mapping[str, Any], seed: int) -> SamplingParams:
    """The sampling parameters of a request.

    Args:
        options: As lm-eval normalizes them: ``until``, ``max_gen_toks``, ``do_sample`` and
            ``temperature`` are there.
        seed: Of the noise, where the task states none.

    Raises:
        InputError: The task asks for something that optc does not do.
        RequestError: A value is out of its range.
    """
    left = {
        name: value
        for name, value in options.items()
        if value is not None and value not in _NEUTRAL.get(name, ())
    }
    stop = [text for text in left.pop("until", ()) if text]
    tokens = left.pop("max_gen_toks")
    sampled = left.pop("do_sample")
    unknown = sorted(left.keys() - _SAME)
    if unknown:
        raise InputError(
            f"the task asks for {', '.join(unknown)}",
            where="generation_kwargs",
            hint=f"followed are until, max_gen_toks, do_sample, {', '.join(sorted(_SAME))}",
        )
    if not sampled:
        left["temperature"] = 0.0
    return SamplingParams(max_tokens=tokens, stop=stop, **{"seed": seed, **left})
