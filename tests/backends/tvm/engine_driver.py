"""Builds tiny engines and drives them, beside ONNX Runtime on the same ragged model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort
import pytest

from optc.backend import Backend, BuildOptions, EngineBuild, SharedWeights
from optc.backends.tvm import BACKEND
from optc.backends.tvm_cuda import BACKEND as CUDA_BACKEND
from optc.compiling.drafts.layer_skip import keep_first_layers
from optc.ir.forms.ragged import RaggedStep
from optc.runtime.executable.executable import Executable, Float32, StepBatch
from optc.system.hardware.target import parse_target
from tests.support.families import FUSED, model_after
from tests.support.models import Dense, dense_model
from tests.support.pipelines import pipeline_of
from tests.support.shared import made_once

INT8 = f"{FUSED},quantize-weights,fuse-norm-quantize"
INT4 = f"{FUSED},quantize-weights{{bits=4,group_size=32,symmetric=false}},fuse-norm-quantize"
INT4_TWO_LEVEL = INT4.replace("symmetric=false", "symmetric=false,group_scales=int,head_bits=6")
INT4_A16 = INT4_TWO_LEVEL.replace("bits=4", "bits=4,activation_bits=16", 1)
#: Some layers read 16 bits, the others and the head 8.
INT6_MIXED = INT4_A16.replace("bits=4", "bits=6,activation_layers=[0.down.weight]", 1)
BF16 = f"{FUSED},cast-weights"
BF16_KV = BF16.replace("kv-cache", "kv-cache{dtype=bfloat16}")
FUSED_KV4, FUSED_KV8, FUSED_KV16 = (
    FUSED.replace("kv-cache", f"kv-cache{{dtype={t}}}")
    for t in ("int4,query_bits=8,recent=20", "int8", "bfloat16")
)
_NARROW_KV = re.compile(r"kv-cache\{[^}]*dtype=(?!float32)")
INT8_KV = INT8.replace("kv-cache", "kv-cache{dtype=int8}")

#: GQA, two KV groups, both softcaps; widths chosen so that layers and head share two matmuls.
SHAPE = Dense(
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    inner=64,
    vocab=128,
    windows=(0, 24),
    softcap=4.0,
    logit_softcap=6.0,
    rotary_dim=16,
    tied=True,
)
OPTIONS = BuildOptions(max_context=256, max_rows=96, max_sequences=8, max_logit_rows=96)


@dataclass(frozen=True)
class Engine:
    """A built engine with the model it was built from."""

    folder: Path
    model: ir.Model
    build: EngineBuild
    backend: Backend = BACKEND

    def load(self, threads: int = 2) -> Executable:
        """Load it anew."""
        return self.backend.load(self.folder, self.build.spec, self.build.backend_data, threads)


def build(folder: Path, shape: Dense, pipeline: str, target: str) -> Engine:
    """Build a seeded model into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    model = model_after(pipeline, shape)
    wanted = parse_target(target)
    backend: Backend = CUDA_BACKEND if wanted.kind == "cuda" else BACKEND
    return Engine(folder, model, backend.build(model, wanted, folder, OPTIONS), backend)


def shape_for(pipeline: str) -> Dense:
    """`SHAPE`, with heads that the KV type of ``pipeline`` takes, and with a softcap of attention
    where keys and values are float32: one in each type doubles what LLVM does for these engines,
    and is the subject of the kernels' tests."""
    wanted = replace(SHAPE, head_dim=32) if "dtype=int4" in pipeline else SHAPE
    return replace(wanted, softcap=0.0) if _NARROW_KV.search(pipeline) else wanted


def build_once(
    factory: pytest.TempPathFactory,
    name: str,
    pipeline: str,
    target: str = "native",
    shape: Dense | None = None,
) -> Engine:
    """An engine of ``shape``, or of `shape_for`, built once for all tests that ask for ``name``."""
    shape = shape or shape_for(pipeline)

    def make(folder: Path) -> tuple[Path, EngineBuild]:
        return folder, build(folder, shape, pipeline, target).build

    folder, built = made_once(factory, name, make)
    backend: Backend = CUDA_BACKEND if parse_target(target).kind == "cuda" else BACKEND
    return Engine(folder, model_after(pipeline, shape), built, backend)


def build_first_layer(target: Engine, folder: Path) -> Engine:
    """The first layer of a target of `SHAPE` in float32, on the target's weights."""
    model = dense_model(SHAPE)
    keep_first_layers(model, 1)
    pipeline_of(FUSED).run(model)
    folder.mkdir()
    shared = SharedWeights(f"../{target.folder.name}", target.build.backend_data)
    options = replace(OPTIONS, shared=shared)
    return Engine(folder, model, BACKEND.build(model, parse_target("native"), folder, options))


