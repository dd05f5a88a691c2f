"""An engine that drafts on the KV pools of its target."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from optc.backends.tvm import BACKEND
from optc.errors import InputError
from optc.runtime.executable.executable import Float32, SharingExecutable, StepBatch
from optc.runtime.executable.shared_kv import can_share
from tests.backends.tvm.engine_driver import Engine, EngineDriver, build_first_layer
from tests.runtime.support.toy import ToyExecutable, toy_spec

GetEngine = Callable[[str], Engine]


def test_the_first_layers_draft_without_having_read_the_text(
    engines: GetEngine, tmp_path: Path
) -> None:
    built = engines("fp32")
    owner = replace(built, folder=shutil.copytree(built.folder, tmp_path / "target"))
    made = build_first_layer(owner, tmp_path / "self")
    spec = structs.replace(made.build.spec, shared_kv=(0,))
    assert can_share(spec, owner.build.spec)

    target = EngineDriver(owner.load())
    draft = BACKEND.load(made.folder, spec, made.build.backend_data, 2)
    assert isinstance(draft, SharingExecutable)
    with pytest.raises(InputError, match=r"^share_kv: the target is of another backend$"):
        draft.share_kv(ToyExecutable(toy_spec()))
    alone = EngineDriver(made.load())
    prompts = {0: [5, 9, 2, 17, 3], 1: [7]}
    target.step(prompts)
    alone.step(prompts)
    draft.share_kv(target.engine)

    def drafted(batch: StepBatch) -> Float32:
        """Of the target's KV groups, the draft has the first."""
        return draft.step(
            replace(
                batch,
                slot_mapping=batch.slot_mapping[:1],
                kv_lengths=batch.kv_lengths[:1],
                block_tables=batch.block_tables[:1],
            )
        ).copy()

    for rows in ({0: [1], 1: [3, 3]}, {1: [8]}):
        batch = target.sequences.batch(rows)
        np.testing.assert_allclose(drafted(batch), alone.step(rows), atol=1e-5)
        target.engine.step(batch)  # writes the same slots
    fresh = EngineDriver(owner.load())
    for rows in (prompts, {0: [1], 1: [3, 3]}, {1: [8]}):
        fresh.step(rows)
    rows = {0: [4], 1: [6]}
    np.testing.assert_array_equal(target.step(rows), fresh.step(rows))
    target.engine.close()
    draft.close()
