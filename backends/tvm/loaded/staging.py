"""Step inputs in memory of the engine's own: aligned, reused, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from optc.backends.tvm.loaded.input_memory import HostInputs, InputMemory
from optc.backends.tvm.loaded.tree_paths import Paths, cut, no_copies
from optc.errors import InputError
from optc.runtime.executable.executable import Int32, StepBatch, StepInterface
from optc.runtime.executable.step_limits import check_limits

#: Shapes of steps whose views are kept; decoding meets few of them again and again.
_CACHED_SHAPES = 64

#: Inputs of every engine that come before the block size.
_ALWAYS = 7

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
        mirror: What has to be copied before the engine reads the tensors, and where, if anything.
    """

    shape: tuple[int, ...]
    views: list[Int32]
    tensors: list[Any]
    mirror: tuple[Any, ...] = ()


class Staging:
    """Copies the arrays of a `StepBatch` into buffers that the engine can read.

    A caller's arrays may lie anywhere, but the kernels need aligned memory; the copies are a few
    hundred bytes. The views and their tensors are kept for each shape.

    Args:
        spec: The engine's limits.
        open_memory: Gives memory for inputs of so many elements, by name.
    """

    def __init__(
        self, spec: StepInterface, open_memory: Callable[[Mapping[str, int]], InputMemory]
    ) -> None:
        self._spec = spec
        groups = len(spec.groups)
        # For the kernels each run of a tree is a sequence of its own.
        sequences = spec.max_rows if spec.tree else spec.max_sequences
        sizes = {
            "block_size": 1,
            "tokens": spec.max_rows,
            "positions": spec.max_rows,
            "slot_mapping": groups * spec.max_rows,
            "kv_lengths": groups * sequences,
            "query_starts": sequences + 1,
            "logit_rows": spec.max_logit_rows,
            "adapters": spec.max_rows,
            "logit_adapters": spec.max_logit_rows,
            "features": spec.max_rows * spec.hidden_size if spec.features else 0,
        }
        self._memory = open_memory(sizes)
        self._block_size = 0
        self._scratch: tuple[range, ...] = ()
        self._no_copies = no_copies(groups)
        self._views: dict[Shape, StepInputs] = {}

    @classmethod
    def on_host(cls, spec: StepInterface, wrap: Callable[[Int32], Any]) -> Staging:
        """Buffers that the engine reads itself; ``wrap`` makes tensors of them."""
        return cls(spec, partial(HostInputs, wrap))

    def set_blocks(self, block_size: int, scratch: tuple[range, ...]) -> None:
        """State the tokens of a KV block for the steps to come, and by KV group the blocks that
        the paths of trees may use."""
        self._block_size = block_size
        self._views.clear()  # it is written where inputs are placed
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
        if self._spec.features:
            arrays.append(_features(batch, self._spec.hidden_size))
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
        return cut(batch, self._block_size, self._scratch)

    def _make(self, shape: Shape) -> StepInputs:
        rows, sequences, blocks, wanted, tiles, slots = shape
        groups = len(self._spec.groups)
        shapes: dict[str, tuple[int, ...]] = {
            "block_size": (1,),  # first: it stays where it is
            "tokens": (rows,),
            "positions": (rows,),
            "slot_mapping": (groups, rows),
            "kv_lengths": (groups, sequences),
            "query_starts": (sequences + 1,),
            "block_tables": (groups, sequences, blocks),
            "logit_rows": (wanted,),
        }
        if self._spec.adapters is not None:
            shapes |= {"adapters": (rows,), "logit_adapters": (wanted,)}
        if self._spec.tree:
            shapes |= {"tree_tiles": (groups, 2, tiles), "tree_slots": (groups, 2, slots)}
        if self._spec.features:
            shapes["features"] = (rows, self._spec.hidden_size)
        placed = self._memory.place(shapes)
        if placed.moved:
            self._views.clear()
        if len(self._views) >= _CACHED_SHAPES:
            self._views.pop(next(iter(self._views)))
        placed.views["block_size"][0] = self._block_size
        views = [view for name, view in placed.views.items() if name != "block_size"]
        inputs = StepInputs(
            (rows, sequences, wanted, tiles, slots),
            views,
            [placed.tensors[name] for name in _in_order(shapes)],
            placed.mirror,
        )
        return self._views.setdefault(shape, inputs)


def _in_order(names: Iterable[str]) -> list[str]:
    """The engine's order of a step's inputs: the block size behind those that every engine has."""
    _, *others = names
    return [*others[:_ALWAYS], "block_size", *others[_ALWAYS:]]


def _features(batch: StepBatch, width: int) -> Int32:
    """The bits of the features of all rows [T, D]."""
    if batch.features is None:
        return np.zeros((batch.tokens.size, width), np.int32)
    return np.ascontiguousarray(batch.features, np.float32).view(np.int32)


def _adapter_rows(batch: StepBatch) -> tuple[Int32, Int32]:
    """Slots of the adapters of all rows [T] and of the rows with logits [R]."""
    if batch.adapters is None:
        nobody = np.full(batch.tokens.size, -1, np.int32)
        return nobody, nobody[: batch.logit_rows.size]
    return batch.adapters, batch.adapters[batch.logit_rows]
