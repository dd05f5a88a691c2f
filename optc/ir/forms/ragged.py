"""The ragged step: the new rows of all sequences on one axis, over paged KV pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self

import onnx_ir as ir

from optc.ir.forms.decoder import FEATURES
from optc.ir.forms.form import Form
from optc.ir.forms.kv_pools import KVPools
from optc.runtime.executable.adapter_spec import AdapterModule, AdapterPart, AdapterSpec
from optc.runtime.executable.executable import HiddenRows

#: Inputs of every ragged step, in order; then those that only some have, and the pools.
STEP_INPUTS = (
    *("tokens", "positions", "slot_mapping", "query_starts", "kv_lengths", "block_tables"),
    "logit_rows",
)
#: Input of steps whose rows may form trees: the row of the step that each row follows.
TREE_PARENT = "tree_parent"
#: Output of steps that give last hidden states; with heads alone of ``logit_rows``.
HIDDEN = "hidden"
#: Input and output of the second graph of a step with Medusa heads.
MEDUSA_HIDDEN, MEDUSA_LOGITS = "medusa_hidden", "medusa_logits"


@dataclass(frozen=True)
class RaggedStep(Form):
    """The ragged step of docs/normal-form.md.

    Attributes:
        kv: Its KV groups and layers.
        tree: Rows of a sequence may form a tree: there is the input `TREE_PARENT`.
        adapters: Room for LoRA adapters, if the pass ``adapters`` has made some.
        accept_rates: Of Medusa heads, by head and rank: how often the guess of that rank was
            right; empty without heads.
        hidden: Rows of which the output `HIDDEN` has the last hidden states: ``all`` f32[T, D], or
            ``logits`` f32[R, D]; empty without that output.
        features: There is the input `FEATURES`.
        encoded: States of an encoder whose keys and values a sequence has at most. They lie in the
            last KV group, whose pools steps only read. 0: there is no such group.
    """

    name: ClassVar[str] = "ragged-step"
    title: ClassVar[str] = "the ragged step"
    made_by: ClassVar[str] = "a pass that leads to it must come first"

    kv: KVPools
    tree: bool = False
    adapters: AdapterSpec | None = None
    accept_rates: tuple[tuple[float, ...], ...] = ()
    hidden: HiddenRows | Literal[""] = ""
    features: bool = False
    encoded: int = 0

    @classmethod
    def parse(cls, model: ir.Model, stated: Mapping[str, Any]) -> Self:
        """The form from what ``model`` states of it."""
        rates = tuple(tuple(row) for row in stated["accept_rates"])
        kv = KVPools.parse(stated["kv"])
        adapters = _adapters(stated["adapters"])
        hidden, features = stated.get("hidden", ""), stated.get("features", False)
        encoded = stated.get("encoded", 0)
        return cls(kv, stated["tree"], adapters, rates, hidden, features, encoded)

    def stated(self) -> dict[str, Any]:
        """KV, trees, adapters, heads and features as JSON values."""
        given = {"hidden": self.hidden, "features": self.features, "encoded": self.encoded}
        return {name: value for name, value in given.items() if value} | {
            "kv": self.kv.stated(),
            "tree": self.tree,
            "adapters": None if self.adapters is None else asdict(self.adapters),
            "accept_rates": [list(row) for row in self.accept_rates],
        }

    @property
    def _read_layers(self) -> tuple[int, ...]:
        """Layers whose pools a step does not write."""
        return self.kv.groups[-1].layers if self.encoded else ()

    def check(self, model: ir.Model) -> None:
        """Every input of the step is there, every layer has its pools, and heads their graph."""
        graph = model.graph
        others = (MEDUSA_HIDDEN, *([FEATURES] if self.features else []))
        inputs = [v for v in graph.inputs if not _is_adapter_input(v) and v.name not in others]
        layers = range(len(self.kv.layers))
        pools = [f"{kind}_pool.{i}" for i in layers for kind in "kv"]
        wanted = [*STEP_INPUTS, *([TREE_PARENT] if self.tree else []), *pools]
        self.require_values("inputs", inputs, wanted)
        results = [str(value.name) for value in graph.outputs[:1]] or ["logits"]
        read = {f"{kind}_pool.{i}" for i in self._read_layers for kind in "kv"}
        results += [f"{name}.out" for name in pools if name not in read]
        results += [HIDDEN] if self.hidden or self.accept_rates else []
        results += [MEDUSA_LOGITS] if self.accept_rates else []
        self.require_values("outputs", graph.outputs, results)
        if self.adapters is not None:
            modules = range(len(self.adapters.modules))
            found = [v for v in graph.inputs if str(v.name).startswith(("adapter_a", "adapter_b"))]
            names = [f"adapter_{kind}.{i}" for i in modules for kind in "ab"]
            self.require_values("adapter pools", found, names)


def _is_adapter_input(value: ir.Value) -> bool:
    return str(value.name) in ("adapters", "logit_adapters") or str(value.name).startswith(
        ("adapter_a.", "adapter_b.")
    )


def _adapters(stated: Mapping[str, Any] | None) -> AdapterSpec | None:
    if stated is None:
        return None
    modules = tuple(
        AdapterModule(m["k"], m["n"], tuple(_part(**part) for part in m["parts"]), m["hadamard"])
        for m in stated["modules"]
    )
    return AdapterSpec(stated["max"], stated["rank"], modules)


def _part(ranges: Sequence[Sequence[int]] = (), **stated: Any) -> AdapterPart:
    triples = tuple((first, step, count) for first, step, count in ranges)
    return AdapterPart(**stated, ranges=triples)
