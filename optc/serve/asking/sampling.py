"""Sampling parameters and terms of a request, from the fields of its body."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optc.runtime.openai.fields import RENAMED, asked, with_numbers
from optc.runtime.openai.names import REFUSED, SAMPLING
from optc.runtime.openai.structures import take_structure
from optc.runtime.params import SamplingParams
from optc.serve.api_errors import APIError
from optc.serve.asking.asked import Asker, Usage
from optc.serve.models import ServedModel
from optc.serve.settings import Limits

_SEEDS = 1 << 64
#: Values with which fields of beam search, which files of requests may ask for, ask for none.
_NO_BEAMS: Mapping[str, object] = {"beam_width": 1, "early_stopping": False, "length_penalty": 1}


@dataclass(frozen=True)
class Terms:
    """The settings of a body besides its prompt.

    Attributes:
        params: How a text is continued.
        served: Keywords of `GenerationRequest`.
        stream: Answer by a stream.
        usage: Where the stream says how many tokens it took.
        token_ids: Give the tokens beside their text.
        unknown: Names of fields that nobody knows.
    """

    params: SamplingParams
    served: Mapping[str, Any]
    stream: bool
    usage: Usage
    token_ids: bool
    unknown: tuple[str, ...]


def fields_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a body that ask for something, by the names of parameters here.

    Raises:
        APIError: One is known and cannot be followed.
    """
    fields = {RENAMED.get(name, name): value for name, value in asked(body).items()}
    for name, off in _NO_BEAMS.items():
        if fields.get(name) == off:
            del fields[name]
    for name in fields:
        if name in REFUSED:
            raise APIError(400, f"{name} is not supported: {REFUSED[name]}", name)
    return fields


def take_terms(
    fields: dict[str, Any],
    body: Mapping[str, Any],
    model: ServedModel,
    asker: Asker,
    limits: Limits,
    **more: Any,
) -> Terms:
    """The settings in ``fields`` besides the prompt; all of them are taken out.

    Args:
        fields: As of `fields_of`, without those that are for prompts alone.
        body: The whole one.
        model: Who answers.
        asker: Who asks.
        limits: What may be asked for.
        **more: Sampling parameters that follow from the kind of request; None is not stated.

    Raises:
        APIError: It asks for more than is allowed.
        OptcError: A value is out of its range.
    """
    stream = bool(fields.pop("stream", False))
    if stream and ("prompt_logprobs" in fields or more.get("prompt_logprobs") is not None):
        name = "prompt_logprobs" if "prompt_logprobs" in fields else "echo"
        raise APIError(400, "log-probabilities of prompts do not stream: leave stream out", name)
    usage = _usage(body.get("stream_options"), stream)
    served = {
        "salt": _salt(asker.salt, fields.pop("cache_salt", "")),
        "priority": -fields.pop("priority", 0),  # lower goes first in the API
        "adapter": model.adapter,
        "deadline_s": fields.pop("deadline_s", None),
    }
    token_ids = bool(fields.pop("return_token_ids", False))
    changes = {name: fields.pop(name) for name in tuple(fields) if name in SAMPLING}
    changes |= take_structure(fields) | {k: v for k, v in more.items() if v is not None}
    params = _limited(SamplingParams(**_in_range(with_numbers(changes))), model, limits)
    return Terms(params, served, stream, usage, token_ids, tuple(fields))


def check_completions(prompts: int, n: int, limits: Limits) -> None:
    """Refuse more texts than one request may ask for.

    Raises:
        APIError: There are more.
    """
    if prompts > limits.prompts:
        message = f"{prompts} prompts; at most {limits.prompts} are allowed"
        raise APIError(400, message, "prompt")
    if prompts * n > limits.completions:
        message = f"{prompts * n} texts; at most {limits.completions} are allowed"
        raise APIError(400, message, "n")


def _in_range(changes: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's seeds are 64 bits with a sign."""
    seed = changes.get("seed")
    if isinstance(seed, int) and -_SEEDS // 2 <= seed < 0:
        return {**changes, "seed": seed % _SEEDS}
    return changes


def _limited(params: SamplingParams, model: ServedModel, limits: Limits) -> SamplingParams:
    """The parameters with at most as many tokens as are allowed."""
    most = limits.new_tokens
    if most is None:
        return params
    stated = "max_tokens" in params.stated and params.max_tokens is not None
    if stated and int(params.max_tokens or 0) > most:
        message = f"max_tokens={params.max_tokens}; at most {most} are allowed"
        raise APIError(400, message, "max_tokens")
    wanted = params.with_defaults(model.engine.defaults).max_tokens
    return params.changed(max_tokens=most if wanted is None else min(wanted, most))


def _usage(options: object, stream: bool) -> Usage:
    if not isinstance(options, Mapping) or not options.get("include_usage"):
        return "none"
    if not stream:
        raise APIError(400, "stream_options are for streams: set stream", "stream_options")
    return "each" if options.get("continuous_usage_stats") else "last"


def _salt(own: str, given: str) -> str:
    """A salt that no other asker can have, whatever they call theirs."""
    if not own:
        return given
    return hashlib.sha256(f"{own}\0{given}".encode()).hexdigest()
