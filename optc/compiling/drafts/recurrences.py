"""Drafts that models with states along the tokens do not take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optc.errors import UnsupportedError
from optc.ir.functions import DOMAIN, is_op

if TYPE_CHECKING:
    import onnx_ir as ir

_STATES = ("LinearAttention", "PagedLinearAttention", "CausalConv", "PagedCausalConv")
#: What each option would do to a state.
_WHY = {
    "self_draft": "the target's first layers would change the states that it keeps",
    "medusa": "the rows of a tree of drafts would each need a state",
}


def check_recurrences(model: ir.Model, option: str) -> None:
    """Refuse drafts that a target with states of recurrences or convolutions cannot verify.

    Args:
        model: The target, in any form from the importer on.
        option: That asks for drafts, of those named above.

    Raises:
        UnsupportedError: It has some.
    """
    if any(is_op(node, *_STATES, domain=DOMAIN) for node in model.graph):
        raise UnsupportedError(
            f"the model keeps states along the tokens: {_WHY[option]}",
            where=f"--{option.replace('_', '-')}",
            hint="a draft model (--draft) and n-grams (--speculate ngram) draft for such models",
        )
