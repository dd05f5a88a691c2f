"""The executor computes what the float32 reference computes, whatever family a model is of."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import torch

from optc.compiling.training.executor import DenseExecutor
from optc.errors import UnsupportedError
from optc.proof.reference.blockwise import BlockwiseReference
from tests.support.families import FAMILIES
from tests.support.models import Dense, dense_model


def reference_logits(model: ir.Model, tokens: np.ndarray) -> np.ndarray:
    reference = BlockwiseReference(model, 1)
    hidden = reference.hidden_states(tokens.astype(np.int32))
    logits = np.concatenate([reference.logits(hidden, tile) for tile in reference.tiles()], -1)
    reference.close()
    return logits


def executed(executor: DenseExecutor, tokens: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        tensors = executor.effective()
        hidden = executor.hidden(torch.from_numpy(tokens), tensors)
        return executor.logits(hidden, tensors).flatten(0, 1).numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_it_computes_what_the_reference_computes(family: str) -> None:
    shape = FAMILIES[family]
    model = dense_model(shape)
    tokens = np.random.default_rng(0).integers(0, shape.vocab, (2, 27))
    got = executed(DenseExecutor(model), tokens)
    np.testing.assert_allclose(got, reference_logits(model, tokens), atol=1e-4)


def test_activations_of_fused_gates_and_interleaved_rotary() -> None:
    shape = Dense(fused=True)
    model = dense_model(shape)
    for node in model.graph:
        if node.op_type == "RotaryEmbedding":
            node.attributes["interleaved"] = ir.AttrInt64("interleaved", 1)
    tokens = np.random.default_rng(1).integers(0, shape.vocab, (1, 11))
    got = executed(DenseExecutor(model), tokens)
    np.testing.assert_allclose(got, reference_logits(model, tokens), atol=1e-4)


def test_a_tied_head_is_one_parameter() -> None:
    tied, apart = (DenseExecutor(dense_model(Dense(tied=tied))) for tied in (True, False))
    assert len(apart.weights) == len(tied.weights) + 1
    assert tied.tensor_of("head.weight") == tied.tensor_of("embed.weight") == "embed.weight"


def test_all_tensors_get_gradients() -> None:
    shape = FAMILIES["gemma2"]
    executor = DenseExecutor(dense_model(shape))
    for parameter in executor.parameters():
        parameter.requires_grad_()
    tensors = executor.effective()
    hidden = executor.hidden(torch.arange(12).reshape(1, 12), tensors)
    executor.logits(hidden, tensors).square().mean().backward()
    without = [n for n, w in executor.weights.items() if next(w.parameters()).grad is None]
    assert without == []


def test_an_operator_of_later_stages_is_refused_by_name() -> None:
    model = dense_model(Dense())
    node = next(node for node in model.graph if node.op_type == "Sigmoid")
    node.op_type = "Hardmax"
    with pytest.raises(UnsupportedError, match="Hardmax has no form in training") as told:
        DenseExecutor(model)
    assert "train the model where it comes from" in told.value.hint