@dataclass
class Sequences:
    """Blocks and lengths of several sequences, tables scrambled, blocks behind windows released."""

    windows: Sequence[int]
    block_size: int
    blocks: int
    seed: int = 0
    lengths: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.free = [[int(b) for b in rng.permutation(self.blocks)] for _ in self.windows]
        self.tables: list[dict[int, list[int]]] = [{} for _ in self.windows]

    def batch(
        self,
        rows: Mapping[int, Sequence[int]],
        wanted: Sequence[int] | None = None,
        parents: npt.NDArray[np.int32] | None = None,
    ) -> StepBatch:
        """The step that appends ``rows`` (tokens by sequence); logits of all rows or ``wanted``.
        ``parents`` is its ``tree_parent``."""
        tokens = [t for new in rows.values() for t in new]
        positions = [self.lengths.get(s, 0) + i for s, new in rows.items() for i in range(len(new))]
        for row, parent in enumerate([] if parents is None else parents):
            positions[row] = positions[row] if parent < 0 else positions[parent] + 1
        for s, new in rows.items():
            self.lengths[s] = self.lengths.get(s, 0) + len(new)
        slots = [
            [x for s, new in rows.items() for x in self._slots(g, s, len(new))]
            for g in range(len(self.windows))
        ]
        starts = np.cumsum([0, *(len(new) for new in rows.values())])
        return StepBatch(
            tokens=np.array(tokens, np.int32),
            positions=np.array(positions, np.int32),
            slot_mapping=np.array(slots, np.int32),
            query_starts=starts.astype(np.int32),
            kv_lengths=np.array([[self.lengths[s] for s in rows]] * len(slots), np.int32),
            block_tables=self._tables(rows),
            logit_rows=np.array(range(len(tokens)) if wanted is None else wanted, np.int32),
            tree_parent=parents,
        )

    def _slots(self, group: int, sequence: int, new: int) -> list[int]:
        table = self.tables[group].setdefault(sequence, [])
        length = self.lengths[sequence]
        while len(table) * self.block_size < length:
            table.append(self.free[group].pop())
        size = self.block_size
        return [table[i // size] * size + i % size for i in range(length - new, length)]

    def _tables(self, rows: Mapping[int, Sequence[int]]) -> npt.NDArray[np.int32]:
        longest = max(len(self.tables[0][s]) for s in rows)
        array = np.full((len(self.windows), len(rows), longest), -1, np.int32)
        for g, window in enumerate(self.windows):
            for b, (s, new) in enumerate(rows.items()):
                oldest = self.lengths[s] - len(new)
                first = max(0, oldest - window + 1) // self.block_size if window else 0
                array[g, b, first : len(self.tables[g][s])] = self.tables[g][s][first:]
        return array


class EngineDriver:
    """Sequences on a loaded engine."""

    def __init__(self, engine: Executable, block_size: int = 16, seed: int = 0) -> None:
        self.engine = engine
        windows = [group.window for group in engine.spec.groups]
        blocks = 1024 // block_size
        self.sequences = Sequences(windows, block_size, blocks, seed)
        engine.allocate_kv((blocks,) * len(windows), block_size)

    def step(
        self,
        rows: Mapping[int, Sequence[int]],
        wanted: Sequence[int] | None = None,
        parents: npt.NDArray[np.int32] | None = None,
    ) -> Float32:
        """Logits of one step, copied."""
        return self.engine.step(self.sequences.batch(rows, wanted, parents)).copy()


class OracleDriver:
    """The same on the ragged model's function bodies in ONNX Runtime."""

    def __init__(self, model: ir.Model, block_size: int = 16) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        self.session = ort.InferenceSession(
            ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        kv = RaggedStep.of(model).kv
        windows = [group.window for group in kv.groups]
        blocks = 1024 // block_size
        self.sequences = Sequences(windows, block_size, blocks, 7)
        self.pools: dict[str, npt.NDArray[Any]] = {}
        for index, layer in enumerate(kv.layers):
            for kind, dim in (("k", layer.key_dim), ("v", layer.value_dim)):
                shape = (blocks, layer.kv_heads, block_size, dim)
                self.pools[f"{kind}_pool.{index}"] = np.zeros(shape, np.float32)

    def step(
        self,
        rows: Mapping[int, Sequence[int]],
        wanted: Sequence[int] | None = None,
        parents: npt.NDArray[np.int32] | None = None,
    ) -> Float32:
        """Logits of one step."""
        batch = self.sequences.batch(rows, wanted, parents)
        feeds = {**vars(batch), **self.pools}
        used = {value.name for value in self.session.get_inputs()}
        outputs: list[Any] = self.session.run(None, {k: v for k, v in feeds.items() if k in used})
        logits, *pools = outputs
        self.pools = dict(zip(self.pools, pools, strict=True))
        result: Float32 = logits
        return result
