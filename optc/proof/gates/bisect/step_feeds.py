"""Inputs of a model in dense or ragged form for windows of tokens."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.forms.find import form_type
from optc.ir.forms.ragged import TREE_PARENT, RaggedStep
from optc.proof.gates.bisect.model_run import Feed
from optc.proof.reference.submodel import Array
from optc.runtime.executable.executable import Int32

#: Slots of a KV block; any number is right.
BLOCK = 16


def is_ragged(model: ir.Model) -> bool:
    """True if values are by row of a step, [T, ...], not by window, [W, S, ...]."""
    return form_type(model) is RaggedStep


def step_feed(model: ir.Model, windows: Int32) -> Feed:
    """Gives the inputs by which ``model`` computes the logits of every token of the windows.

    Args:
        model: In dense form or a ragged step.
        windows: [W, S] token ids; each is a sequence from position 0 on.

    Raises:
        UnsupportedError (when called): The model has an input that is none of these forms.
    """
    arrays = _ragged(model, windows) if is_ragged(model) else _dense(windows)

    def feed(name: str) -> Array:
        if name not in arrays:
            raise UnsupportedError(f"what to give to the input {name} is not known", where="bisect")
        return arrays[name]

    return feed


def _dense(windows: Int32) -> dict[str, Array]:
    positions = np.tile(np.arange(windows.shape[1], dtype=np.int64), (len(windows), 1))
    return {"input_ids": windows.astype(np.int64), "position_ids": positions}


def _ragged(model: ir.Model, windows: Int32) -> dict[str, Array]:
    count, size = windows.shape
    rows, groups = count * size, len(RaggedStep.of(model).kv.groups)
    blocks = -(-size // BLOCK)
    tables = np.arange(count * blocks, dtype=np.int32).reshape(count, blocks)
    places = np.arange(size)
    slots = tables[:, places // BLOCK] * BLOCK + places % BLOCK
    arrays: dict[str, Array] = {
        "tokens": windows.reshape(-1),
        "positions": np.tile(places, count),
        "slot_mapping": np.tile(slots.reshape(-1), (groups, 1)),
        "query_starts": np.arange(count + 1) * size,
        "kv_lengths": np.full((groups, count), size),
        "block_tables": np.tile(tables, (groups, 1, 1)),
        "logit_rows": np.arange(rows),
        TREE_PARENT: np.where(np.tile(places, count) == 0, -1, np.arange(rows) - 1),
        "adapters": np.full(rows, -1),
        "logit_adapters": np.full(rows, -1),
    }
    arrays = {name: array.astype(np.int32) for name, array in arrays.items()}
    return arrays | _empty_pools(model, count * blocks)


def _empty_pools(model: ir.Model, blocks: int) -> dict[str, Array]:
    """KV pools and pools of adapters, all zeros."""
    pools: dict[str, Array] = {}
    for index, layer in enumerate(RaggedStep.of(model).kv.layers):
        for kind, dim in (("k", layer.key_dim), ("v", layer.value_dim)):
            shape = (blocks, layer.kv_heads, BLOCK, dim)
            pools[f"{kind}_pool.{index}"] = np.zeros(shape, np.float32)
    for value in model.graph.inputs:
        if str(value.name).startswith(("adapter_a.", "adapter_b.")) and value.shape is not None:
            pools[str(value.name)] = np.zeros(value.shape.numpy(), np.float32)
    return pools
