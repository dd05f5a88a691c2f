"""The tokenizer's part of a GGUF file's metadata: lists, numbers and merges that belong together.

transformers' converter reads lists by index and texts letter by letter. Of damaged metadata it
raises whatever comes of that, or makes another tokenizer without a word.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from optc.errors import InputError

PREFIX = "tokenizer.ggml."
TOKENS = f"{PREFIX}tokens"
TEMPLATE = "tokenizer.chat_template"
#: Lists, and what their items are.
_LISTS: Mapping[str, type | tuple[type, ...]] = {
    "tokens": str,
    "merges": str,
    "scores": (int, float),
    "token_type": int,
}
#: Lists that have one item for each token.
_OF_EACH_TOKEN = ("scores", "token_type")
_IDS = tuple(
    f"{name}_token_id" for name in ("bos", "eos", "eot", "eom", "unknown", "seperator", "padding")
)
#: Stands for none in some files.
_NO_TOKEN = -1
_FLAGS = tuple(f"add_{name}" for name in ("bos_token", "eos_token", "space_prefix"))
_SHOWN = 60


def check_vocabulary(metadata: Mapping[str, Any], where: str) -> None:
    """Check the metadata of a GGUF file that has a list of tokens.

    Args:
        metadata: Values by key.
        where: The file.

    Raises:
        InputError: A key has a value of another type or length, a token occurs twice, a merge or an
            id names a token that is not there. It says which.
    """
    found = {
        key.removeprefix(PREFIX): value for key, value in metadata.items() if key.startswith(PREFIX)
    }
    _check_types(found, metadata.get(TEMPLATE), where)
    tokens: Sequence[str] = found["tokens"]
    if not tokens:
        raise _damaged("tokens", "the list is empty", where)
    twice = next((one for one, count in Counter(tokens).items() if count > 1), None)
    if twice is not None:
        raise _damaged("tokens", f"{_shown(twice)} occurs twice", where)
    for name in _OF_EACH_TOKEN:
        if name in found and len(found[name]) != len(tokens):
            problem = f"{len(found[name])} values for {len(tokens)} tokens"
            raise _damaged(name, problem, where)
    if not all(map(math.isfinite, found.get("scores", ()))):
        raise _damaged("scores", "one is no finite number", where)
    for name in _IDS:
        number = found.get(name, _NO_TOKEN)
        if number != _NO_TOKEN and not 0 <= number < len(tokens):
            raise _damaged(name, f"{number} is none of the {len(tokens)} tokens", where)
    _check_merges(found.get("merges", ()), frozenset(tokens), where)
    _check_complete(found, where)


def _check_types(found: Mapping[str, Any], template: object, where: str) -> None:
    for name, kind in _LISTS.items():
        value = found.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, kind) for one in value):
            raise _damaged(name, "not a list of " + ("texts" if kind is str else "numbers"), where)
    for name in (*_IDS, *_FLAGS):
        value = found.get(name, 0)
        if not isinstance(value, int):
            raise _damaged(name, f"{_shown(value)} is not a number, or true or false", where)
    if not isinstance(found.get("model", ""), str):
        raise _damaged("model", f"{_shown(found['model'])} is no text", where)
    if not isinstance(template, str | None):
        raise InputError(f"{_shown(template)} is no text", where=f"{where}: {TEMPLATE}")


def _check_merges(merges: Sequence[str], tokens: Collection[str], where: str) -> None:
    for merge in merges:
        parts = merge.split(" ")
        if len(parts) != 2:
            raise _damaged("merges", f"{_shown(merge)} is not two tokens and a blank", where)
        for part in (*parts, "".join(parts)):
            if part not in tokens:
                problem = f"{_shown(merge)} names {_shown(part)}, which is no token"
                raise _damaged("merges", problem, where)


def _check_complete(found: Mapping[str, Any], where: str) -> None:
    """Check that what makes a tokenizer of the tokens is there."""
    if "model" not in found:
        raise _damaged("model", "the key is missing: which kind of tokenizer is it?", where)
    if not ("merges" in found or "scores" in found):
        raise _damaged("merges", "neither merges nor scores say how a text is cut", where)


def _damaged(name: str, problem: str, where: str) -> InputError:
    return InputError(
        f"{PREFIX}{name}: {problem}",
        where=where,
        hint="the file's tokenizer is damaged: download the file again, or convert the model again",
    )


def _shown(value: object) -> str:
    return repr(value)[:_SHOWN]
