#!/usr/bin/env python3
"""Train Medusa heads (Cai et al., 2024) for a frozen Hugging Face model, on a CPU in minutes.

    train_medusa.py MODEL --text examples/text/code_calibration.jsonl --out MODEL-medusa

Head k guesses the token k places after the next one from the model's last hidden state x (behind
the last norm): one residual block ``x + SiLU(W x + b)``, then the model's own head, which stays
frozen, so that a head is a D x D matrix. Its target is the model's own distribution at that place
of the text (self-distillation), because that is what a draft must meet to be accepted.

Writes ``medusa_heads.safetensors`` (bf16, named as the authors' checkpoints name them:
``K.0.linear.weight``, ``K.0.linear.bias``) and ``config.json`` with the measured rates: how often
the model's most likely token is the head's r-th guess, on windows that were not trained on.

Needs: torch, transformers, safetensors.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

#: One window in this many is kept for measuring.
HELD_BACK = 16
#: Ranks whose rates are measured.
RANKS = 10
#: Folders of a source tree that are left out.
SKIPPED = {"test", "tests", "site-packages", "__pycache__"}


class Heads(nn.Module):
    """K residual blocks; weights start at zero, so that each head starts as the model's own."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(count))
        for block in self.blocks:
            nn.init.zeros_(block.weight)
            nn.init.zeros_(block.bias)

    def forward(self, x: Tensor, head: int) -> Tensor:
        """Hidden states [..., D] of head ``head``."""
        return x + F.silu(self.blocks[head](x))


def read_texts(files: list[Path], sources: list[Path], excluded: list[Path]) -> list[str]:
    """Documents of JSON-lines files and of Python files, without those named in ``excluded``."""
    hidden = {name for file in excluded for name, _ in documents(file)}
    texts = [text for file in files for name, text in documents(file) if name not in hidden]
    for folder in sources:
        found = [(file.relative_to(folder).as_posix(), file) for file in folder.rglob("*.py")]
        texts += [
            file.read_text(errors="replace")
            for name, file in sorted(found)
            if name not in hidden and not SKIPPED & set(name.split("/"))
        ]
    random.Random(0).shuffle(texts)
    return texts


def documents(file: Path) -> list[tuple[str, str]]:
    """Names and texts of a JSON-lines file."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [(row["name"], row["text"]) for row in rows]


@torch.no_grad()
def hidden_states(model: nn.Module, windows: Tensor, batch: int) -> Tensor:
    """[N, S, D] last hidden states of windows [N, S], in bfloat16."""
    parts = [model.model(window).last_hidden_state.bfloat16() for window in windows.split(batch)]
    return torch.cat(parts)


def distillation_loss(heads: Heads, lm_head: Tensor, hidden: Tensor) -> Tensor:
    """Cross-entropy of every head [B, S, D] against the model's distribution, summed."""
    with torch.no_grad():
        teacher = (hidden @ lm_head.T).softmax(-1)
    loss = torch.zeros(())
    for head in range(len(heads.blocks)):
        ahead = head + 1
        guess = heads(hidden[:, :-ahead], head) @ lm_head.T
        target = teacher[:, ahead:]
        loss = loss + F.cross_entropy(guess.flatten(0, 1), target.flatten(0, 1))
    return loss


@torch.no_grad()
def measure_rates(heads: Heads, lm_head: Tensor, hidden: Tensor) -> list[list[float]]:
    """By head and rank: how often that guess is the model's most likely token."""
    rates = []
    for head in range(len(heads.blocks)):
        hits = torch.zeros(RANKS)
        total = 0
        for window in hidden.split(8):
            x = window.float()
            best = (x @ lm_head.T).argmax(-1)[:, head + 1 :]
            guesses = (heads(x[:, : -(head + 1)], head) @ lm_head.T).topk(RANKS).indices
            hits += (guesses == best[..., None]).flatten(0, 1).float().sum(0)
            total += best.numel()
        rates.append([round(float(rate), 4) for rate in hits / total])
    return rates


def train(heads: Heads, lm_head: Tensor, hidden: Tensor, arguments: argparse.Namespace) -> None:
    """AdamW with a cosine schedule over random windows."""
    optimizer = torch.optim.AdamW(heads.parameters(), lr=arguments.rate, weight_decay=0.01)
    started = time.time()
    for step in range(arguments.steps):
        part = (step + 1) / arguments.steps
        warm = min(1.0, (step + 1) / 20)
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * warm * 0.5 * (1 + math.cos(math.pi * part))
        chosen = torch.randint(len(hidden), (arguments.batch,))
        loss = distillation_loss(heads, lm_head, hidden[chosen].float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step + 1 == arguments.steps:
            print(f"step {step} loss {float(loss):.4f} {time.time() - started:.0f} s", flush=True)


def save(heads: Heads, rates: list[list[float]], out: Path) -> None:
    """The heads in bfloat16 and what was measured."""
    out.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for index, block in enumerate(heads.blocks):
        tensors[f"{index}.0.linear.weight"] = block.weight.detach().bfloat16().contiguous()
        tensors[f"{index}.0.linear.bias"] = block.bias.detach().bfloat16().contiguous()
    save_file(tensors, out / "medusa_heads.safetensors")
    config = {"medusa_num_heads": len(rates), "medusa_num_layers": 1, "accept_rates": rates}
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def main() -> None:
    """Encode, cache the hidden states, train, measure, save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="JSON-lines files")
    parser.add_argument("--source", type=Path, nargs="*", default=[], help="folders of *.py")
    parser.add_argument("--exclude", type=Path, nargs="*", default=[], help="JSON-lines files")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=400_000, help="most tokens of text")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8, help="windows a step")
    parser.add_argument("--rate", type=float, default=1e-3)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
    ids: list[int] = []
    for text in read_texts(arguments.text, arguments.source, arguments.exclude):
        encoded = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += [tokenizer.bos_token_id, *encoded, tokenizer.eos_token_id]
    ids = ids[: arguments.tokens]
    count = len(ids) // arguments.window
    windows = torch.tensor(ids[: count * arguments.window]).view(count, arguments.window)
    print(f"{count} windows of {arguments.window} tokens", flush=True)
    hidden = hidden_states(model, windows, arguments.batch)
    measured = torch.arange(count) % HELD_BACK == 0
    lm_head = model.lm_head.weight.detach()
    heads = Heads(arguments.heads, lm_head.shape[1])
    train(heads, lm_head, hidden[~measured], arguments)
    rates = measure_rates(heads, lm_head, hidden[measured])
    for head, row in enumerate(rates):
        print(f"head {head + 1}: {row}")
    save(heads, rates, arguments.out)


if __name__ == "__main__":
    main()
