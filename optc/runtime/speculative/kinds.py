"""The ways to draft that a user can ask for by name, alone or together: ``ngram+draft``."""

from __future__ import annotations

from optc.errors import InputError

#: Every kind with what it drafts from. Together they are asked in this order, the surest first.
KINDS = {
    "ngram": "what the text repeats",
    "lookahead": "what the model said behind rejected drafts",
    "draft": "a smaller model",
    "medusa": "heads on the model's last hidden state",
}


def parse_kinds(text: str) -> tuple[str, ...]:
    """The kinds that ``text`` names, in the order in which they are asked; none for ``off``.

    Raises:
        InputError: A kind is not known.
    """
    if text == "off":
        return ()
    named = text.split("+")
    for kind in named:
        if kind not in KINDS:
            raise InputError(
                f"speculation by {kind!r} is not known",
                where="speculate",
                hint=f"off, or one or more of {', '.join(KINDS)}, joined by +",
            )
    return tuple(kind for kind in KINDS if kind in named)
