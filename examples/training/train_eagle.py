#!/usr/bin/env python3
"""Train an EAGLE-style draft layer for a frozen Hugging Face model, on a CPU in minutes.

    optc compile MODEL --recipe int8-fused -o ARTIFACT
    train_eagle.py MODEL --own ARTIFACT --text FILE.jsonl --source FOLDER --out MODEL-eagle

One decoder layer of the model's own kind guesses the model's next last hidden state (behind the
last norm) from its last one and the token that followed (EAGLE: Li et al., 2024, arXiv 2401.15077);
the model's own embedding and head, which stay frozen, read and write tokens:

    x[j] = fc([norm(embedding[token[j]]), norm(hidden[j - 1])]);  guess[j] = norm(layer(x)[j])

Behind its first guess a draft reads guesses in the place of hidden states. So training does, too
(EAGLE-3: Li et al., 2025, arXiv 2503.01840, "training-time test"): in part s of an unrolled step
each row's last s rows were computed from guesses, all rows before them from hidden states. The
target of every part is the model's own distribution. The row of a text's first token reads zeros in
the place of a hidden state, and of some windows so do the first rows, as they do where an engine
knows only keys and values of a prefix.

With ``--own`` an artifact of the model goes on from the beginnings of the windows of text
(``train_medusa.py`` says why) and from whole ``--prompts``; only guesses of what it says count.
Where OUT.work holds the state of a run with the same options it
goes on from there.

Writes ``eagle.safetensors`` (bf16: the layer and the last norm named as the model names its first
layer and its own norm, ``eagle.fc.weight [D, 2D]``, ``eagle.embedding_norm.weight [D]``,
``eagle.feature_norm.weight [D]``) and ``config.json`` with what was measured on windows that were
not trained on.

For models of Llama's layout: ``model.layers``, ``model.norm`` (an RMS norm), ``model.rotary_emb``.
Needs: torch, transformers, safetensors.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from eagle_loss import loss_of
from eagle_windows import Windows, prepare
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from train_medusa import HELD_BACK
from transformers import AutoModelForCausalLM, DynamicCache

from optc.compiling.training.device import Place, choose_precision

#: One window in this many begins with rows whose hidden states are not known.
WITHOUT = 8
#: Steps between two saved states.
SAVED = 50


class Draft(nn.Module):
    """The layer and what is around it; it starts as the model's last layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        decoder, width = model.model, model.config.hidden_size
        self.rotary, self.norm = decoder.rotary_emb, copy.deepcopy(decoder.norm)
        self.embedding_norm, self.feature_norm = copy.deepcopy(self.norm), copy.deepcopy(self.norm)
        for norm in (self.embedding_norm, self.feature_norm):
            nn.init.ones_(norm.weight)
        self.fc = nn.Linear(2 * width, width, bias=False)
        nn.init.normal_(self.fc.weight, std=0.02)
        self.fc.weight.data[:, width:] += torch.eye(width)
        self.layer = copy.deepcopy(decoder.layers[0])
        self.layer.load_state_dict(decoder.layers[-1].state_dict())

    def unroll(self, embedded: Tensor, hidden: Tensor, parts: int) -> list[Tensor]:
        """Guesses [B, S, D] of each part, from embedded tokens and hidden states [B, S, D]."""
        rotary = self.rotary(embedded, torch.arange(embedded.shape[1])[None])
        known, embedded = hidden, self.embedding_norm(embedded)
        cache, found = DynamicCache(), []
        for part in range(parts):
            before = F.pad(known[:, :-1], (0, 0, 1, 0))
            x = self.fc(torch.cat([embedded, self.feature_norm(before)], -1))
            x = self.layer(
                x,
                attention_mask=part_mask(x.shape[1], part),
                cache=cache,
                position_embeddings=rotary,
            )
            known = self.norm(x[0] if isinstance(x, tuple) else x)
            found.append(known)
        return found

    def named_tensors(self) -> dict[str, Tensor]:
        """By the names under which they are stored."""
        own = {f"model.layers.0.{name}": value for name, value in self.layer.state_dict().items()}
        own["model.norm.weight"] = self.norm.weight
        for name in ("fc", "embedding_norm", "feature_norm"):
            own[f"eagle.{name}.weight"] = getattr(self, name).weight
        return {name: value.detach() for name, value in own.items()}

    def tensors(self) -> dict[str, Tensor]:
        """As they are stored."""
        own = self.named_tensors()
        return {name: value.bfloat16().contiguous() for name, value in own.items()}

    def start_from(self, folder: Path) -> None:
        """Take the weights of a layer that was trained before."""
        stored = load_file(folder / "eagle.safetensors")
        for name, value in self.named_tensors().items():
            value.copy_(stored[name])


