"""Tiny engines of the backend, built from decoders in the dense form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from optc.backend import BuildOptions
from optc.backends.onnxruntime.build import build_engine
from optc.backends.onnxruntime.executable import SlotExecutable
from optc.backends.onnxruntime.loader import load_engine
from optc.runtime.executable.executable import StepBatch
from optc.system.hardware.target import parse_target
from tests.support import families
from tests.support.families import model_after
from tests.support.ir_text import Array
from tests.support.models import Dense

#: Heads as wide as the operator for attention wants them: multiples of 8, rotary of 16.
FAMILIES = {
    **{
        name: replace(families.FAMILIES[name], head_dim=16, rotary_dim=16)
        for name in ("llama", "qwen3", "gemma2", "olmo2", "starcoder2", "sinks", "chunks")
    },
    "phi3": Dense(head_dim=32, rotary_dim=16, fused=True),
    "stablelm": replace(families.FAMILIES["stablelm"], head_dim=16),  # 4 of 16 are rotated
    "odd heads": Dense(head_dim=6, rotary_dim=4),
    "no positions": families.FAMILIES["no positions"],
    "alibi": families.FAMILIES["alibi"],
}
OPTIONS = BuildOptions(max_context=64, max_rows=32, max_sequences=6, max_logit_rows=24)


def open_engine(shape: Dense, spec: str, folder: Path, **limits: int) -> SlotExecutable:
    """An engine for ``shape`` after the passes of ``spec``."""
    model = model_after(spec, shape)
    build = build_engine(model, parse_target("native"), folder, replace(OPTIONS, **limits))
    return load_engine(folder, build.spec, build.backend_data, threads=1)


class Driver:
    """Feeds an engine as the runtime does: sequences in slots, any rows in a step."""

    def __init__(self, engine: SlotExecutable, slots: int = 4, tokens: int = 64) -> None:
        self.engine = engine
        engine.allocate_kv((slots,), tokens)
        self.tokens = tokens
        self.slots: dict[int, int] = {}
        self.lengths: dict[int, int] = {}

    def step(
        self, rows: dict[int, list[int]], slots: dict[int, int], wanted: list[int] | None = None
    ) -> Array:
        """Logits of all rows of the step, or of ``wanted``; ``slots`` of sequences that begin."""
        for s, slot in slots.items():
            self.slots[s], self.lengths[s] = slot, 0
        counts = [len(tokens) for tokens in rows.values()]
        before = [self.lengths[s] for s in rows]
        ends = np.cumsum([0, *counts])
        positions = np.concatenate(
            [np.arange(b, b + n) for b, n in zip(before, counts, strict=True)]
        )
        held = np.array([self.slots[s] for s in rows])
        for s, tokens in rows.items():
            self.lengths[s] += len(tokens)
        batch = StepBatch(
            tokens=np.concatenate(list(rows.values())).astype(np.int32),
            positions=positions.astype(np.int32),
            slot_mapping=(np.repeat(held, counts) * self.tokens + positions)[None].astype(np.int32),
            query_starts=ends.astype(np.int32),
            kv_lengths=np.array([[self.lengths[s] for s in rows]], np.int32),
            block_tables=held[None, :, None].astype(np.int32),
            logit_rows=np.arange(ends[-1], dtype=np.int32)
            if wanted is None
            else np.array(wanted, np.int32),
        )
        return self.engine.step(batch).copy()
