"""AdamW, Muon and the learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from .llama import Llama


class Muon(torch.optim.Optimizer):
    """Momentum orthogonalized by five Newton-Schulz steps (K. Jordan et al., 2024), with
    the update's RMS scaled to AdamW's (Liu et al., 2025, arXiv 2502.16982)."""

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        """Update every matrix."""
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "m" not in state:
                    state["m"] = torch.zeros_like(p)
                m = state["m"].mul_(group["momentum"]).add_(p.grad)
                x = p.grad.add(m, alpha=group["momentum"]).to(torch.bfloat16)
                tall = x.shape[0] > x.shape[1]
                x = x.T if tall else x
                x = x / (x.norm() + 1e-7)
                for _ in range(5):
                    y = x @ x.T
                    x = 3.4445 * x + (-4.7750 * y + 2.0315 * (y @ y)) @ x
                x = (x.T if tall else x).float()
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(x, alpha=-group["lr"] * 0.2 * max(p.shape) ** 0.5)


def make_optimizers(model: Llama, lr: float, muon: bool) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or with ``muon`` for all but the matrices of the layers."""
    table = model.model.embed_tokens.weight
    matrices = [p for p in model.parameters() if p.dim() == 2 and p is not table]
    decayed = [p for p in model.parameters() if p.dim() == 2 and (p is table or not muon)]
    plain = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8, fused=True)
    return [adamw, Muon(matrices, lr)] if muon else [adamw]


def learning_rate(step: int, steps: int, peak: float, warmup: int) -> float:
    """Linear warm-up, then a cosine down to 2 % of ``peak``."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))))
