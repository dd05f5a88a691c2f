"""Recurrent layers over sequences whose length differs from call to call, beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from optc.importer.tensors.program import import_module
from optc.system.sources.dim import Dim
from tests.support.ragged import run

DIMS = {0: Dim("first", 1, 64), 1: Dim("second", 1, 64)}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.LSTM(4, 3, bidirectional=True),
        torch.nn.GRU(4, 3, num_layers=2, bias=False),
        torch.nn.RNN(4, 3, num_layers=2, bidirectional=True),
        torch.nn.RNN(4, 3, nonlinearity="relu", bias=False),
    ],
)
def test_length_and_batch_differ(layer: torch.nn.RNNBase, batch_first: bool) -> None:
    layer.batch_first = batch_first
    found = import_module(layer, "layer", (torch.zeros(2, 5, 4),), {}, {"input": DIMS})
    outputs = found.interface.outputs
    assert outputs[0].dims == ("first", "second", layer(torch.zeros(2, 5, 4))[0].shape[-1])
    for first, second in ((2, 5), (1, 1), (7, 3)):
        x = torch.randn(first, second, 4, generator=torch.Generator().manual_seed(first))
        with torch.no_grad():
            output, states = layer(x)
        wanted = [output, *(states if isinstance(states, tuple) else (states,))]
        for ours, theirs in zip(run(found.model, {"input": x.numpy()}), wanted, strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-6)


def test_states_may_be_given_and_pytorch_computes_as_before() -> None:
    layer, x, state = torch.nn.RNN(4, 3), torch.randn(5, 2, 4), torch.randn(1, 2, 3)
    before = layer(x, state)[0]
    dims = {"input": {0: Dim("steps", 1, 64)}}
    found = import_module(layer, "layer", (x, state), {}, dims)
    np.testing.assert_array_equal(layer(x, state)[0].detach(), before.detach())
    ours = run(found.model, {"input": x.numpy(), "hx": state.numpy()})[0]
    np.testing.assert_allclose(ours, before.detach().numpy(), rtol=1e-5, atol=1e-6)