def part_mask(size: int, part: int) -> Tensor:
    """[1, 1, S, (part + 1) * S] what rows of a part see, 0 or minus infinity: rows of part 0 that
    lie more than ``part`` rows back, and of each part up to their own the one row in between."""
    row, column = torch.arange(size)[:, None], torch.arange(size)[None]
    seen = [column <= row - part]
    seen += [column == row - part + other for other in range(1, part + 1)]
    mask = torch.zeros(size, size * (part + 1))
    return mask.masked_fill(~torch.cat(seen, 1), -math.inf)[None, None]


def hide(hidden: Tensor) -> Tensor:
    """A copy of hidden states [B, S, D] in which some windows begin with zeros."""
    counts = torch.randint(1, hidden.shape[1], (len(hidden),))
    counts *= torch.randint(WITHOUT, counts.shape) == 0
    return hidden * (torch.arange(hidden.shape[1]) >= counts[:, None])[..., None]


@torch.no_grad()
def measure(
    draft: Draft, embedding: Tensor, lm_head: Tensor, windows: Windows, parts: int
) -> dict[str, object]:
    """Share of each of ``parts`` drafts in a row that is the model's most likely token, and tokens
    that a pass gives with them, where guesses count; of windows that were not trained on."""
    hits = []
    for chosen in torch.arange(len(windows)).split(8):
        some = windows.batch(chosen)
        best = (some.hidden @ lm_head.T).argmax(-1)
        guesses = draft.unroll(embedding[some.tokens], some.hidden, parts)
        right = [(guess @ lm_head.T).argmax(-1) == best for guess in guesses]
        chains = [each[:, part : each.shape[1] - parts + part] for part, each in enumerate(right)]
        hits.append(torch.stack(chains, -1)[some.counts()[:, :-parts]])
    held = torch.cat(hits).float()
    accepted = held.cumprod(-1).sum(-1).mean()
    return {
        "right": [round(float(share), 4) for share in held.mean(0)],
        "tokens_per_pass": round(1 + float(accepted), 3),
    }


def train(
    draft: Draft,
    embedding: Tensor,
    lm_head: Tensor,
    windows: Windows,
    arguments: argparse.Namespace,
    state_file: Path,
) -> None:
    """A cosine schedule of rates over random windows; goes on where ``state_file`` ends."""
    optimizers = optimizers_of(draft)

    def loss_at(place: Place, chosen: Tensor) -> Tensor:
        some = windows.batch(chosen)
        with place.autocast():
            guesses = draft.unroll(embedding[some.tokens], hide(some.hidden), arguments.parts)
        return loss_of(guesses, some, lm_head.to(getattr(torch, place.precision)))

    with torch.random.fork_rng():
        # processors without products in bfloat16 are many times slower with them
        probe = torch.arange(1)
        place = choose_precision(
            arguments.precision, "cpu", lambda place: loss_at(place, probe).backward()
        )
    print(f"products in {place.precision}", flush=True)
    first, started = 0, time.time()
    if state_file.exists():
        state = torch.load(state_file)
        draft.load_state_dict(state["draft"])
        for optimizer, kept in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        first = state["steps"]
        torch.set_rng_state(state["random"])
        print(f"goes on behind step {first}", flush=True)
    for step in range(first, arguments.steps):
        warm = min(1.0, (step + 1) / 20)
        part = (step + 1) / arguments.steps
        rate = arguments.rate * warm * 0.5 * (1 + math.cos(math.pi * part))
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = rate
        chosen = torch.randint(len(windows), (arguments.batch,))
        draft.zero_grad()
        loss = loss_at(place, chosen)
        loss.backward()
        nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        done = step + 1
        if done % SAVED == 0 or done == arguments.steps:
            save_state(draft, optimizers, done, state_file)
            took = time.time() - started
            left = took / (done - first) * (arguments.steps - done)
            print(f"step {done} loss {loss:.4f} {took:.0f} s, {left:.0f} s left", flush=True)


