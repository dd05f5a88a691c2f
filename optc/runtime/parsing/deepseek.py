"""DeepSeek's calls: a name and arguments between marks; V3 and R1 have the arguments in a fence of
Markdown, V3.1 has not."""

from __future__ import annotations

from collections.abc import Callable

from optc.runtime.parsing.characters import Characters, Reading
from optc.runtime.parsing.json_values import read_value

CALL, END_OF_CALL, SEPARATOR = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
#: The kind of every call, which V3 writes before the name.
KIND = "function"
FENCE, END_OF_FENCE = "```json", "```"


def read_deepseek(
    chars: Characters, begin: Callable[[str], None], add: Callable[[str], None]
) -> Reading[bool]:
    """Pass calls; False where there is none.

    Args:
        chars: Behind the mark that begins them.
        begin: Gets each function's name.
        add: Gets the JSON text of its arguments, as it comes.
    """
    called = False
    while True:
        yield from chars.skip_space()
        if not (yield from chars.match((CALL,))):
            return called
        name = yield from _name(chars)
        yield from chars.skip_space()
        if not name or chars.now != "{":
            return called
        begin(name)
        called = True
        yield from read_value(chars, add)
        yield from chars.skip_space()
        yield from chars.match((END_OF_FENCE,))
        yield from chars.skip_space()
        yield from chars.match((END_OF_CALL,))


def _name(chars: Characters) -> Reading[str]:
    """Pass what stands before the arguments; gives the name, or nothing where there is none."""
    head = []
    while not (yield from chars.match((SEPARATOR,))):
        if not chars.now:
            return ""
        head.append(chars.now)
        yield from chars.advance()
    name = "".join(head).strip()
    if name != KIND:
        return name
    name = (yield from chars.until("\n{")).strip()
    yield from chars.skip_space()
    yield from chars.match((FENCE,))
    return name
