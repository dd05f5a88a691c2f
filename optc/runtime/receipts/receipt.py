"""`Receipt`: all that an answer follows from, and its hash; a line of JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from optc.errors import InputError, OptcError
from optc.runtime.outputs import Completion, RequestOutput
from optc.runtime.params import SamplingParams
from optc.runtime.receipts.prefix_marks import PrefixMarks
from optc.system.safe_json import JSONError, parse_json

FORMAT = 1
#: What tells nothing of which tokens are drawn.
_WITHOUT_EFFECT = frozenset({"logprobs", "prompt_logprobs"})
#: Ends that come again: of the others time decides.
_REPEATABLE = frozenset({"stop", "length"})
#: JSON has no infinities: the bias that forbids a token.
_FORBIDDEN = "-inf"


@dataclass(frozen=True)
class Origin:
    """The engine that computes answers, and its artifact.

    Attributes:
        artifact: Its digest.
        engine: Name of its engine.
        tokenizer: sha256 of its ``tokenizer.json``; empty where it has none.
    """

    artifact: str
    engine: str
    tokenizer: str


#: Of an engine that was loaded from no artifact.
NOWHERE = Origin("", "", "")


@dataclass(frozen=True)
class AnswerReceipt:
    """One text of an answer.

    Attributes:
        index: Which of the request's n texts.
        finish_reason: Why it ended.
        marks: Of its tokens.
        text: It; None is not kept.
    """

    index: int
    finish_reason: str
    marks: PrefixMarks
    text: str | None = None

    @classmethod
    def of(cls, one: Completion, *, with_text: bool = False) -> AnswerReceipt:
        """That of a finished text."""
        text = one.text if with_text else None
        return cls(one.index, one.finish_reason, PrefixMarks.of(one.token_ids), text)

    def to_json(self) -> dict[str, Any]:
        """As JSON takes it."""
        more = {} if self.text is None else {"text": self.text}
        counts = {"index": self.index, "tokens": self.marks.tokens}
        return {**counts, "finish_reason": self.finish_reason, **self.marks.to_json(), **more}


@dataclass(frozen=True)
class Receipt:
    """One answered request.

    Attributes:
        origin: What has answered.
        prompt: Its tokens.
        params: How it was continued; what is not stated here was at its default, whatever the
            artifact's own settings say.
        answers: The texts, by index.
        time: Of its end, in seconds since 1970.
        model: The name by which it was asked for.
        adapter: Name of the adapter; None is the model itself.
        request_id: Of the request.
    """

    origin: Origin
    prompt: tuple[int, ...]
    params: SamplingParams
    answers: tuple[AnswerReceipt, ...]
    time: float = 0.0
    model: str = ""
    adapter: str | None = None
    request_id: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON takes it: one line of a log."""
        return {
            "receipt": FORMAT,
            "time": round(self.time, 3),
            "request_id": self.request_id,
            "model": self.model,
            **{one.name: getattr(self.origin, one.name) for one in fields(Origin)},
            "adapter": self.adapter,
            "prompt": list(self.prompt),
            "sampling": _sampling_json(self.params),
            "answers": [one.to_json() for one in self.answers],
        }


def is_repeatable(output: RequestOutput) -> bool:
    """Every text of the output ended by itself, and there is one."""
    ends = {one.finish_reason for one in output.completions}
    return ends <= _REPEATABLE and output.output_tokens > 0


def read_receipt(line: str, where: str) -> Receipt:
    """The receipt of a line.

    Raises:
        InputError: It is none; says why.
    """
    try:
        value = parse_json(line)
        if not isinstance(value, dict) or value.get("receipt") != FORMAT:
            raise InputError(f"is no receipt of format {FORMAT}", where=where)
        return _receipt(value)
    except JSONError as error:
        raise InputError(f"is not JSON: {error}", where=where) from error
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"is a damaged receipt: {error!r}", where=where) from error
    except OptcError as error:
        raise InputError(error.message, where=where, hint=error.hint) from error


def _receipt(value: Mapping[str, Any]) -> Receipt:
    origin = Origin(**{one.name: _text(value[one.name]) for one in fields(Origin)})
    adapter, params = value["adapter"], _sampling(value["sampling"])
    answers = tuple(sorted(map(_answer, value["answers"]), key=lambda one: one.index))
    if [one.index for one in answers] != list(range(params.n)):
        raise ValueError(f"{len(answers)} answers for n={params.n}")
    return Receipt(
        origin,
        tuple(int(token) for token in value["prompt"]),
        params,
        answers,
        float(value["time"]),
        _text(value["model"]),
        None if adapter is None else _text(adapter),
        _text(value["request_id"]),
    )


def _answer(value: Mapping[str, Any]) -> AnswerReceipt:
    marks = PrefixMarks.from_json(_text(value["sha256"]), _text(value["marks"]))
    return AnswerReceipt(
        int(value["index"]), _text(value["finish_reason"]), marks, value.get("text")
    )


def _sampling_json(params: SamplingParams) -> dict[str, Any]:
    """The parameters that are stated and have an effect on tokens."""
    found = {name: getattr(params, name) for name in sorted(params.stated - _WITHOUT_EFFECT)}
    if biases := found.get("logit_bias"):
        shown = {str(token): _bias(value) for token, value in biases.items()}
        found["logit_bias"] = shown
    lists = {name: list(value) for name, value in found.items() if isinstance(value, tuple)}
    return found | lists


def _bias(value: float) -> float | str:
    return _FORBIDDEN if value == -math.inf else float(value)


def _sampling(value: Mapping[str, Any]) -> SamplingParams:
    """The parameters that `_sampling_json` gave."""
    given = dict(value)
    if biases := given.get("logit_bias"):
        given["logit_bias"] = {int(token): float(bias) for token, bias in biases.items()}
    return SamplingParams(**given)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
