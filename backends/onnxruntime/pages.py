"""A loaded engine over paged KV: one call of the model a step. Needs NumPy and onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from optc.backends.onnxruntime.calls import check_linear
from optc.backends.onnxruntime.memory import (
    Bytes,
    Memory,
    check_inside,
    read_blocks,
    write_blocks,
)
from optc.backends.onnxruntime.slots import MakeMemory
from optc.errors import InputError
from optc.runtime.executable.adapter_spec import ModuleWeights
from optc.runtime.executable.executable import Float32, Int32, StepBatch, StepInterface
from optc.runtime.executable.step_limits import check_limits
from optc.runtime.executable.token_runs import token_runs

_TYPE = np.dtype(np.float16)


class PagedExecutable:
    """A model over pages behind `optc.runtime.executable.executable.Executable`. Use it from one
    thread.

    Args:
        session: ``onnxruntime.InferenceSession`` of the model.
        spec: Its limits; ``kv_layout`` is ``paged``.
        memory: Gives memory for pools where the session runs.
    """

    def __init__(self, session: Any, spec: StepInterface, memory: MakeMemory) -> None:
        self.spec = spec
        self._session: Any = session
        self._inputs = {value.name for value in session.get_inputs()}
        self._make = memory
        self._block_size = 0
        self._blocks: tuple[int, ...] = ()
        self._pools: dict[str, Memory] = {}

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        """Allocate pools of blocks of ``block_size`` tokens.

        Raises:
            InputError: ``block_size`` is not a power of two from ``spec.block_multiple`` on, the
                number of groups differs, or the engine is closed.
        """
        if self._session is None:
            raise InputError("the engine is closed", where="allocate_kv")
        multiple = self.spec.block_multiple
        if block_size < multiple or block_size & (block_size - 1):
            raise InputError(
                f"block size {block_size} is not a power of two from {multiple} on, which "
                "PagedAttention wants",
                where="allocate_kv",
            )
        if len(blocks_per_group) != len(self.spec.groups):
            raise InputError(
                f"blocks for {len(blocks_per_group)} groups; the engine has "
                f"{len(self.spec.groups)}",
                where="allocate_kv",
            )
        self._pools = {}
        self._block_size, self._blocks = block_size, blocks_per_group
        for index, layer in enumerate(self.spec.layers):
            shape = (blocks_per_group[layer.group], block_size, layer.kv_heads, layer.key_dim)
            for kind in ("key", "value"):
                self._pools[f"{kind}_cache.{index}"] = self._make(shape, _TYPE)

    def step(self, batch: StepBatch) -> Float32:
        """Run one ragged step; returns logits [R, V].

        Raises:
            InputError: The batch exceeds the engine's limits, or no pools were allocated.
        """
        if not self._pools:
            raise InputError("no KV pools: call allocate_kv first", where="step")
        check_limits(batch, self.spec)
        check_linear(batch)
        binding = self._session.io_binding()
        feeds = {n: a for n, a in inputs_of(batch).items() if n in self._inputs}
        for name, array in feeds.items():
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        for name, pool in self._pools.items():
            where = (pool.device, 0, pool.dtype, pool.shape, pool.address(0))
            binding.bind_input(name, *where)
            binding.bind_output(f"{name}.out", *where)
        logits = np.zeros((batch.logit_rows.size, self.spec.vocab_size), np.float32)
        binding.bind_output("logits", "cpu", 0, logits.dtype, logits.shape, logits.ctypes.data)
        self._session.run_with_iobinding(binding)
        return logits

    def copy_kv(self, group: int, src_slots: Int32, dst_slots: Int32) -> None:
        """Copy K and V of ``src_slots`` [n] to ``dst_slots`` [n] in every layer of ``group``,
        one pair after the other.

        Raises:
            InputError: A slot lies outside of the pools.
        """
        limit = self._blocks[group] * self._block_size if self._blocks else 0
        check_inside(np.stack([src_slots, dst_slots]), limit, "slots", "copy_kv")
        pools = self._of_group(group)
        for source, target, count in token_runs(src_slots, dst_slots, limit):
            for pool in pools:
                # blocks lie one after the other, and so do their tokens
                token = math.prod(pool.shape[2:]) * pool.dtype.itemsize
                size = limit * token
                pool.copy_rows(target * token, source * token, count * token, 1, size)
        for pool in pools[:1]:
            pool.wait()

    def read_blocks(self, group: int, blocks: Int32) -> Bytes:
        """Contents [n, bytes] of blocks [n] in all layers of ``group``.

        Raises:
            InputError: There is no such block.
        """
        return read_blocks(self._of_group(group), blocks)

    def write_blocks(self, group: int, blocks: Int32, data: Bytes) -> None:
        """Replace the contents of blocks [n] by what `read_blocks` gave.

        Raises:
            InputError: There is no such block.
        """
        write_blocks(self._of_group(group), blocks, data)

    def write_adapter(self, slot: int, modules: Sequence[ModuleWeights | None]) -> None:
        """There are none.

        Raises:
            InputError: Always.
        """
        raise InputError("the engine takes no LoRA adapters", where="onnxruntime engine")

    def close(self) -> None:
        """Release session and pools; the engine cannot be used afterwards."""
        self._session = None
        self._pools = {}

    def _of_group(self, group: int) -> list[Memory]:
        layers = self.spec.groups[group].layers
        return [self._pools[f"{kind}_cache.{i}"] for i in layers for kind in ("key", "value")]


def inputs_of(batch: StepBatch) -> dict[str, Int32]:
    """The model's inputs beside the pools. Bounds are rounded up to powers of two, so that they
    hold for the steps to come as well."""
    fresh = np.diff(batch.query_starts)
    bounds = [_power_of_two(int(x)) for x in (fresh.max(), batch.kv_lengths.max())]
    feeds = {
        "tokens": batch.tokens,
        "positions": batch.positions,
        "logit_rows": batch.logit_rows,
        "cumulative_sequence_length": batch.query_starts,
        "attention_metadata": np.array(bounds, np.int32),
    }
    for g, lengths in enumerate(batch.kv_lengths):
        feeds[f"past_seqlens.{g}"] = lengths - fresh
        # released blocks (-1) lie behind the window: whoever reads a table finds a block
        feeds[f"block_table.{g}"] = np.maximum(batch.block_tables[g], 0)
        feeds[f"slot_mapping.{g}"] = batch.slot_mapping[g]
    return {name: np.ascontiguousarray(array, np.int32) for name, array in feeds.items()}


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
