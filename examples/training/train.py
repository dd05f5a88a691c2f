#!/usr/bin/env python3
# ruff: noqa: D101, D102, D103, N812
"""Train a small target/draft pair of Llama models on Python source code, on a CPU.

The pair exists so that an optimisation toolchain can be tested with weights that
were actually trained: perplexity after quantisation or pruning, and the acceptance
rate of a draft model, mean nothing on random weights.

Stages (each is resumable and deterministic apart from float summation order):

    train.py corpus     WORK --src DIR          split *.py files into train/ and eval/
    train.py tokenizer  WORK [--vocab 4096]     byte-level BPE -> WORK/tokenizer/
    train.py encode     WORK                    token ids -> WORK/{train,eval}.u16
    train.py train      WORK --model target     one time slice of training, resumes
                        --steps N --seconds S
    train.py export     WORK --model target --out DIR   HF directory (bf16 safetensors)

A slice ends after --seconds, writes a checkpoint, and exits 0 when more slices are
needed or 10 when the run is complete, so that a shell loop can drive it:

    until python train.py train WORK --model target --muon \\
          --steps 1500 --seconds 450; [ $? -eq 10 ]; do :; done

Needs: torch, tokenizers, safetensors, numpy.  transformers only to read the result.
"""

import argparse
import hashlib
import json
import math
import os
import pathlib
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

BOS, EOS, PAD = "<|begin_of_text|>", "<|end_of_text|>", "<|pad|>"
# The pre-tokeniser pattern of Llama 3: keeps runs of indentation together and glues
# newlines to the punctuation before them, which suits code.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

MODELS = {
    # hidden sizes are multiples of 128 so that every common quantisation group fits
    "target": {
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 64,
    },
    "draft": {
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
    },
}
COMMON = {
    "vocab_size": 4096,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
}


# ----------------------------------------------------------------------------- model
# Module names follow transformers' LlamaForCausalLM, so a state dict is a checkpoint.
class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


