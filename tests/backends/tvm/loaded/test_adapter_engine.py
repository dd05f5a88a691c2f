"""LoRA adapters on quantized engines: against the function bodies, and alike in any batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optc.runtime.executable.adapter_spec import AdapterSpec, ModuleWeights
from optc.runtime.executable.executable import Executable
from tests.backends.tvm.engine_driver import (
    INT4_A16,
    INT8,
    SHAPE,
    EngineDriver,
    build_once,
)
from tests.support.families import model_after
from tests.support.ragged import RaggedDriver

ROWS = {0: [5, 6, 7, 8, 9], 1: [1, 2], 2: [99]}
#: The adapter of each sequence.
SLOTS = {0: 1, 1: -1, 2: 0}


def weights(spec: AdapterSpec) -> list[list[ModuleWeights]]:
    """Of each slot, large enough to change what is said."""
    rng = np.random.default_rng(0)

    def random(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.1).astype(np.float32)

    return [
        [
            ModuleWeights(
                random(module.k, len(module.parts) * spec.rank), random(spec.rank, module.n)
            )
            for module in spec.modules
        ]
        for _ in range(spec.max)
    ]


def logits(executable: Executable, slots: dict[int, int]) -> np.ndarray:
    """Of all rows, each sequence with its adapter."""
    driver = EngineDriver(executable)
    batch = driver.sequences.batch({s: ROWS[s] for s in slots})
    of_rows = [slot for s, slot in slots.items() for _ in ROWS[s]]
    step = replace(batch, adapters=np.array(of_rows, np.int32))
    return executable.step(step).copy()


def oracle_logits(pipeline: str, spec: AdapterSpec, every: list[list[ModuleWeights]]) -> np.ndarray:
    """Of all rows, by the function bodies."""
    oracle = RaggedDriver(model_after(pipeline, SHAPE))
    rows = np.array([slot for s, slot in SLOTS.items() for _ in ROWS[s]], np.int32)
    oracle.more_feeds = {"adapters": rows, "logit_adapters": rows}
    for index in range(len(spec.modules)):
        a, b = (np.stack([getattr(one[index], part) for one in every]) for part in "ab")
        oracle.more_feeds |= {f"adapter_a.{index}": a, f"adapter_b.{index}": b}
    return oracle.step(ROWS)


@pytest.mark.parametrize(("name", "pipeline"), [("int8", INT8), ("int4-a16", INT4_A16)])
def test_adapters_equal_the_function_bodies_in_any_batch(
    tmp_path_factory: pytest.TempPathFactory, name: str, pipeline: str
) -> None:
    pipeline = f"{pipeline},adapters{{max=2,rank=16}}"
    executable = build_once(tmp_path_factory, f"engine-adapters-{name}", pipeline).load()
    spec = executable.spec.adapters
    assert spec is not None
    every = weights(spec)
    plain = logits(executable, SLOTS)
    for slot, modules in enumerate(every):
        executable.write_adapter(slot, modules)
    together = logits(executable, SLOTS)
    assert np.array_equal(together[5:7], plain[5:7])  # without an adapter
    assert np.abs(together[:5] - plain[:5]).max() > 0.5
    alone = np.concatenate([logits(executable, {s: slot}) for s, slot in SLOTS.items()])
    assert np.array_equal(together, alone)
    want = oracle_logits(pipeline, spec, every)
    np.testing.assert_allclose(together, want, atol=0.05 if name == "int8" else 1e-3)
