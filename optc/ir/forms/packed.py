"""Packed rows: an encoder over the tokens of several sequences, one after the other, unpadded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import onnx_ir as ir

from optc.ir.forms.form import Form

#: Inputs in order: token ids i32[T], places in their sequence i32[T], types of tokens i32[T] where
#: the model has some, and the first row of each sequence and the end of the last, i32[B + 1].
TOKENS, POSITIONS, TYPES, STARTS = "tokens", "positions", "token_types", "query_starts"


@dataclass(frozen=True)
class PackedRows(Form):
    """An encoder of docs/normal-form.md over packed rows.

    Outputs have a row for each token, or one for each sequence.

    Attributes:
        ids: Input of the source [batch, tokens] whose unpadded values are `TOKENS`.
        mask: Input of the source that says which values are no padding; empty where it has none.
        types: Input of the source that becomes `TYPES`; empty where it has none.
        by_token: Outputs with a row for each token; of others a sequence has one.
    """

    name: ClassVar[str] = "packed-rows"
    title: ClassVar[str] = "an encoder over packed rows"
    made_by: ClassVar[str] = "a pass that leads to it must come first"

    ids: str
    mask: str
    types: str
    by_token: tuple[str, ...]

    @classmethod
    def parse(cls, model: ir.Model, stated: Mapping[str, Any]) -> Self:
        """The form from what ``model`` states of it."""
        return cls(stated["ids"], stated["mask"], stated["types"], tuple(stated["by_token"]))

    def stated(self) -> dict[str, Any]:
        """Names of the source's inputs, and outputs by token."""
        return {
            "ids": self.ids,
            "mask": self.mask,
            "types": self.types,
            "by_token": list(self.by_token),
        }

    def check(self, model: ir.Model) -> None:
        """The inputs are there."""
        types = [TYPES] if self.types else []
        wanted = [TOKENS, POSITIONS, *types, STARTS]
        self.require_values("inputs", model.graph.inputs, wanted)
