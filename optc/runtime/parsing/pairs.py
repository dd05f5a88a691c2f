"""GLM's calls: a name, and pairs of a key and a value:
``f<arg_key>x</arg_key><arg_value>1</arg_value>``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from optc.runtime.parsing.characters import Characters, Reading
from optc.runtime.parsing.tagged_parameters import json_of, text_until

_KEY, _END_OF_KEY = "<arg_key>", "</arg_key>"
_VALUE, _END_OF_VALUE = "<arg_value>", "</arg_value>"


def read_pairs(
    chars: Characters,
    begin: Callable[[str], None],
    add: Callable[[str], None],
    tools: Mapping[str, Mapping[str, object]],
) -> Reading[bool]:
    """Pass one call; False where there is none of a known function.

    Args:
        chars: At the name.
        begin: Gets the name.
        add: Gets the JSON text of its arguments, bit by bit.
        tools: Schemas of the arguments by the names of the functions.
    """
    name = (yield from chars.until("<\n")).strip()
    if name not in tools:
        return False
    begin(name)
    add("{")
    separator = ""
    while True:
        yield from chars.skip_space()
        if not (yield from chars.match((_KEY,))):
            break
        key = (yield from text_until(chars, _END_OF_KEY)).strip()
        yield from chars.skip_space()
        if not (yield from chars.match((_VALUE,))):
            continue  # a key without a value
        text = yield from text_until(chars, _END_OF_VALUE)
        add(f"{separator}{json.dumps(key)}: {json_of(text, tools[name], key)}")
        separator = ", "
    add("}")
    return True
