"""Random weights that say something: gates, biases and norms are none that do nothing."""

from __future__ import annotations

import torch

from benchmarks.models.random_weights import enliven, is_alive


def test_what_a_class_sets_to_one_value_becomes_random() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
    module[0].bias.data.zero_()
    weight = module[0].weight.detach().clone()
    x = torch.randn(4, 3, 9, 9) + 2
    enliven(module, (x,))
    assert torch.equal(module[0].weight, weight)
    assert len(module[0].bias.unique()) == len(module[1].weight.unique()) == 8
    assert not module.training
    norm = module[1]
    wanted = module[0](torch.cat([torch.randn_like(x) for _ in range(8)]))
    assert torch.allclose(norm.running_mean, wanted.mean((0, 2, 3)), atol=0.3)
    assert torch.allclose(norm.running_var, wanted.var((0, 2, 3)), rtol=0.3)


def test_a_gate_of_almost_nothing_opens() -> None:
    module = torch.nn.LayerNorm(64)
    module.weight.data.fill_(1e-6)
    enliven(module, (torch.randn(2, 64),))
    assert 0.05 < float(module.weight.abs().mean()) < 0.2


def test_outputs_that_no_input_changes_are_not_alive() -> None:
    one, other = torch.randn(2, 3), torch.randn(2, 3)
    ids = torch.tensor([1])
    assert is_alive([ids, one], [ids, other])
    assert not is_alive([ids, one], [ids, one + 1e-6])
    assert not is_alive([one * float("nan")], [other])
