"""Step inputs in memory of the engine's own: aligned, reused, checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optc.backends.tvm.tree_paths import Paths, cut, no_copies
from optc.errors import InputError
from optc.runtime.executable import EngineSpec, Int32, StepBatch
from optc.runtime.step_limits import check_limits

#: Kernels assume that buffers start at a multiple of this many bytes.
ALIGNMENT = 64
#: Shapes of steps whose views are kept; decoding meets few of them again and again.
_CACHED_SHAPES = 64

#: Shape of one step: T, B, P, R, and how many tiles and slots are copied for trees.
Shape = tuple[int, int, int, int, int, int]


@dataclass(frozen=True)
class StepInputs:
    """Input tensors of the engine, in order, for steps of one shape; the same object each time.

    Attributes:
        shape: Of the steps, without P: the width of the block tables follows the longest sequence
            and nothing else depends on it.
        views: The buffers behind the tensors, without that of the block size.
        tensors: The tensors.
    """

    shape: tuple[int, ...]
    views: list[Int32]
    tensors: list[Any]


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
        # For the kernels each run of a tree is a sequence of its own.
        sequences = spec.max_rows if spec.tree else spec.max_sequences
        sizes = {
            "tokens": spec.max_rows,
            "positions": spec.max_rows,
            "slot_mapping": groups * spec.max_rows,
            "kv_lengths": groups * sequences,
            "query_starts": sequences + 1,
            "logit_rows": spec.max_logit_rows,
            "adapters": spec.max_rows,
            "logit_adapters": spec.max_logit_rows,
        }
        self._buffers = {name: aligned(size) for name, size in sizes.items()}
        self._block_size = aligned(1)
        self._block_size_tensor = wrap(self._block_size)
        self._scratch: tuple[range, ...] = ()
        self._no_copies = no_copies(groups)
        self._views: dict[Shape, StepInputs] = {}

    def set_blocks(self, block_size: int, scratch: tuple[range, ...]) -> None:
        """State the tokens of a KV block for the steps to come, and by KV group the blocks that
        the paths of trees may use."""
        self._block_size[0] = block_size
        self._scratch = scratch

    def fill(self, batch: StepBatch) -> StepInputs:
        """The engine's inputs, holding ``batch``.

        Raises:
            InputError: A limit is exceeded, shapes do not fit together, or there are trees that
                the engine does not take.
        """
        check_limits(batch, self._spec)
        step, tiles, slots = self._paths(batch)
        arrays = [
            step.tokens,
            step.positions,
            step.slot_mapping,
            step.kv_lengths,
            step.query_starts,
            step.block_tables,
            step.logit_rows,
        ]
        if self._spec.adapters is not None:
            arrays += _adapter_rows(batch)
        if self._spec.tree:
            arrays += [tiles, slots]
        shape = (
            step.tokens.size,
            *step.block_tables.shape[1:],
            step.logit_rows.size,
            tiles.shape[2],
            slots.shape[2],
        )
        found = self._views.get(shape)
        inputs = self._make(shape) if found is None else found
        for view, array in zip(inputs.views, arrays, strict=True):
            if view.shape != array.shape or array.dtype != np.int32:
                raise InputError(
                    f"expected int32 {list(view.shape)}, got {array.dtype} {list(array.shape)}",
                    where="step input",
                )
            np.copyto(view, array)
        return inputs

    def _paths(self, batch: StepBatch) -> Paths:
        if batch.tree_parent is None:
            return Paths(batch, self._no_copies, self._no_copies)
        if not self._spec.tree:
            raise InputError(
                "the engine takes no trees of drafts",
                where="step",
                hint="compile it with --set kv-cache.tree=true",
            )
        return cut(batch, int(self._block_size[0]), self._scratch)

    def _make(self, shape: Shape) -> StepInputs:
        rows, sequences, blocks, wanted, tiles, slots = shape
        groups = len(self._spec.groups)
        shapes: dict[str, tuple[int, ...]] = {
            "tokens": (rows,),
            "positions": (rows,),
            "slot_mapping": (groups, rows),
            "kv_lengths": (groups, sequences),
            "query_starts": (sequences + 1,),
            "block_tables": (groups, sequences, blocks),
            "logit_rows": (wanted,),
        }
        optional: dict[str, tuple[int, ...]] = {}
        if self._spec.adapters is not None:
            optional |= {"adapters": (rows,), "logit_adapters": (wanted,)}
        if self._spec.tree:
            optional |= {"tree_tiles": (groups, 2, tiles), "tree_slots": (groups, 2, slots)}
        for name, dims in (shapes | optional).items():
            self._grow(name, int(np.prod(dims)))
        views = [self._view(name, dims) for name, dims in shapes.items()]
        tensors = [*(self._wrap(view) for view in views), self._block_size_tensor]
        more = [self._view(name, dims) for name, dims in optional.items()]
        views, tensors = [*views, *more], [*tensors, *(self._wrap(view) for view in more)]
        if len(self._views) >= _CACHED_SHAPES:
            self._views.pop(next(iter(self._views)))
        without_tables = (rows, sequences, wanted, tiles, slots)
        return self._views.setdefault(shape, StepInputs(without_tables, views, tensors))

    def _view(self, name: str, dims: tuple[int, ...]) -> Int32:
        count = int(np.prod(dims))
        return self._buffers[name][:count].reshape(dims)

    def _grow(self, name: str, needed: int) -> None:
        """Make room in arrays without a stated limit (block tables depend on the block size) by
        doubling."""
        capacity = self._buffers[name].size if name in self._buffers else 0
        if needed > capacity:
            self._buffers[name] = aligned(max(needed, 2 * capacity, 1024))
            self._views.clear()


def _adapter_rows(batch: StepBatch) -> tuple[Int32, Int32]:
    """Slots of the adapters of all rows [T] and of the rows with logits [R]."""
    if batch.adapters is None:
        nobody = np.full(batch.tokens.size, -1, np.int32)
        return nobody, nobody[: batch.logit_rows.size]
    return batch.adapters, batch.adapters[batch.logit_rows]
