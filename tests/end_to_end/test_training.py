"""What is trained is the model: logits of one that was really trained are the reference's."""

from __future__ import annotations

import numpy as np
import torch

from optc.compiling.training.executor import DenseExecutor
from optc.compiling.training.student import import_dense
from optc.proof.reference.blockwise import BlockwiseReference
from optc.system.progress import no_progress
from tests.conftest import MODELS

MODEL = MODELS / "pycode-draft"


def test_logits_are_those_of_the_reference() -> None:
    model = import_dense(MODEL, no_progress, allow_remote_code=False).model
    tokens = np.random.default_rng(0).integers(0, 4096, (2, 64)).astype(np.int32)
    reference = BlockwiseReference(model, 1)
    hidden = reference.hidden_states(tokens)
    wanted = np.concatenate([reference.logits(hidden, tile) for tile in reference.tiles()], -1)
    reference.close()
    executor = DenseExecutor(model)
    with torch.no_grad():
        tensors = executor.effective()
        states = executor.hidden(torch.from_numpy(tokens.astype(np.int64)), tensors)
        got = executor.logits(states, tensors).flatten(0, 1).numpy()
    assert np.abs(got - wanted).max() < 1e-4
