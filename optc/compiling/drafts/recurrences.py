"""Models with recurrent states take no drafts: a state cannot take tokens back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optc.errors import UnsupportedError
from optc.ir.functions import DOMAIN, is_op

if TYPE_CHECKING:
    import onnx_ir as ir

_STATES = ("LinearAttention", "PagedLinearAttention")


def check_recurrences(model: ir.Model, role: str, option: str = "draft") -> None:
    """Refuse drafts for a target, or by a draft model, with recurrent states.

    Args:
        model: In any form from the importer on.
        role: ``target`` or ``draft model``, for the message.
        option: That asks for drafts.

    Raises:
        UnsupportedError: It has some.
    """
    if any(is_op(node, *_STATES, domain=DOMAIN) for node in model.graph):
        raise UnsupportedError(
            f"drafted tokens cannot be taken back from the recurrent states of the {role}",
            where=f"--{option.replace('_', '-')}",
            hint="leave drafts out: models with linear attention decode token by token",
        )
