"""Engines on a GPU. Nothing here runs without one; the reason is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from optc import registry
from optc.backend import BuildOptions
from optc.backends.tensorrt.loading import load_engine
from optc.backends.tensorrt.provider import missing_reason
from optc.runtime.executable.executable import Executable
from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import cuda_target
from tests.backends.tensorrt.test_plan import step
from tests.support.families import model_after
from tests.support.models import Dense, dense_model
from tests.support.ragged import run_dense

_REASON = missing_reason() or this_machine().no_cuda
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(_REASON), reason=_REASON)]
SHAPE = Dense(hidden=64, heads=4, kv_heads=2, head_dim=32, rotary_dim=32, inner=128, vocab=128)


@pytest.fixture
def executable(tmp_path: Path) -> Executable:
    target = cuda_target(this_machine().sm[0])
    backend = registry.backend("tensorrt")
    if reason := backend.takes(target):
        pytest.skip(reason)
    model = model_after("fuse-qkv,fuse-gate-up,kv-cache,fuse-rotary", SHAPE)
    options = BuildOptions(max_context=64, max_rows=32, max_sequences=4)
    built = backend.build(model, target, tmp_path, options)
    loaded = load_engine(tmp_path, built.spec, built.backend_data)
    loaded.allocate_kv((4,), 64)
    return loaded


def test_steps_equal_the_dense_model(executable: Executable) -> None:
    dense, rng = dense_model(SHAPE), np.random.default_rng(0)
    texts: dict[int, list[int]] = {}
    for rows in ({0: 20, 2: 5}, {0: 1, 2: 1}, {0: 1, 2: 4, 1: 30}, {0: 1, 1: 1, 2: 1}) * 2:
        new = {slot: rng.integers(0, SHAPE.vocab, count).tolist() for slot, count in rows.items()}
        batch = step(
            {
                slot: (len(texts.get(slot, [])), len(tokens), [len(tokens) - 1])
                for slot, tokens in new.items()
            }
        )
        flat = np.array([token for tokens in new.values() for token in tokens], np.int32)
        logits = executable.step(batch.__class__(**{**batch.__dict__, "tokens": flat}))
        for place, (slot, tokens) in enumerate(new.items()):
            texts.setdefault(slot, []).extend(tokens)
            want = run_dense(dense, texts[slot])[-1]
            assert np.abs(logits[place] - want).max() < 0.02 * np.abs(want).max()
        if max(map(len, texts.values())) > 30:
            texts.clear()
    executable.close()
