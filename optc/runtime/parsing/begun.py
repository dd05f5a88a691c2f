"""Prompts that begin a thought, which the model goes on with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optc.errors import RequestError
from optc.runtime.parsing.formats import HARMONY_THOUGHTS, ThoughtFormat, begins_in_thought
from optc.runtime.text.messages import CONTINUE
from optc.runtime.text.tokenizer import Tokenizer


def prompt_begins_thought(
    messages: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Any],
    tokenizer: Tokenizer,
    thoughts: ThoughtFormat | None,
) -> bool:
    """True if the template begins a thought behind these messages, or the last one does, which the
    model continues. What others write of the marks begins none; a template that refuses messages
    without them begins none either, and whoever renders the prompt is told what else it refuses.

    Args:
        messages: Of the conversation.
        variables: Of the template.
        tokenizer: The model's.
        thoughts: Their format; None has none."""
    if thoughts is None or thoughts is HARMONY_THOUGHTS:
        return False
    marks = (thoughts.begin, thoughts.end)
    own = 1 if variables.get(CONTINUE) else 0
    others = _without(marks, list(messages[: len(messages) - own]))
    shown = [*others, *messages[len(messages) - own :]]
    try:
        prompt = tokenizer.render_chat(shown, **_without(marks, dict(variables)))
    except RequestError:
        return False
    return begins_in_thought(prompt, thoughts)


def _without(marks: Sequence[str], value: Any) -> Any:
    """A copy of a JSON value whose texts hold no marks."""
    if isinstance(value, str):
        for mark in marks:
            value = value.replace(mark, "")
    elif isinstance(value, list):
        return [_without(marks, one) for one in value]
    elif isinstance(value, dict):
        return {key: _without(marks, one) for key, one in value.items()}
    return value
