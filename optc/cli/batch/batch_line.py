"""`BatchLine`: what a line of the input asks for, and the form of its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from optc.cli.batch.asked import Asked
from optc.cli.batch.openai_form import Conversing, OpenAIForm, is_openai, openai_request
from optc.cli.generating.messages import check_messages
from optc.cli.generating.prompts import PromptOptions
from optc.cli.generating.results import result_json
from optc.errors import InputError, OptcError, RequestError
from optc.runtime.openai.fields import take_variables, with_numbers
from optc.runtime.params import SamplingParams
from optc.runtime.settings import ServeSettings
from optc.system.options.option import options_of
from optc.system.safe_json import JSONError, parse_json

if TYPE_CHECKING:
    from optc import RequestOutput
    from optc.runtime.requests.prompts import Prompt

#: Differ from run to run, so that answers would.
_TIMES = ("ttft_ms", "tpot_ms")


class Form(Protocol):
    """The form of an answer."""

    def answer(self, asked: Asked, outputs: Sequence[RequestOutput]) -> dict[str, Any]:
        """The line of finished requests, one for each prompt."""

    def failure(self, error: OptcError) -> dict[str, Any]:
        """The line of a request that failed."""


@dataclass(frozen=True)
class PlainForm:
    """Answers with the keys of ``optc run --json``, behind the number of the line.

    Attributes:
        number: Of the line in the input, from 1.
        custom_id: The line's own name for itself; None if it has none.
        settings: How the engine serves.
    """

    number: int
    custom_id: str | None
    settings: ServeSettings

    def answer(self, asked: Asked, outputs: Sequence[RequestOutput]) -> dict[str, Any]:
        """The line of a finished request; it has one prompt."""
        (output,) = outputs
        result = result_json(output, asked.params, self.settings)
        return self._head() | {k: v for k, v in result.items() if k not in _TIMES}

    def failure(self, error: OptcError) -> dict[str, Any]:
        """The line of a request that failed."""
        return self._head() | {"error": error.to_json()}

    def _head(self) -> dict[str, Any]:
        named = {} if self.custom_id is None else {"custom_id": self.custom_id}
        return {"line": self.number, **named}


@dataclass(frozen=True)
class BatchLine:
    """A line that asks for something, or one that is wrong.

    Attributes:
        form: How its answer is written.
        prompts: To be continued; none if the line is wrong.
        params: How.
        error: What is wrong with the line.
    """

    form: Form
    prompts: tuple[Prompt, ...]
    params: SamplingParams
    error: OptcError | None = None


@dataclass(frozen=True)
class LineReader:
    """Reads lines: texts, objects with a prompt or messages, and lines of OpenAI batches.

    Attributes:
        prompts: Whether prompts are what a user says, and behind which system's message.
        params: Of lines that do not say otherwise.
        settings: How the engine serves.
    """

    prompts: PromptOptions
    params: SamplingParams
    settings: ServeSettings

    def read(self, number: int, text: bytes) -> BatchLine:
        """Read the request of a line; an error in the line is part of the result."""
        form: Form = PlainForm(number, None, self.settings)
        try:
            value = _parsed(text)
            if is_openai(value):
                form = OpenAIForm.of(number, value)
                prompt, changes = openai_request(value)
            else:
                form = PlainForm(number, _custom_id(value), self.settings)
                prompt, changes = _plain_request(value)
            each = [prompt]
            if isinstance(form, OpenAIForm) and _are_several(prompt):
                each = prompt
            prompts = tuple(map(self._prompt, each))
            return BatchLine(form, prompts, _changed(self.params, changes))
        except InputError as error:
            return BatchLine(form, (), self.params, error)

    def _prompt(self, prompt: object) -> Prompt:
        """The prompt of a line: text, token ids, or a list of messages."""
        if isinstance(prompt, str):
            return self.prompts.prompt(prompt)
        if isinstance(prompt, Conversing):
            messages = check_messages(prompt.messages, "messages")
            return self.prompts.conversation(messages, prompt.variables)
        if isinstance(prompt, Sequence) and all(type(token) is int for token in prompt):
            return list(prompt)
        hint = "a text or a list of token ids"
        if _are_several(prompt):
            hint += "; several prompts are a line each"
        raise InputError("not a prompt", where="prompt", hint=hint)


def _are_several(prompt: object) -> TypeGuard[list[object]]:
    """True for a list of prompts: as in OpenAI's completions, of texts or of token ids."""
    return isinstance(prompt, list) and any(isinstance(one, str | list) for one in prompt)


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        value = parse_json(text, unique_keys=True)
    except JSONError as error:
        raise InputError(f"not JSON: {error}", where="line") from error
    if isinstance(value, str):
        return {"prompt": value}
    if not isinstance(value, dict):
        raise InputError("neither a text nor an object", where="line")
    return value


def _custom_id(value: Mapping[str, Any]) -> str | None:
    found = value.get("custom_id")
    if found is None or isinstance(found, str):
        return found
    raise InputError("not a text", where="custom_id")


def _plain_request(value: dict[str, Any]) -> tuple[object, dict[str, Any]]:
    """The prompt or messages of a line, and the parameters that differ."""
    changes = {name: one for name, one in value.items() if name != "custom_id"}
    if ("prompt" in changes) == ("messages" in changes):
        raise InputError("a line has a prompt or messages", where="line")
    if "messages" in changes:
        messages = changes.pop("messages")
        return Conversing(messages, take_variables(changes)), changes
    return changes.pop("prompt"), changes


def _changed(params: SamplingParams, changes: Mapping[str, Any]) -> SamplingParams:
    """Parameters with the values of a line.

    Raises:
        RequestError: There is no such parameter, or its value is out of its range.
    """
    names = tuple(options_of(SamplingParams))
    for name in changes:
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else "parameters are optc.SamplingParams'"
            raise RequestError(f"there is no parameter {name!r}", where="line", hint=hint)
    return params.changed(**with_numbers(changes))
