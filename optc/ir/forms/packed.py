"""Packed rows: an encoder over the tokens of several sequences, one after the other, unpadded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

import onnx_ir as ir

from optc.ir.forms.form import Form

#: Inputs in order: token ids i32[T], or `FEATURES` f32[rate * T, K]; places in their sequence
#: i32[T], types of tokens i32[T] where the model has some, and the first row of each sequence and
#: the end of the last, i32[B + 1].
TOKENS, POSITIONS, TYPES, STARTS = "tokens", "positions", "token_types", "query_starts"
FEATURES = "features"


@dataclass(frozen=True)
class Patches:
    """Rows that are patches of images or sounds; every sequence has as many.

    Attributes:
        input: Input of the source f32[batch, channels, …], whose other axes are cut into patches.
            A row has the values of one, channel by channel.
        sizes: Values of a patch along each of these axes.
        tokens: Of each sequence.
        rate: Rows of `FEATURES` for each token.
        lead: Rows of zeros before a sequence's patches. As many follow them as are missing.
    """

    input: str
    sizes: tuple[int, ...]
    tokens: int
    rate: int
    lead: int


@dataclass(frozen=True)
class PackedRows(Form):
    """An encoder of docs/normal-form.md over packed rows.

    Outputs have a row for each token, or one for each sequence.

    Attributes:
        ids: Input of the source [batch, tokens] whose unpadded values are `TOKENS`; empty where
            the source reads `patches`.
        mask: Input of the source that says which values are no padding; empty where it has none.
        types: Input of the source that becomes `TYPES`; empty where it has none.
        by_token: Outputs with a row for each token; of others a sequence has one.
        patches: How the source's input becomes `FEATURES`; None of texts.
        heads: By name, heads of outputs by token; the source has [batch, heads, tokens, D] of them.
    """

    name: ClassVar[str] = "packed-rows"
    title: ClassVar[str] = "an encoder over packed rows"
    made_by: ClassVar[str] = "a pass that leads to it must come first"

    ids: str
    mask: str
    types: str
    by_token: tuple[str, ...]
    patches: Patches | None = None
    heads: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, model: ir.Model, stated: Mapping[str, Any]) -> Self:
        """The form from what ``model`` states of it."""
        given = stated.get("patches")
        patches = given and Patches(**{**given, "sizes": tuple(given["sizes"])})
        names = (stated["ids"], stated["mask"], stated["types"], tuple(stated["by_token"]))
        return cls(*names, patches, stated.get("heads", {}))

    def stated(self) -> dict[str, Any]:
        """Names of the source's inputs, and outputs by token."""
        of_patches = {} if self.patches is None else {"patches": asdict(self.patches)}
        return {
            "ids": self.ids,
            "mask": self.mask,
            "types": self.types,
            "by_token": list(self.by_token),
            **of_patches,
            **({"heads": dict(self.heads)} if self.heads else {}),
        }

    def check(self, model: ir.Model) -> None:
        """The inputs are there."""
        types = [TYPES] if self.types else []
        wanted = [TOKENS if self.patches is None else FEATURES, POSITIONS, *types, STARTS]
        self.require_values("inputs", model.graph.inputs, wanted)
