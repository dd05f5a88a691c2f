#!/usr/bin/env python3
"""Train Medusa heads (Cai et al., 2024) for a frozen Hugging Face model, on a CPU in minutes.

    optc compile MODEL --recipe int8-fused -o ARTIFACT
    train_medusa.py MODEL --own ARTIFACT --text FILE.jsonl --source FOLDER --out MODEL-medusa

The shipped heads were trained with ``--own`` (`examples/README.md`). Head k guesses the token k
places after the next one from the model's last hidden state x (behind the last norm): one residual
block ``x + SiLU(W x + b)``, then the model's own head, which stays frozen, so that a head is a
D x D matrix. Its target is the model's own distribution at that place (self-distillation), because
that is what a draft must meet to be accepted.

Heads only ever draft behind what the model itself has said, which is not like the text that it was
trained on: a small model repeats itself. So with ``--own`` an artifact of the model goes on from
the first `BEGINNING` tokens of each window of text, every other time greedily and else at
temperature 0.7, and the heads see nothing but what it said. Without, they are trained on the text.

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

import optc

#: One window in this many is kept for measuring.
HELD_BACK = 16
#: Ranks whose rates are measured.
RANKS = 10
#: Tokens of a window that the model goes on from, and the temperatures of that, in turns.
BEGINNING, TEMPERATURES = 64, (0.0, 0.7)
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


def own_windows(artifact: Path, beginnings: list[list[int]], size: int) -> Tensor:
    """Windows [N, size] of which an artifact of the model wrote all but the beginnings."""
    params = [
        optc.SamplingParams(
            temperature=TEMPERATURES[seed % len(TEMPERATURES)],
            max_tokens=size - len(beginning),
            seed=seed,
            ignore_eos=True,
        )
        for seed, beginning in enumerate(beginnings)
    ]
    with optc.load(artifact, prefix_cache=False) as engine:
        outputs = engine.generate(beginnings, params)
    said = [list(output.raise_for_error().token_ids) for output in outputs]
    return torch.tensor([[*a, *b] for a, b in zip(beginnings, said, strict=True)])


@torch.no_grad()
def hidden_states(model: nn.Module, windows: Tensor, batch: int) -> Tensor:
    """[N, S, D] last hidden states of windows [N, S], in bfloat16."""
    parts = [model.model(window).last_hidden_state.bfloat16() for window in windows.split(batch)]
    return torch.cat(parts)


def distill(heads: Heads, lm_head: Tensor, hidden: Tensor) -> float:
    """Gradients of every head's cross-entropy against the model's distribution over hidden states
    [B, S, D]; the sum of the losses. Logits are computed in bfloat16, and of one head at a time:
    they are large."""
    with torch.no_grad():
        teacher = (hidden @ lm_head.T).float().softmax(-1)
    total = 0.0
    for head in range(len(heads.blocks)):
        ahead = head + 1
        guess = heads(hidden[:, :-ahead].float(), head).bfloat16() @ lm_head.T
        target = teacher[:, ahead:]
        loss = F.cross_entropy(guess.float().flatten(0, 1), target.flatten(0, 1))
        loss.backward()
        total += loss.item()
    return total


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
        optimizer.zero_grad()
        loss = distill(heads, lm_head.bfloat16(), hidden[chosen])
        optimizer.step()
        if step % 20 == 0 or step + 1 == arguments.steps:
            print(f"step {step} loss {loss:.4f} {time.time() - started:.0f} s", flush=True)


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
    parser.add_argument("--own", type=Path, help="artifact of the model; it writes the windows")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=400_000, help="most tokens of text")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8, help="windows a step")
    parser.add_argument("--rate", type=float, default=1e-3)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
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
    if arguments.own is not None:
        windows = own_windows(arguments.own, windows[:, :BEGINNING].tolist(), arguments.window)
        print("the model has gone on from their beginnings", flush=True)
    hidden = hidden_states(model, windows, arguments.batch)
    if arguments.own is not None:
        hidden = hidden[:, BEGINNING - 1 :]
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
