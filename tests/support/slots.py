"""Drives a model in slot form in ONNX Runtime, as the oracle of `kv-slots` and what follows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from optc.ir.forms.static_kv import StaticKV
from tests.support.ir_text import Array
from tests.support.ragged import session


@dataclass
class SlotDriver:
    """Each call of `step` appends equally many rows to each slot that it names."""

    model: ir.Model
    slots: int = 3
    capacity: int = 64
    seed: int = 0
    lengths: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.session = session(self.model)
        rng = np.random.default_rng(self.seed)
        self.kv: dict[str, Array] = {}
        for index, layer in enumerate(StaticKV.of(self.model).kv.layers):
            for kind, dim in (("k", layer.key_dim), ("v", layer.value_dim)):
                # garbage in the slots must not be seen
                shape = (self.slots, layer.kv_heads, self.capacity, dim)
                self.kv[f"{kind}.{index}"] = rng.standard_normal(shape).astype(np.float32)

    def step(self, rows: Mapping[int, Sequence[int]], wanted: Sequence[int] | None = None) -> Array:
        """Logits [B, R, V] of the ``wanted`` rows of each sequence, of all by default."""
        chosen = list(rows)
        count = len(rows[chosen[0]])
        starts = np.array([self.lengths.get(s, 0) for s in chosen], np.int64)
        index = list(range(count)) if wanted is None else list(wanted)
        feeds: dict[str, Array] = {
            "tokens": np.array([rows[s] for s in chosen], np.int32),
            "positions": (starts[:, None] + np.arange(count)).astype(np.int32),
            "write_indices": starts,
            "logit_index": np.array([index] * len(chosen), np.int64),
            **{f"past_{name}": values[chosen] for name, values in self.kv.items()},
        }
        used = {value.name for value in self.session.get_inputs()}
        names = [output.name for output in self.session.get_outputs()]
        results = self.session.run(names, {k: v for k, v in feeds.items() if k in used})
        logits, *presents = results
        for name, present in zip(names[1:], presents, strict=True):
            self.kv[name.removeprefix("present_")][chosen] = present
        for s in chosen:
            self.lengths[s] = self.lengths.get(s, 0) + count
        result: Array = logits
        return result
