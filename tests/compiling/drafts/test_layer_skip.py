"""The first layers and the head of a model, against its own intermediate value."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from optc.compiling.drafts.layer_skip import keep_first_layers
from optc.errors import InputError, UnsupportedError
from optc.proof.reference.partition import partition
from tests.support.models import Dense, dense_model

SHAPE = Dense(windows=(0, 5, 0))


def run(model: ir.Model, outputs: int) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    tokens = np.random.default_rng(1).integers(0, SHAPE.vocab, (1, 9))
    inputs = {"input_ids": tokens, "position_ids": np.arange(9)[None]}
    return session.run(None, inputs)[:outputs]


@pytest.mark.parametrize("count", [1, 2])
def test_the_logits_are_those_of_the_stream_after_the_kept_layers(count: int) -> None:
    whole = dense_model(SHAPE)
    parts = partition(whole)
    stream, hidden = parts.blocks[count - 1].result, parts.head.inputs[0]
    assert hidden is not None
    norm = hidden.producer()
    assert norm is not None
    scale = ir.convenience.get_const_tensor(norm.inputs[1])
    head = ir.convenience.get_const_tensor(parts.head.inputs[1])
    assert scale is not None
    assert head is not None
    whole.graph.outputs.append(stream)
    x = run(whole, 2)[1].astype(np.float64)
    epsilon = norm.attributes["epsilon"].as_float()
    normed = x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * scale.numpy()
    expected = normed @ head.numpy()
    cut = dense_model(SHAPE)
    keep_first_layers(cut, count)
    np.testing.assert_allclose(run(cut, 1)[0], expected, atol=1e-4)
    assert sum(node.op_type == "Attention" for node in cut.graph) == count
    assert set(cut.graph.initializers) < set(whole.graph.initializers), "names stay"


@pytest.mark.parametrize("count", [0, 3, 4])
def test_all_layers_or_none_are_no_draft(count: int) -> None:
    with pytest.raises(InputError) as caught:
        keep_first_layers(dense_model(SHAPE), count)
    assert str(caught.value) == f"--self-draft: {count} of 3 layers (1 to 2)"


def test_a_head_without_norm_is_not_taken() -> None:
    model = dense_model(SHAPE)
    head = partition(model).head
    hidden = head.inputs[0]
    assert hidden is not None
    norm = hidden.producer()
    assert norm is not None
    head.replace_input_with(0, norm.inputs[0])
    with pytest.raises(UnsupportedError, match="no norm between the last layer and the head"):
        keep_first_layers(model, 1)
