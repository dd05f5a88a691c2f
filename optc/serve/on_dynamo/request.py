"""`read_request`: a request of Dynamo's frontend, as the engine takes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from optc.errors import RequestError
from optc.runtime.openai.fields import with_numbers
from optc.runtime.params import SamplingParams
from optc.runtime.requests.generation_request import GenerationRequest

_SEEDS = 1 << 64
#: Options whose names and meanings are `SamplingParams`'s.
_SAMPLING = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "seed",
        "logit_bias",
    }
)
_STOPPING = frozenset({"max_tokens", "ignore_eos"})
_STRUCTURES = {"json": "json_schema", "regex": "regex", "grammar": "grammar", "choice": "choice"}
#: Fields that ask for nothing where they are 1: the frontend ends a stream with the first text that
#: ends, so that several would be cut.
_ONES = frozenset({"n", "best_of", "length_penalty"})
#: Fields that ask for nothing here: the frontend cuts texts at stop strings and decodes tokens.
_FRONTENDS = frozenset(
    {"stop", "skip_special_tokens", "formatted_prompt", "return_tokens_as_token_ids"}
)


def read_request(
    request: Mapping[str, Any], adapters: Collection[str] = (), begin: int | None = None
) -> GenerationRequest:
    """Read a ``PreprocessedRequest`` (Dynamo 1.6).

    Args:
        request: With ``token_ids``, ``sampling_options``, ``stop_conditions``, ``output_options``.
        adapters: Names of LoRA adapters that ``model`` may be.
        begin: The token that the model wants at the start. The frontend encodes texts without it,
            and chats with what their template says. None is none.

    Raises:
        RequestError: A field asks for what the engine has not, or a value is out of its range.
    """
    sampling, stopping = _stated(request, "sampling_options"), _stated(request, "stop_conditions")
    shown = _stated(request, "output_options")
    changes = _structure(sampling.pop("guided_decoding", None))
    changes |= _taken(sampling, _SAMPLING) | _taken(stopping, _STOPPING)
    if "seed" in changes:
        changes["seed"] = int(changes["seed"]) % _SEEDS  # signed there
    changes = with_numbers(changes)
    ends = [*stopping.pop("stop_token_ids", ()), *stopping.pop("stop_token_ids_hidden", ())]
    if ends:
        changes["stop_token_ids"] = tuple(dict.fromkeys(ends))
    changes |= _taken(shown, {"logprobs"})
    changes.setdefault("max_tokens", None)  # as many as the context holds
    for part, rest in (
        ("sampling_options", sampling),
        ("stop_conditions", stopping),
        ("output_options", shown),
    ):
        _refuse(part, rest)
    model, tokens = request.get("model"), [int(token) for token in request["token_ids"]]
    return GenerationRequest(
        tokens if begin is None or tokens[:1] == [begin] else [begin, *tokens],
        SamplingParams(**changes),
        adapter=model if model in adapters else None,
    )


def _stated(request: Mapping[str, Any], part: str) -> dict[str, Any]:
    """The fields of a part that say something."""
    return {name: value for name, value in (request.get(part) or {}).items() if value is not None}


def _taken(fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: fields.pop(name) for name in tuple(fields) if name in names}


def _structure(guided: Mapping[str, Any] | None) -> dict[str, Any]:
    """Structured output, from Dynamo's ``guided_decoding``."""
    stated = {name: value for name, value in (guided or {}).items() if value not in (None, [], "")}
    stated.pop("backend", None)  # there is one
    _refuse("guided_decoding", {k: v for k, v in stated.items() if k not in _STRUCTURES})
    return {_STRUCTURES[name]: value for name, value in stated.items()}


def _refuse(part: str, rest: Mapping[str, Any]) -> None:
    """Refuse what is left, but for values that change nothing."""
    for name, value in rest.items():
        changes = value not in (False, 0, 0.0, [], {}, "")
        if name in _ONES:
            changes = value != 1
        if changes and name not in _FRONTENDS:
            raise RequestError(
                f"{name} is not supported", where=f"{part}.{name}", hint="leave it out"
            )
