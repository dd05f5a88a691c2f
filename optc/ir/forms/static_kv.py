"""The static-KV form: a batched step over one contiguous cache for each sequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import onnx_ir as ir

from optc.ir.forms.form import Form
from optc.ir.forms.kv_pools import KVPools

#: Inputs before the caches, in order.
STATIC_INPUTS = ("tokens", "positions", "write_indices", "logit_index")


@dataclass(frozen=True)
class StaticKV(Form):
    """The static-KV form of docs/normal-form.md.

    Attributes:
        kv: One group without a window, and its layers.
    """

    name: ClassVar[str] = "static-kv"
    title: ClassVar[str] = "the static-KV form"
    made_by: ClassVar[str] = "a pass that leads to it must come first"

    kv: KVPools

    @classmethod
    def parse(cls, model: ir.Model, stated: Mapping[str, Any]) -> Self:
        """The form from what ``model`` states of it."""
        return cls(KVPools.parse(stated["kv"]))

    def stated(self) -> dict[str, Any]:
        """The KV as JSON values."""
        return {"kv": self.kv.stated()}

    def check(self, model: ir.Model) -> None:
        """The inputs are the step's and the caches, the outputs the logits and the new caches."""
        graph, layers = model.graph, range(len(self.kv.layers))
        past = [f"past_{kind}.{i}" for i in layers for kind in "kv"]
        present = [f"present_{kind}.{i}" for i in layers for kind in "kv"]
        self.require_values("inputs", graph.inputs, [*STATIC_INPUTS, *past])
        results = [str(value.name) for value in graph.outputs[:1]] or ["logits"]
        self.require_values("outputs", graph.outputs, [*results, *present])