def optimizers_of(draft: Draft) -> list[torch.optim.Optimizer]:
    """Muon for matrices, at AdamW's rates, and AdamW for norms."""
    matrices = [weight for weight in draft.parameters() if weight.ndim == 2]
    norms = [weight for weight in draft.parameters() if weight.ndim == 1]
    return [
        torch.optim.Muon(matrices, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(norms, weight_decay=0.01),
    ]


def save_state(
    draft: Draft, optimizers: list[torch.optim.Optimizer], steps: int, file: Path
) -> None:
    """Replace the state of a run, so that there is always a whole one."""
    state = {
        "draft": draft.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "steps": steps,
        "random": torch.get_rng_state(),
    }
    torch.save(state, file.with_suffix(".new"))
    file.with_suffix(".new").replace(file)


def check_layout(model: nn.Module) -> None:
    """Refuse models whose layers are not called, or whose norm is not, as Llama's are."""
    decoder = getattr(model, "model", None)
    if not all(hasattr(decoder, name) for name in ("layers", "norm", "rotary_emb")):
        raise SystemExit("the model has no model.layers, model.norm and model.rotary_emb")
    x = torch.randn(2, model.config.hidden_size)
    expected = x * (x.square().mean(-1, keepdim=True)).rsqrt() * decoder.norm.weight
    if not torch.allclose(decoder.norm(x), expected, rtol=1e-3, atol=1e-3):
        raise SystemExit("the last norm of the model is no plain RMS norm")


def main() -> None:
    """Encode, cache the hidden states, train, measure, save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="JSON-lines files")
    parser.add_argument("--source", type=Path, nargs="*", default=[], help="folders of *.py")
    parser.add_argument("--exclude", type=Path, nargs="*", default=[], help="JSON-lines files")
    parser.add_argument("--own", type=Path, help="artifact of the model; it writes the windows")
    parser.add_argument(
        "--prompts", type=Path, nargs="*", default=[], help="JSON-lines files; with --own"
    )
    parser.add_argument("--start", type=Path, help="folder of a layer to train further")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", type=int, default=4, help="drafts in a row that are trained")
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=300_000, help="most tokens of text")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=6, help="windows a step")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument(
        "--precision",
        choices=("auto", "float32", "bfloat16"),
        default="auto",
        help="of products; auto is the faster one here",
    )
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
    check_layout(model)
    work = arguments.out.with_name(f"{arguments.out.name}.work")
    work.mkdir(parents=True, exist_ok=True)
    windows = prepare(model, arguments, work)
    embedding = model.get_input_embeddings().weight.detach()
    lm_head = model.get_output_embeddings().weight.detach()
    draft = Draft(model)
    if arguments.start is not None:
        draft.start_from(arguments.start)
    held = torch.arange(len(windows)) % HELD_BACK == 0
    train(draft, embedding, lm_head, windows.part(~held), arguments, work / "state.pt")
    measured = measure(draft, embedding, lm_head, windows.part(held), arguments.parts)
    print(json.dumps(measured))
    arguments.out.mkdir(parents=True, exist_ok=True)
    save_file(draft.tensors(), arguments.out / "eagle.safetensors")
    config = {"eagle_num_layers": 1, "measured": measured}
    (arguments.out / "config.json").write_text(json.dumps(config, indent=1) + "\n")


if __name__ == "__main__":
    main()
