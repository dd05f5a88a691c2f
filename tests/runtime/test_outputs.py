from __future__ import annotations

import json
from dataclasses import replace

import pytest

from optc.errors import RequestError
from optc.runtime.outputs import Completion, Delta, RequestOutput
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.scoring.token_logprobs import TokenLogprobs

LIKELY = (TokenLogprobs(5, -0.5, ()),)


def completion(index: int, error: RequestError | None = None) -> Completion:
    tokens = tuple(range(5, 6 + index))
    reason = "length" if error is None else "error"
    return Completion(index, f"text {index}", tokens, reason, LIKELY, RequestMetrics(index), error)  # type: ignore[arg-type]


def test_the_first_completion_speaks_for_the_request() -> None:
    second = replace(completion(1), finish_reason="stop", logprobs=())
    output = RequestOutput((1, 2, 3), (completion(0), second))
    assert (output.text, output.token_ids, output.finish_reason) == ("text 0", (5,), "length")
    assert output.logprobs == LIKELY
    assert output.metrics.arrived_s == 0
    assert (output.prompt_tokens, output.output_tokens) == (3, 1 + 2)
    assert output.error is None
    assert output.raise_for_error() is output


def test_an_error_of_any_completion_is_the_requests() -> None:
    first, second = RequestError("first"), RequestError("second")
    output = RequestOutput((), (completion(0), completion(1, first), completion(2, second)))
    assert output.error is first
    with pytest.raises(RequestError, match="first"):
        output.raise_for_error()


def test_a_result_is_json_and_short_to_look_at() -> None:
    top = TokenLogprobs(5, -0.5, ((5, -0.5), (7, -1.5)))
    first = replace(completion(0), logprobs=(top,), text="x" * 80)
    output = RequestOutput((1, 2, 3), (first, completion(1, RequestError("it broke"))))
    value = json.loads(json.dumps(output.to_json()))
    assert value["prompt_token_ids"] == [1, 2, 3]
    one, two = value["completions"]
    assert one["logprobs"] == [
        {
            "token_id": 5,
            "logprob": -0.5,
            "top": [{"token_id": 5, "logprob": -0.5}, {"token_id": 7, "logprob": -1.5}],
        }
    ]
    assert (one["error"], two["error"]["message"]) == (None, "it broke")
    assert one["metrics"]["ttft_ms"] is None
    assert set(one) == {"index", "text", "reasoning", "token_ids", "finish_reason"} | {
        "logprobs",
        "metrics",
        "error",
        "cumulative_logprob",
    }
    assert repr(output) == (
        f"<optc.RequestOutput {'x' * 60 + '…'!r} and 1 more: 3 prompt tokens, 3 new ones, "
        "ended by length>"
    )


def test_deltas_of_one_completion_join() -> None:
    position = TokenLogprobs(7, -1.0, ())
    first = Delta(2, "a", (7,), (position,))
    later = Delta(2, "b", (8, 9), (position, position), "stop")
    assert first.joined(later) == Delta(2, "ab", (7, 8, 9), (position,) * 3, "stop")
    assert first.joined(Delta(2, "", ())) == first