def rope_tables(cfg, length):
    dim = cfg["head_dim"]
    inv = cfg["rope_theta"] ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angle = torch.outer(torch.arange(length, dtype=torch.float32), inv)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + turned * sin


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        h, d = cfg["hidden_size"], cfg["head_dim"]
        self.nq, self.nkv, self.d = cfg["num_attention_heads"], cfg["num_key_value_heads"], d
        self.q_proj = nn.Linear(h, self.nq * d, bias=False)
        self.k_proj = nn.Linear(h, self.nkv * d, bias=False)
        self.v_proj = nn.Linear(h, self.nkv * d, bias=False)
        self.o_proj = nn.Linear(self.nq * d, h, bias=False)

    def forward(self, x, cos, sin, cache=None):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.nq, self.d).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.nkv, self.d).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.nkv, self.d).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mask = None
        if cache is not None:  # cache: {"k": .., "v": ..} or {}
            if "k" in cache:
                k = torch.cat([cache["k"], k], dim=2)
                v = torch.cat([cache["v"], v], dim=2)
            cache["k"], cache["v"] = k, v
            past = k.shape[2] - t
            mask = torch.ones(t, k.shape[2], dtype=torch.bool).tril(past)
        if self.nkv != self.nq:
            k = k.repeat_interleave(self.nq // self.nkv, dim=1)
            v = v.repeat_interleave(self.nq // self.nkv, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, self.nq * self.d))


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        h, i = cfg["hidden_size"], cfg["intermediate_size"]
        self.gate_proj = nn.Linear(h, i, bias=False)
        self.up_proj = nn.Linear(h, i, bias=False)
        self.down_proj = nn.Linear(i, h, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.input_layernorm = RMSNorm(cfg["hidden_size"], cfg["rms_norm_eps"])
        self.self_attn = Attention(cfg)
        self.post_attention_layernorm = RMSNorm(cfg["hidden_size"], cfg["rms_norm_eps"])
        self.mlp = MLP(cfg)

    def forward(self, x, cos, sin, cache=None):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed_tokens = nn.Embedding(cfg["vocab_size"], cfg["hidden_size"])
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(cfg["num_hidden_layers"]))
        self.norm = RMSNorm(cfg["hidden_size"], cfg["rms_norm_eps"])


class Llama(nn.Module):
    """Llama with tied embeddings; `caches` is a list of dicts, one per layer."""

    def __init__(self, cfg, seed=0):
        super().__init__()
        self.cfg = cfg
        self.model = Body(cfg)
        cos, sin = rope_tables(cfg, cfg["max_position_embeddings"])
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        gen = torch.Generator().manual_seed(seed)
        depth = cfg["num_hidden_layers"]
        for name, p in self.named_parameters():
            if p.dim() == 2:
                std = 0.02
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    std /= math.sqrt(2 * depth)
                with torch.no_grad():
                    p.normal_(0.0, std, generator=gen)

    def forward(self, ids, caches=None):
        past = 0
        if caches is not None and caches and "k" in caches[0]:
            past = caches[0]["k"].shape[2]
        t = ids.shape[1]
        cos, sin = self.cos[past : past + t], self.sin[past : past + t]
        x = self.model.embed_tokens(ids)
        if torch.is_autocast_enabled("cpu"):
            x = x.to(torch.get_autocast_dtype("cpu"))
            cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        for i, layer in enumerate(self.model.layers):
            x = layer(x, cos, sin, None if caches is None else caches[i])
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)

    def new_caches(self):
        return [{} for _ in self.model.layers]


def crop(caches, length):
    for c in caches:
        c["k"], c["v"] = c["k"][:, :, :length], c["v"][:, :, :length]


def config_of(name):
    return {**COMMON, **MODELS[name]}


# ------------------------------------------------------------------------------ data
SKIP_DIRS = {"test", "tests", "idle_test", "site-packages", "__pycache__", "_bundled", "_distutils"}


def skip_file(rel):
    """Machine-made tables: no use as text."""
    name = rel.name
    if rel.parts[0] == "encodings" and name.startswith(
        ("cp", "mac_", "iso8859", "koi8", "hp_", "kz1", "ptcp", "tis_", "palmos")
    ):
        return True
    return name.startswith("_sysconfigdata") or str(rel) in (
        "html/entities.py",
        "lib2to3/pgen2/grammar.py",
    )


def cmd_corpus(a):
    src, work = pathlib.Path(a.src), pathlib.Path(a.work)
    counts = {"train": [0, 0], "eval": [0, 0]}
    listing = {"train": [], "eval": []}
    for path in sorted(src.rglob("*.py")):
        rel = path.relative_to(src)
        if SKIP_DIRS & set(rel.parts) or skip_file(rel):
            continue
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        if len(text) < 200:
            continue
        digest = hashlib.sha256(str(rel).encode()).digest()
        held_out = digest[0] < 256 * a.eval_share and rel.parts[0] != "pydoc_data"
        part = "eval" if held_out else "train"
        counts[part][0] += 1
        counts[part][1] += len(text.encode())
        listing[part].append(str(rel))
    for name in a.package:  # more training text: installed packages, tests left out
        root = pathlib.Path(a.packages) / name
        for path in sorted(root.rglob("*.py")):
            rel = path.relative_to(a.packages)
            text = path.read_text("utf-8", errors="ignore")
            if (
                SKIP_DIRS & set(rel.parts)
                or "_vendor" in rel.parts
                or not 200 <= len(text) < 200_000
            ):
                continue
            counts["train"][0] += 1
            counts["train"][1] += len(text.encode())
            listing.setdefault("packages", []).append(str(rel))
    work.mkdir(parents=True, exist_ok=True)
    (work / "corpus.json").write_text(
        json.dumps({"src": str(src), "packages_dir": str(a.packages), **listing}, indent=1)
    )
    print({k: f"{n} files, {size} bytes" for k, (n, size) in counts.items()})


def documents(work, part):
    info = json.loads((work / "corpus.json").read_text())
    src = pathlib.Path(info["src"])
    for _ in range(2 if part == "train" and "packages" in info else 1):
        for rel in info[part]:
            yield (src / rel).read_text("utf-8")
    if part == "train":
        for rel in info.get("packages", []):
            yield (pathlib.Path(info["packages_dir"]) / rel).read_text("utf-8", errors="ignore")


def cmd_tokenizer(a):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    work = pathlib.Path(a.work)
    tok = Tokenizer(models.BPE(ignore_merges=False))
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(
        documents(work, "train"),
        trainers.BpeTrainer(
            vocab_size=a.vocab,
            special_tokens=[BOS, EOS, PAD],
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    bos = tok.token_to_id(BOS)
    tok.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, bos)]
            ),
        ]
    )
    out = work / "tokenizer"
    out.mkdir(exist_ok=True)
    tok.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": BOS,
                "eos_token": EOS,
                "pad_token": PAD,
                "model_max_length": COMMON["max_position_embeddings"],
                "clean_up_tokenization_spaces": False,
                "model_input_names": ["input_ids", "attention_mask"],
            },
            indent=2,
        )
        + "\n"
    )
    (out / "special_tokens_map.json").write_text(
        json.dumps({"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}, indent=2) + "\n"
    )
    print("vocabulary", tok.get_vocab_size())


def cmd_encode(a):
    from tokenizers import Tokenizer

    work = pathlib.Path(a.work)
    tok = Tokenizer.from_file(str(work / "tokenizer/tokenizer.json"))
    bos, eos = tok.token_to_id(BOS), tok.token_to_id(EOS)
    for part in ("train", "eval"):
        ids, size = [], 0
        for text in documents(work, part):
            size += len(text.encode())
            ids += [bos, *tok.encode(text, add_special_tokens=False).ids, eos]
        np.array(ids, dtype=np.uint16).tofile(work / f"{part}.u16")
        print(part, len(ids), "tokens,", round(size / len(ids), 3), "bytes per token")


class Windows:
    """Non-overlapping windows of the token stream, shuffled anew each epoch (the
    window grid is shifted by a random offset each time), as a function of the step."""

    def __init__(self, ids, length, batch, seed):
        self.ids, self.length, self.batch, self.seed = ids, length, batch, seed
        self.per_epoch = (len(ids) - 2 * length - 1) // length
        self.epoch = -1

    def __call__(self, step):
        rows = []
        for n in range(step * self.batch, (step + 1) * self.batch):
            epoch, index = divmod(n, self.per_epoch)
            if epoch != self.epoch:
                rng = np.random.default_rng([self.seed, epoch])
                self.shift = int(rng.integers(self.length))
                self.order = rng.permutation(self.per_epoch)
                self.epoch = epoch
            at = self.shift + int(self.order[index]) * self.length
            rows.append(self.ids[at : at + self.length + 1])
        block = torch.from_numpy(np.stack(rows).astype(np.int64))
        return block[:, :-1], block[:, 1:]


@torch.no_grad()
def eval_loss(model, ids, length=512, windows=40, bf16=False):
    """Mean nats per token over evenly spaced full windows of the held-out stream."""
    starts = np.linspace(0, len(ids) - length - 2, windows).astype(int)
    total = 0.0
    for at in range(0, windows, 8):
        rows = np.stack([ids[s : s + length + 1] for s in starts[at : at + 8]]).astype(np.int64)
        block = torch.from_numpy(rows)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = model(block[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), block[:, 1:].flatten())
        total += loss.item() * len(rows)
    return total / windows


# -------------------------------------------------------------------------- training
class Muon(torch.optim.Optimizer):
    """Momentum orthogonalized by five Newton-Schulz steps (K. Jordan et al., 2024), with
    the update's RMS scaled to AdamW's (Liu et al., 2025, arXiv 2502.16982)."""

    def __init__(self, params, lr, momentum=0.95, weight_decay=0.1):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
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


def rate(step, steps, peak, warmup):
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))))


