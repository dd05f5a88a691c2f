"""Requests of ``/v1/completions``, as the engine takes them."""

from __future__ import annotations

from typing import Any

from optc.runtime.openai.fields import take_logprobs
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.requests.prompts import Prompt
from optc.serve.asking.asked import Asked, Asker
from optc.serve.asking.read_body import validated
from optc.serve.asking.sampling import check_completions, fields_of, take_terms
from optc.serve.bodies.completion import CompletionBody
from optc.serve.models import ModelTable
from optc.serve.settings import Limits


def ask_completion(body: dict[str, Any], models: ModelTable, asker: Asker, limits: Limits) -> Asked:
    """Read a body.

    Raises:
        APIError, OptcError: It is wrong, or asks for too much.
    """
    validated(CompletionBody, body)
    model = models.find(body.get("model"))
    fields = fields_of(body)
    prompts = _listed(fields.pop("prompt", ""))
    echo = bool(fields.get("echo"))
    terms = take_terms(fields, body, model, asker, limits, **take_logprobs(fields, chat=False))
    check_completions(len(prompts), terms.params.n, limits)
    requests = [GenerationRequest(one, terms.params, **terms.served) for one in prompts]
    return Asked(
        model,
        tuple(requests),
        terms.params.n,
        terms.stream,
        terms.usage,
        terms.token_ids,
        terms.unknown,
        echo=echo,
    )


def _listed(prompt: Any) -> list[Prompt]:
    """The prompts, of which there may be one: a text, or a list of token ids."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        return prompt
    return [prompt]
