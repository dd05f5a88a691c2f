"""The ways to draft that a user can ask for by name, alone or together: ``ngram+draft``."""

from __future__ import annotations

from optc.errors import InputError

#: Every kind with what it drafts from. Together they are asked in this order, the surest first.
KINDS = {
    "ngram": "what the text repeats",
    "lookahead": "what the model said behind rejected drafts",
    "draft": "a smaller model",
    "self": "the model's own first layers",
    "eagle": "a layer on the model's last hidden states",
    "medusa": "heads on the model's last hidden state",
}
#: Those that need an engine of their own; an engine has one of them.
MODELS = ("draft", "self", "eagle")
#: Most drafts of a request in a step.
MAX_DRAFTED = 16


def parse_kinds(text: str) -> tuple[str, ...]:
    """The kinds that ``text`` names, in the order in which they are asked; none for ``off``.

    Raises:
        InputError: A kind is not known, or two would need an engine.
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
    if sum(kind in named for kind in MODELS) > 1:
        raise InputError(
            "two models cannot both draft", where="speculate", hint=f"one of {', '.join(MODELS)}"
        )
    return tuple(kind for kind in KINDS if kind in named)