def cmd_train(a):
    work = pathlib.Path(a.work)
    torch.set_num_threads(a.threads)
    begun = time.time()
    cfg = config_of(a.model)
    model = Llama(cfg, seed=a.seed)
    table = model.model.embed_tokens.weight
    decay = [p for p in model.parameters() if p.dim() == 2 and (p is table or not a.muon)]
    plain = [p for p in model.parameters() if p.dim() != 2]
    opts = [
        torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
            lr=a.lr,
            betas=(0.9, 0.95),
            eps=1e-8,
            fused=True,
        )
    ]
    if a.muon:
        opts.append(Muon([p for p in model.parameters() if p.dim() == 2 and p is not table], a.lr))
    ckpt, log = work / f"{a.model}.pt", work / f"{a.model}.log.jsonl"
    step, spent = 0, 0.0
    if ckpt.exists():
        state = torch.load(ckpt, weights_only=True)
        model.load_state_dict(state["model"])
        for opt, kept in zip(opts, state["opt"], strict=False):
            opt.load_state_dict(kept)
        step, spent = state["step"], state["spent"]
    teacher = None
    if a.teacher:  # distillation from an already trained model
        teacher = Llama(config_of(a.teacher))
        teacher.load_state_dict(torch.load(work / f"{a.teacher}.pt", weights_only=True)["model"])
        teacher.eval().requires_grad_(False)
    train_ids = np.fromfile(work / "train.u16", dtype=np.uint16)
    eval_ids = np.fromfile(work / "eval.u16", dtype=np.uint16)
    data = Windows(train_ids, a.length, a.batch, a.seed)
    run = torch.compile(model) if a.compile else model
    running, shown = 0.0, 0
    while step < a.steps and time.time() - begun < a.seconds:
        for group in (g for opt in opts for g in opt.param_groups):
            group["lr"] = rate(step, a.steps, a.lr, a.warmup)
        x, y = data(step)
        with torch.autocast("cpu", torch.bfloat16, enabled=not a.fp32):
            logits = run(x)
            distil = teacher is not None and step >= a.kd_from
            if distil:
                with torch.no_grad():
                    wanted = teacher(x)
        logits = logits.float().flatten(0, 1)
        loss = F.cross_entropy(logits, y.flatten())
        total = loss
        if distil:
            goal = F.log_softmax(wanted.float().flatten(0, 1), -1)
            kl = F.kl_div(F.log_softmax(logits, -1), goal, log_target=True, reduction="batchmean")
            total = a.kd * kl + (1 - a.kd) * loss
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=True)
        running, shown, step = running + loss.item(), shown + 1, step + 1
        if step % a.every == 0 or step == a.steps:
            line = {
                "step": step,
                "tokens": step * a.batch * a.length,
                "train": round(running / shown, 4),
                "lr": round(group["lr"], 6),
                "seconds": round(spent + time.time() - begun, 1),
            }
            if step % (a.every * 4) == 0 or step == a.steps:
                line["eval"] = round(eval_loss(model, eval_ids, a.length, bf16=not a.fp32), 4)
            with open(log, "a") as f:
                f.write(json.dumps(line) + "\n")
            print(line, flush=True)
            running, shown = 0.0, 0
    spent += time.time() - begun
    temporary = ckpt.with_suffix(".new")
    torch.save(
        {
            "model": model.state_dict(),
            "opt": [opt.state_dict() for opt in opts],
            "step": step,
            "spent": spent,
        },
        temporary,
    )
    os.replace(temporary, ckpt)
    print(f"step {step}/{a.steps}, {spent:.0f} s of training so far")
    return 10 if step >= a.steps else 0


