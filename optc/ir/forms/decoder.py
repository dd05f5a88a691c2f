"""Forms of a decoder without KV cache: as it was exported, and the dense form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import onnx_ir as ir

from optc.ir.forms.form import Form

_INPUTS = ("input_ids", "position_ids")
#: Further input of a layer that drafts by the hidden states of another model, f32[B, S, D]: of each
#: token's row that of the token before it. In the ragged step it is f32[T, D].
FEATURES = "features"
#: What names of further inputs of a decoder that attends to an encoder begin with: of each of those
#: layers the keys and values of the encoder's states, `cross_inputs`. As exported they are f32[B,
#: Hkv, P, D], in the dense form f32[B, P, Hkv*D] where P is the largest number of states.
CROSS = "cross_"


def cross_inputs(layers: int) -> list[str]:
    """Names of the inputs for the states of an encoder, in order: ``cross_0`` has the keys of the
    first layer, ``cross_1`` its values."""
    return [f"{CROSS}{index}" for index in range(2 * layers)]


@dataclass(frozen=True)
class Exported(Form):
    """A decoder as the importer gives it: (input_ids, position_ids i64[B, S]) -> logits.

    One that attends to an encoder has the inputs `cross_inputs` behind ``input_ids``, and counts
    positions itself.

    Attributes:
        states: Of an encoder at most, where the inputs' shapes name no number; else 0.
    """

    name: ClassVar[str] = "exported"
    title: ClassVar[str] = "an exported decoder"
    made_by: ClassVar[str] = "import it from its folder"

    states: int = 0

    @classmethod
    def parse(cls, model: ir.Model, stated: Mapping[str, Any]) -> Self:
        """The form from what ``model`` states of it."""
        return cls(int(stated.get("states", 0)))

    def stated(self) -> dict[str, Any]:
        """The states of an encoder, if they are many or few."""
        return {"states": self.states} if self.states else {}

    def check(self, model: ir.Model) -> None:
        """Two inputs and the logits; or ids, keys and values of an encoder, and the logits."""
        cross = _cross(model)
        _check_signature(self, model, (_INPUTS[0], *cross) if cross else _INPUTS)


@dataclass(frozen=True)
class Dense(Form):
    """The dense form: (input_ids, position_ids i64[B, S]) -> logits f32[B, S, V].

    Values between are token-wise with the heads in the last axis, and every attention is one
    ``optc::Attention``, or ``optc::CrossAttention`` to the states of an encoder. There may be the
    input `FEATURES`, and there may be `cross_inputs`.
    """

    name: ClassVar[str] = "dense"
    title: ClassVar[str] = "the dense form"
    made_by: ClassVar[str] = "a pass that leads to it must come first"

    def check(self, model: ir.Model) -> None:
        """Two inputs, features or an encoder's keys and values perhaps, and the logits."""
        features = [value for value in model.graph.inputs if value.name == FEATURES]
        more = (*[FEATURES] * len(features), *_cross(model))
        _check_signature(self, model, (*_INPUTS, *more))


def _cross(model: ir.Model) -> list[str]:
    found = [value for value in model.graph.inputs if str(value.name).startswith(CROSS)]
    return cross_inputs((len(found) + 1) // 2)


def _check_signature(form: Form, model: ir.Model, inputs: tuple[str, ...] = _INPUTS) -> None:
    form.require_values("inputs", model.graph.inputs, inputs)
    # What exporters call the logits is their own business.
    names = [str(value.name) for value in model.graph.outputs]
    form.require_values("outputs", model.graph.outputs, names[:1] or ["logits"])
