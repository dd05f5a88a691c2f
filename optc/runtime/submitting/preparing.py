"""From the arguments of `optc.runtime.engine.Engine.generate` to submissions, one a prompt."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Literal

from optc.errors import RequestError, RequestTypeError
from optc.runtime.checks import shown
from optc.runtime.keywords import RequestTerms
from optc.runtime.outputs import Completion, RequestOutput
from optc.runtime.params import SamplingParams
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.requests.prompts import Chat, Prompt
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.scoring.score import SCORED
from optc.runtime.submitting.input_processor import InputProcessor
from optc.runtime.submitting.submission import Submission

#: What becomes of an invalid request: it raises, or its result says so.
OnError = Literal["raise", "return"]


def listed(prompts: str | Chat | Sequence[Prompt]) -> list[Prompt]:
    """The prompts, of which there may be one.

    Raises:
        RequestTypeError: They are no list.
    """
    if isinstance(prompts, str | Chat):
        return [prompts]
    if isinstance(prompts, Iterable):
        return list(prompts)
    raise RequestTypeError(f"prompts are a text or a list, not {shown(prompts)}", where="prompts")


def params_for(
    count: int, params: SamplingParams | Sequence[SamplingParams] | None
) -> list[SamplingParams]:
    """Sampling parameters for each of ``count`` prompts.

    Raises:
        RequestError: There are more or fewer.
        RequestTypeError: They are no list.
    """
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if not isinstance(params, Sequence) or isinstance(params, str):
        raise RequestTypeError(
            f"sampling parameters are an optc.SamplingParams, not {shown(params)}",
            where="params",
            hint="one for all prompts, or a list with one for each",
        )
    each = list(params)
    if len(each) != count:
        raise RequestError(
            f"{len(each)} sampling parameters for {count} prompts",
            where="params",
            hint="give one for all, or one for each",
        )
    return each


def prepare_all(
    intake: InputProcessor, requests: Sequence[GenerationRequest], on_error: OnError
) -> list[Submission | RequestOutput]:
    """A submission of each request, or the result of one that is invalid.

    Raises:
        RequestError: A request is invalid and ``on_error`` is ``raise``; says which one.
        RequestTypeError: A prompt or parameters are of a wrong type.
    """
    if on_error not in ("raise", "return"):
        raise RequestError(
            f"{shown(on_error)} is not known", where="on_error", hint="'raise' or 'return'"
        )
    prepared: list[Submission | RequestOutput] = []
    try:
        for index, request in enumerate(requests):
            arrived_s = time.perf_counter()
            try:
                prepared.append(intake.submission(request))
            except RequestError as error:
                if on_error == "raise" or isinstance(error, RequestTypeError):
                    if len(requests) == 1:
                        raise
                    raise _of_prompt(error, index) from error
                prepared.append(_failed(error, arrived_s))
    except BaseException:
        for entry in prepared:
            if isinstance(entry, Submission):
                intake.discard(entry)
        raise
    return prepared


def scored_requests(
    intake: InputProcessor,
    pairs: Sequence[tuple[Prompt, str | Sequence[int]]],
    terms: RequestTerms,
) -> list[GenerationRequest]:
    """Requests that score the continuations of ``pairs`` behind their contexts.

    Raises:
        RequestError: A context or a continuation is invalid; says of which pair.
        RequestTypeError: One is of a wrong type, or they are no pairs.
    """
    requests: list[GenerationRequest] = []
    for index, pair in enumerate(pairs):
        given: object = pair
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise RequestTypeError(
                f"{shown(pair)} is no context with its continuation", where=f"pairs[{index}]"
            )
        context, continuation = pair
        try:
            ids, count = intake.pair(context, continuation, terms.get("parse_special", False))
        except RequestError as error:
            raise error if len(pairs) == 1 else _of_prompt(error, index, "pairs") from error
        served: RequestTerms = {**terms, "scored_from": count}
        requests.append(GenerationRequest(ids, SCORED, **served))
    return requests


def _of_prompt(error: RequestError, index: int, of: str = "prompts") -> RequestError:
    """The error with the number of its prompt."""
    rest = "" if error.where in ("", "prompt") else f", {error.where}"
    return type(error)(error.message, where=f"{of}[{index}]{rest}", hint=error.hint)


def _failed(error: RequestError, arrived_s: float) -> RequestOutput:
    failed = Completion(0, "", (), "error", None, RequestMetrics(arrived_s), error)
    return RequestOutput((), (failed,))