def cmd_export(a):
    from safetensors.torch import save_file

    work, out = pathlib.Path(a.work), pathlib.Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    cfg = config_of(a.model)
    state = torch.load(work / f"{a.model}.pt", weights_only=True)
    tensors = {k: v.to(torch.bfloat16).contiguous() for k, v in state["model"].items()}
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    (out / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                **cfg,
                "hidden_act": "silu",
                "attention_bias": False,
                "mlp_bias": False,
                "attention_dropout": 0.0,
                "tie_word_embeddings": True,
                "initializer_range": 0.02,
                "bos_token_id": 0,
                "eos_token_id": 1,
                "pad_token_id": 2,
                "pretraining_tp": 1,
                "rope_scaling": None,
                "use_cache": True,
                "torch_dtype": "bfloat16",
            },
            indent=2,
        )
        + "\n"
    )
    (out / "generation_config.json").write_text(
        json.dumps({"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}, indent=2) + "\n"
    )
    for f in (work / "tokenizer").iterdir():
        (out / f.name).write_bytes(f.read_bytes())
    total = sum(v.numel() for v in tensors.values())
    print(out, f"{total} parameters, trained {state['step']} steps in {state['spent']:.0f} s")


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sub = p.add_subparsers(dest="cmd", required=True)
    for name in ("corpus", "tokenizer", "encode", "train", "export"):
        s = sub.add_parser(name)
        s.add_argument("work")
        if name == "corpus":
            s.add_argument("--src", required=True)
            s.add_argument("--packages", help="folder that holds the packages")
            s.add_argument(
                "--package", nargs="*", default=[], help="package names to train on as well"
            )
            s.add_argument("--eval-share", type=float, default=0.06)
        if name == "tokenizer":
            s.add_argument("--vocab", type=int, default=COMMON["vocab_size"])
        if name in ("train", "export"):
            s.add_argument("--model", choices=MODELS, required=True)
        if name == "export":
            s.add_argument("--out", required=True)
        if name == "train":
            s.add_argument("--steps", type=int, required=True)
            s.add_argument("--seconds", type=float, default=450)
            s.add_argument("--batch", type=int, default=8)
            s.add_argument("--length", type=int, default=512)
            s.add_argument("--lr", type=float, default=1.5e-3)
            s.add_argument("--warmup", type=int, default=60)
            s.add_argument("--every", type=int, default=25)
            s.add_argument("--seed", type=int, default=0)
            s.add_argument("--threads", type=int, default=2)
            s.add_argument(
                "--muon", action="store_true", help="Muon for the matrices of the layers"
            )
            s.add_argument("--fp32", action="store_true", help="no bf16 autocast")
            s.add_argument("--compile", action="store_true", help="use torch.compile")
            s.add_argument("--teacher", choices=MODELS, help="distil from this trained model")
            s.add_argument("--kd", type=float, default=0.5, help="weight of the distillation loss")
            s.add_argument("--kd-from", type=int, default=0, help="first step that distils")
    a = p.parse_args()
    return globals()[f"cmd_{a.cmd}"](a) or 0


if __name__ == "__main__":
    sys.exit(main())
