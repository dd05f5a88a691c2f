"""Forms of a decoder without KV cache: as it was exported, and the dense form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.forms.form import Form

_INPUTS = ("input_ids", "position_ids")
#: Further input of a layer that drafts by the hidden states of another model, f32[B, S, D]: of each
#: token's row that of the token before it. In the ragged step it is f32[T, D].
FEATURES = "features"


@dataclass(frozen=True)
class Exported(Form):
    """A decoder as the importer gives it: (input_ids, position_ids i64[B, S]) -> logits."""

    name: ClassVar[str] = "exported"
    title: ClassVar[str] = "an exported decoder"
    made_by: ClassVar[str] = "import it from its folder"

    def check(self, model: ir.Model) -> None:
        """Two inputs and the logits."""
        _check_signature(self, model)


@dataclass(frozen=True)
class Dense(Form):
    """The dense form: (input_ids, position_ids i64[B, S]) -> logits f32[B, S, V].

    Values between are token-wise with the heads in the last axis, and every attention is one
    ``optc::Attention``. There may be the input `FEATURES`.
    """

    name: ClassVar[str] = "dense"
    title: ClassVar[str] = "the dense form"
    made_by: ClassVar[str] = "a pass that leads to it must come first"

    def check(self, model: ir.Model) -> None:
        """Two inputs, features perhaps, and the logits."""
        features = [value for value in model.graph.inputs if value.name == FEATURES]
        _check_signature(self, model, (*_INPUTS, *[FEATURES] * len(features)))


def _check_signature(form: Form, model: ir.Model, inputs: tuple[str, ...] = _INPUTS) -> None:
    form.require_values("inputs", model.graph.inputs, inputs)
    # What exporters call the logits is their own business.
    names = [str(value.name) for value in model.graph.outputs]
    form.require_values("outputs", model.graph.outputs, names[:1] or ["logits"])
