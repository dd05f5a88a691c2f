"""Step inputs in memory of the engine's own: aligned, reused, checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optc.errors import InputError
from optc.runtime.executable import EngineSpec, Int32, StepBatch

#: Kernels assume that buffers start at a multiple of this many bytes.
ALIGNMENT = 64
#: Shapes (T, B, P, R) whose views are kept; decoding meets few of them again and again.
_CACHED_SHAPES = 64

#: Shape of one step: T, B, P, R.
Shape = tuple[int, int, int, int]


def aligned(count: int) -> Int32:
    """Zeroed int32 [count] that starts at a multiple of 64 bytes."""
    raw = np.zeros(4 * count + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + 4 * count].view(np.int32)


class Staging:
    """Copies the arrays of a `StepBatch` into buffers that the engine can read.

    A caller's arrays may lie anywhere, but the kernels need aligned memory; the copies are a few
    hundred bytes. The views and their DLPack wrappers are kept for each shape.
    """

    def __init__(self, spec: EngineSpec, wrap: Callable[[Int32], Any]) -> None:
        self._spec = spec
        self._wrap = wrap
        groups = len(spec.groups)
        self._table_capacity = 0
        self._sizes = {
            "tokens": spec.max_rows,
            "positions": spec.max_rows,
            "slot_mapping": groups * spec.max_rows,
            "kv_lengths": groups * spec.max_sequences,
            "query_starts": spec.max_sequences + 1,
            "logit_rows": spec.max_logit_rows,
            "adapters": spec.max_rows,
            "logit_adapters": spec.max_logit_rows,
        }
        self._buffers = {name: aligned(size) for name, size in self._sizes.items()}
        self._block_size = aligned(1)
        self._block_size_tensor = wrap(self._block_size)
        self._views: dict[Shape, tuple[list[Int32], list[Any]]] = {}

    def set_block_size(self, block_size: int) -> None:
        """State the tokens of a KV block for the steps to come."""
        self._block_size[0] = block_size

    def fill(self, batch: StepBatch) -> list[Any]:
        """The engine's input tensors, in order, holding ``batch``.

        Raises:
            InputError: A limit is exceeded or shapes do not fit together.
        """
        arrays = [
            batch.tokens,
            batch.positions,
            batch.slot_mapping,
            batch.kv_lengths,
            batch.query_starts,
            batch.block_tables,
            batch.logit_rows,
        ]
        if self._spec.adapters is not None:
            arrays += _adapter_rows(batch)
        if batch.tree_parent is not None and not self._spec.tree:
            raise InputError(
                "the engine takes no trees of drafts",
                where="step",
                hint="compile it with --set kv-cache.tree=true",
            )
        shape = self._shape(batch)
        found = self._views.get(shape)
        views, tensors = self._make(shape) if found is None else found
        for view, array in zip(views, arrays, strict=True):
            if view.shape != array.shape or array.dtype != np.int32:
                raise InputError(
                    f"expected int32 {list(view.shape)}, got {array.dtype} {list(array.shape)}",
                    where="step input",
                )
            np.copyto(view, array)
        return tensors

    def _shape(self, batch: StepBatch) -> Shape:
        rows, wanted = batch.tokens.size, batch.logit_rows.size
        sequences, blocks = batch.block_tables.shape[1:]
        spec = self._spec
        for what, value, limit in (
            ("rows", rows, spec.max_rows),
            ("sequences", sequences, spec.max_sequences),
            ("rows of logits", wanted, spec.max_logit_rows),
        ):
            if not 0 < value <= limit:
                raise InputError(
                    f"{value} {what}; the engine takes 1 to {limit} in one step", where="step"
                )
        return rows, sequences, blocks, wanted

    def _make(self, shape: Shape) -> tuple[list[Int32], list[Any]]:
        rows, sequences, blocks, wanted = shape
        groups = len(self._spec.groups)
        self._grow_tables(groups * sequences * blocks)
        shapes: dict[str, tuple[int, ...]] = {
            "tokens": (rows,),
            "positions": (rows,),
            "slot_mapping": (groups, rows),
            "kv_lengths": (groups, sequences),
            "query_starts": (sequences + 1,),
            "block_tables": (groups, sequences, blocks),
            "logit_rows": (wanted,),
        }
        optional = {"adapters": (rows,), "logit_adapters": (wanted,)} if self._spec.adapters else {}
        views = [self._view(name, dims) for name, dims in shapes.items()]
        tensors = [*(self._wrap(view) for view in views), self._block_size_tensor]
        more = [self._view(name, dims) for name, dims in optional.items()]
        views, tensors = [*views, *more], [*tensors, *(self._wrap(view) for view in more)]
        if len(self._views) >= _CACHED_SHAPES:
            self._views.pop(next(iter(self._views)))
        self._views[shape] = views, tensors
        return self._views[shape]

    def _view(self, name: str, dims: tuple[int, ...]) -> Int32:
        count = int(np.prod(dims))
        return self._buffers[name][:count].reshape(dims)

    def _grow_tables(self, needed: int) -> None:
        """Block tables have no stated limit (it depends on the block size): grow by doubling."""
        if needed <= self._table_capacity:
            return
        self._table_capacity = max(needed, 2 * self._table_capacity, 1024)
        self._buffers["block_tables"] = aligned(self._table_capacity)
        self._views.clear()


def _adapter_rows(batch: StepBatch) -> tuple[Int32, Int32]:
    """Slots of the adapters of all rows [T] and of the rows with logits [R]."""
    if batch.adapters is None:
        nobody = np.full(batch.tokens.size, -1, np.int32)
        return nobody, nobody[: batch.logit_rows.size]
    return batch.adapters, batch.adapters[batch.logit_rows]
