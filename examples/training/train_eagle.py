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

With ``--own`` an artifact of the model goes on from the beginnings of the windows
(``train_medusa.py`` says why). Where OUT.work holds the state of a run with the same options it
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
from safetensors.torch import save_file
from torch import Tensor, nn
from train_medusa import HELD_BACK, hidden_states, own_windows, read_texts
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from optc.training.device import Place, choose_precision

#: A part of an unrolled step counts this much less than the part before it.
DECAY = 0.8
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

    def tensors(self) -> dict[str, Tensor]:
        """As they are stored."""
        own = {f"model.layers.0.{name}": value for name, value in self.layer.state_dict().items()}
        own["model.norm.weight"] = self.norm.weight
        for name in ("fc", "embedding_norm", "feature_norm"):
            own[f"eagle.{name}.weight"] = getattr(self, name).weight
        return {name: value.detach().bfloat16().contiguous() for name, value in own.items()}


def part_mask(size: int, part: int) -> Tensor:
    """[1, 1, S, (part + 1) * S] what rows of a part see, 0 or minus infinity: rows of part 0 that
    lie more than ``part`` rows back, and of each part up to their own the one row in between."""
    row, column = torch.arange(size)[:, None], torch.arange(size)[None]
    seen = [column <= row - part]
    seen += [column == row - part + other for other in range(1, part + 1)]
    mask = torch.zeros(size, size * (part + 1))
    return mask.masked_fill(~torch.cat(seen, 1), -math.inf)[None, None]


def loss_of(guesses: list[Tensor], hidden: Tensor, lm_head: Tensor) -> Tensor:
    """Cross-entropy of all parts against the model's distribution; the first rows of a part, which
    have too few rows before them, do not count."""
    with torch.no_grad():
        teacher = (hidden @ lm_head.T).float().softmax(-1)
    total = torch.zeros(())
    for part, guess in enumerate(guesses):
        logits = (guess[:, part:] @ lm_head.T).float().flatten(0, 1)
        total = total + DECAY**part * F.cross_entropy(logits, teacher[:, part:].flatten(0, 1))
    return total


def hide(hidden: Tensor) -> Tensor:
    """A copy of hidden states [B, S, D] in which some windows begin with zeros."""
    counts = torch.randint(1, hidden.shape[1], (len(hidden),))
    counts *= torch.randint(WITHOUT, counts.shape) == 0
    return hidden * (torch.arange(hidden.shape[1]) >= counts[:, None])[..., None]


@torch.no_grad()
def measure(
    draft: Draft, embedding: Tensor, lm_head: Tensor, windows: Tensor, hidden: Tensor, parts: int
) -> dict[str, object]:
    """How often each of ``parts`` drafts in a row is the model's most likely token, and tokens that
    a pass gives with them; ``hidden`` are those of windows that were not trained on."""
    hits = []
    for tokens, states in zip(windows.split(8), hidden.split(8), strict=True):
        states = states.float()
        best = (states @ lm_head.T).argmax(-1)
        guesses = draft.unroll(embedding[tokens], states, parts)
        right = [(guess @ lm_head.T).argmax(-1) == best for guess in guesses]
        chains = [each[:, part : each.shape[1] - parts + part] for part, each in enumerate(right)]
        hits.append(torch.stack(chains, -1).flatten(0, 1))
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
    windows: Tensor,
    hidden: Tensor,
    arguments: argparse.Namespace,
    state_file: Path,
) -> None:
    """AdamW with a cosine schedule over random windows; goes on where ``state_file`` ends."""
    optimizer = torch.optim.AdamW(draft.parameters(), lr=arguments.rate, weight_decay=0.01)

    def loss_at(place: Place, chosen: Tensor) -> Tensor:
        tokens, states = windows[chosen], hidden[chosen].float()
        with place.autocast():
            guesses = draft.unroll(embedding[tokens], hide(states), arguments.parts)
            return loss_of(guesses, states, lm_head)

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
        optimizer.load_state_dict(state["optimizer"])
        first = state["steps"]
        torch.set_rng_state(state["random"])
        print(f"goes on behind step {first}", flush=True)
    for step in range(first, arguments.steps):
        warm = min(1.0, (step + 1) / 20)
        for group in optimizer.param_groups:
            part = (step + 1) / arguments.steps
            group["lr"] = arguments.rate * warm * 0.5 * (1 + math.cos(math.pi * part))
        chosen = torch.randint(len(windows), (arguments.batch,))
        optimizer.zero_grad()
        loss = loss_at(place, chosen)
        loss.backward()
        nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        optimizer.step()
        done = step + 1
        if done % SAVED == 0 or done == arguments.steps:
            save_state(draft, optimizer, done, state_file)
            took = time.time() - started
            left = took / (done - first) * (arguments.steps - done)
            print(f"step {done} loss {loss:.4f} {took:.0f} s, {left:.0f} s left", flush=True)


def save_state(draft: Draft, optimizer: torch.optim.Optimizer, steps: int, file: Path) -> None:
    """Replace the state of a run, so that there is always a whole one."""
    state = {
        "draft": draft.state_dict(),
        "optimizer": optimizer.state_dict(),
        "steps": steps,
        "random": torch.get_rng_state(),
    }
    torch.save(state, file.with_suffix(".new"))
    file.with_suffix(".new").replace(file)


def prepare(model: nn.Module, arguments: argparse.Namespace, work: Path) -> tuple[Tensor, Tensor]:
    """Windows [N, S] of tokens and their hidden states [N, S, D]; kept in ``work``."""
    kept = work / "windows.pt"
    if kept.exists():
        windows, hidden = torch.load(kept)
        return windows, hidden
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    ids: list[int] = []
    for text in read_texts(arguments.text, arguments.source, arguments.exclude):
        encoded = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += [tokenizer.bos_token_id, *encoded, tokenizer.eos_token_id]
        if len(ids) >= arguments.tokens:
            break
    count = min(len(ids), arguments.tokens) // arguments.window
    windows = torch.tensor(ids[: count * arguments.window]).view(count, arguments.window)
    print(f"{count} windows of {arguments.window} tokens", flush=True)
    if arguments.own is not None:
        windows = own_windows(arguments.own, windows)
        print("the model has gone on from their beginnings", flush=True)
    hidden = hidden_states(model, windows, arguments.batch)
    torch.save((windows, hidden), kept)
    return windows, hidden


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
    windows, hidden = prepare(model, arguments, work)
    embedding = model.get_input_embeddings().weight.detach()
    lm_head = model.get_output_embeddings().weight.detach()
    draft = Draft(model)
    held = torch.arange(len(windows)) % HELD_BACK == 0
    own, rest = (windows[held], hidden[held]), (windows[~held], hidden[~held])
    train(draft, embedding, lm_head, *rest, arguments, work / "state.pt")
    measured = measure(draft, embedding, lm_head, *own, arguments.parts)
    print(json.dumps(measured))
    arguments.out.mkdir(parents=True, exist_ok=True)
    save_file(draft.tensors(), arguments.out / "eagle.safetensors")
    config = {"eagle_num_layers": 1, "measured": measured}
    (arguments.out / "config.json").write_text(json.dumps(config, indent=1) + "\n")


if __name__ == "__main__":
    main()
