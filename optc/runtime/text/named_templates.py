"""One chat template of a model's several.

A model may have a template for conversations with tools beside its default one. transformers takes
it where tools are given, so here it becomes a branch of the one template that an artifact has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

DEFAULT, TOOL_USE = "default", "tool_use"
_NO_DEFAULT = "{{ raise_exception('the model has a template for conversations with tools alone') }}"


class Merged(NamedTuple):
    """A template that does what several do.

    Attributes:
        source: Empty where there is none.
        left_out: Names of those that are asked for by name alone.
    """

    source: str
    left_out: tuple[str, ...] = ()


def merged_template(given: object) -> Merged:
    """The template that transformers would choose, whether there are tools or not.

    Args:
        given: ``chat_template`` of a tokenizer's settings: a text, a list of names and texts, or a
            mapping. Anything else is none.
    """
    if isinstance(given, str):
        return Merged(given)
    if isinstance(given, list):
        given = {one.get("name"): one.get("template") for one in given if isinstance(one, dict)}
    if not isinstance(given, Mapping):
        return Merged("")
    texts = {name: text for name, text in given.items() if isinstance(text, str)}
    names = sorted(str(name) for name in texts if name not in (DEFAULT, TOOL_USE))
    default, tool_use = texts.get(DEFAULT), texts.get(TOOL_USE)
    if tool_use is None:
        return Merged(default or "", tuple(names))
    return Merged(_branches(tool_use, _NO_DEFAULT if default is None else default), tuple(names))


def _branches(tool_use: str, default: str) -> str:
    """Jinja drops the line's end behind a block's tag, and one at the end of a template; ``+``
    keeps blanks that stand before a tag."""
    first, second = (text.removesuffix("\n") for text in (tool_use, default))
    return f"{{% if tools is not none %}}\n{first}{{%+ else %}}\n{second}{{%+ endif %}}"
