"""Requests outside of an engine, for tests of what works on one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optc.runtime.kv.kv_blocks import BlockTables
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.text.detokenize import Detokenizer, TextStream


def letters(tokens: Sequence[int]) -> str:
    """Token 0 is ``a``, 1 is ``b`` and so on."""
    return "".join(chr(ord("a") + token) for token in tokens)


def make_request(
    prompt: Sequence[int] = (1, 2, 3),
    params: SamplingParams | None = None,
    *,
    max_length: int = 12,
    text: bool = True,
    **options: Any,
) -> Request:
    """A request of one KV group whose tokens are letters."""
    params = params or SamplingParams()
    stream = TextStream(Detokenizer(letters, list(prompt)), params.stop_strings)
    own = {name: options.pop(name) for name in ("leader_id",) if name in options}
    request_id = options.pop("request_id", 0)
    given = CompletionInput(
        np.array(prompt, np.int32),
        params,
        seed=options.pop("seed", 7),
        stream=stream if text else None,
        **options,
    )
    return Request(
        request_id,
        given,
        max_length=max_length,
        tables=BlockTables.empty(1),
        metrics=RequestMetrics(0.0),
        **own,
    )
