"""The loss of an ``int8-fused`` engine on random weights, beside that of a fake quantization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedModel

from benchmarks.families import fake_quantization, models
from benchmarks.families.tiny import VOCABULARY
from optc import registry
from optc.artifact.artifact import Artifact
from optc.proof.reference.teacher_forcing import SingleSequence, window_logits

#: Sequences and tokens of each: enough that a choice of other experts here and there evens out.
SHAPE = (12, 96)
#: The engine may lose this much more than the fake quantization.
ALLOWED = 1.2

Logits = npt.NDArray[np.float32]


def int8_loss(model: PreTrainedModel, artifact: Path) -> dict[str, Any]:
    """Mean KL to transformers' float32, of the engine and of the fake quantization, and the ratio
    of the two, on the same tokens."""
    ids = np.random.default_rng(1).integers(4, VOCABULARY, SHAPE)
    expected = models.logits(model, ids)
    engine = mean_kl(expected, engine_logits(artifact, ids))
    fake = mean_kl(expected, fake_quantization.logits(model, ids))
    return {"int8_kl": engine, "fake_kl": fake, "int8_ratio": engine / fake}


def engine_logits(artifact: Path, ids: npt.NDArray[np.int64]) -> Logits:
    """Logits of an artifact's engine for tokens [B, S]: [B, S, V]."""
    opened = Artifact.open(artifact)
    entry = opened.choose().entry
    backend = registry.step_backend(entry.backend)
    executable = backend.load(artifact / entry.folder, entry.spec, entry.data, 1)
    try:
        sequence = SingleSequence(executable, ids.shape[1])
        rows = [
            np.concatenate([part.copy() for _, part in window_logits(sequence, one)])
            for one in ids.astype(np.int32)
        ]
    finally:
        executable.close()
    return np.stack(rows)


def mean_kl(expected: Logits, found: Logits) -> float:
    """Mean over all tokens of KL(expected ‖ found), in nats, from logits [..., V] in float64."""
    p, q = _log_softmax(expected), _log_softmax(found)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


def _log_softmax(x: Logits) -> npt.NDArray[np.float64]:
    z = x.astype(np.float64)
    z -= z.max(axis=-1, keepdims=True)
    found: npt.NDArray[np.float64] = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
    return found
