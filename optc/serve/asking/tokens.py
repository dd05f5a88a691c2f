"""Requests of ``/inference/v1/generate``, as the engine takes them."""

from __future__ import annotations

from typing import Any

from optc.serve.api_errors import APIError
from optc.serve.asking.asked import Asked, Asker
from optc.serve.asking.completion import ask_completion
from optc.serve.asking.read_body import validated
from optc.serve.bodies.generate import GenerateBody
from optc.serve.models import ModelTable
from optc.serve.settings import Limits

#: Of completions, which are texts.
_OF_TEXTS = ("prompt", "echo", "suffix")


def ask_tokens(body: dict[str, Any], models: ModelTable, asker: Asker, limits: Limits) -> Asked:
    """Read a body.

    Raises:
        APIError, OptcError: It is wrong, or asks for too much.
    """
    validated(GenerateBody, body)
    params = body.get("sampling_params") or {}
    for name in _OF_TEXTS:
        if name in body or name in params:
            raise APIError(400, f"{name} is not supported here: use /v1/completions", name)
    others = {name: v for name, v in body.items() if name not in ("token_ids", "sampling_params")}
    flat = {**params, **others, "prompt": body["token_ids"]}
    return ask_completion(flat, models, asker, limits)
