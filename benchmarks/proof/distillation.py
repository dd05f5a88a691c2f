"""The loss that training wins back: distillation of pruned models, and quantization-aware training.

    python -m benchmarks.proof.distillation POOL.jsonl [--only NAME] [--work DIR] [--json FILE]

POOL.jsonl is what ``benchmarks.inputs.build_text_pool`` writes. On ``examples/models/pycode``,
weights alone, over 60 windows of 512 tokens spread over the held-out text: mean KL in nats a token
to the float32 model, top-1 agreement and perplexity, at the start and behind the training; and what
is left of the start's KL, and which share of the gap in perplexity is won back. The text that
training stops by is the held-out one, too: 16 windows of it. Rows that FILE has already are kept; a
training that was stopped goes on from its checkpoints in DIR.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it

from optc.compiling.training.distill import distill
from optc.compiling.training.executor import DenseExecutor
from optc.compiling.training.losses import Runner
from optc.compiling.training.qat import qat, quantized_weights
from optc.compiling.training.student import pruned_student, rounded_student
from optc.importer.additions.trained import read_trained
from optc.ir.linear import find_linears
from optc.ir.quantized_rows import QuantizedTile
from optc.ir.tensors import model_tensors
from optc.passes.numerics.affine import dequantize_rows
from optc.proof.conversations.tokens import token_stream
from optc.proof.reference.text import cut_windows, read_documents
from optc.system.options.training_options import DistillOptions, QatOptions, TrainingOptions
from optc.system.progress import no_progress

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/models/pycode"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"
TEXT = ROOT / "examples/text/code_heldout.jsonl"
WINDOWS, WINDOW_TOKENS = 60, 512


@dataclass(frozen=True)
class Trial:
    """One training.

    Attributes:
        recipe: What makes the student.
        rate: Learning rate.
        tokens: To train on; None is for as long as the minutes last.
        minutes: Of one core that does nothing else; None is until all tokens were trained on.
        sets: Options of the recipe's passes.
        rounded: By ``optc qat``, not ``optc distill``.
        pooled: Calibrated on the text to train on, not on the shipped calibration text.
    """

    recipe: str
    rate: str
    tokens: str | None = None
    minutes: str | None = None
    sets: tuple[str, ...] = ()
    rounded: bool = False
    pooled: bool = False


TRIALS = {
    "two bits in groups of 32": Trial("int2-fused", "5e-4", tokens="200k", rounded=True),
    "two bits, calibrated on four times the text": Trial(
        "int2-fused",
        "5e-4",
        tokens="320k",
        sets=("propagate-errors.windows=256",),
        rounded=True,
        pooled=True,
    ),
    "one layer of six removed": Trial(
        "prune-depth-int8",
        "2e-4",
        minutes="7",
        sets=("prune-depth.units=layers", "prune-depth.target=0.9x"),
    ),
    "a quarter of the MLP neurons removed": Trial("prune-width-int8", "2e-4", minutes="7"),
}


@torch.no_grad()
def scores(teacher: ir.Model, student: ir.Model, ids: torch.Tensor) -> dict[str, float]:
    """Of windows [W, S + 1]: KL, top-1 agreement, perplexity, and that of the teacher."""
    runners = []
    for model in (teacher, student):
        executor = DenseExecutor(model)
        runners.append(Runner(executor, executor.effective()))
    sums = torch.zeros(4, dtype=torch.float64)
    for row in ids:
        theirs, ours = (one.log_probabilities(one.hidden(row[None, :-1])[0]) for one in runners)
        target = row[1:, None]
        sums[0] += F.kl_div(ours, theirs, reduction="sum", log_target=True)
        sums[1] += (ours.argmax(-1) == theirs.argmax(-1)).sum()
        sums[2] -= ours.gather(1, target).sum()
        sums[3] -= theirs.gather(1, target).sum()
    kl, agree, ours_nll, theirs_nll = (sums / ids[:, 1:].numel()).tolist()
    perplexities = torch.tensor([ours_nll, theirs_nll]).exp().tolist()
    return {
        "kl_mean": kl,
        "top1_agreement": agree,
        "perplexity": perplexities[0],
        "reference_perplexity": perplexities[1],
    }


def held_out() -> torch.Tensor:
    """Windows [W, S + 1] of the held-out text."""
    config = json.loads((MODEL / "config.json").read_text())
    frame = config["bos_token_id"], config["eos_token_id"]
    stream = token_stream(read_documents(TEXT), MODEL / "tokenizer.json", *frame)
    return torch.from_numpy(cut_windows(stream, WINDOW_TOKENS, WINDOWS, frame[0]).astype("int64"))


def models_of(trial: Trial, asked: TrainingOptions) -> tuple[ir.Model, ir.Model, ir.Model]:
    """The teacher, and the student before it is trained and behind it, as float models."""
    grids: dict[str, QuantizedTile] = {}
    if trial.rounded:
        student, rounded = rounded_student(MODEL, asked, no_progress, _unchecked)
        wholes = quantized_weights(rounded)
        grids = {name: one.read(0, one.rows) for name, one in wholes.items()}
        sizes = {name: one.group_size for name, one in wholes.items()}
    else:
        student, sizes = pruned_student(MODEL, asked, no_progress, _unchecked), {}
    after = student.model.clone()
    _put(student.model, grids, sizes)
    assert asked.output is not None
    trained = read_trained(asked.output)
    tensors = {str(v.name): one for one in model_tensors(after) for v in one.initializers}
    for name, stored in trained.tensors.items():
        tensors[name].replace(stored.read_rows)
    _put(after, {name: one.tile for name, one in trained.rounded.items()}, sizes)
    return student.source, student.model, after


def _put(model: ir.Model, tiles: dict[str, QuantizedTile], sizes: dict[str, int]) -> None:
    """Let linear layers, and embeddings tied to them, read what rounded rows stand for."""
    tensors = {str(v.name): one for one in model_tensors(model) for v in one.initializers}
    for linear in find_linears(model):
        if linear.name in tiles:
            rows = dequantize_rows(tiles[linear.name], sizes[linear.name])
            tensors[linear.name].replace(partial(_cut, rows))


def _cut(rows: npt.NDArray[np.float32], start: int, stop: int) -> npt.NDArray[np.float32]:
    return rows[start:stop]


def row_of(name: str, pool: Path, scratch: Path) -> dict[str, Any]:
    """Train once, and score."""
    trial = TRIALS[name]
    common: dict[str, Any] = {
        "text": [str(pool)],
        "output": scratch / "trained",
        "recipe": trial.recipe,
        "set": trial.sets,
        "calibration": pool if trial.pooled else CALIBRATION,
        "calibration_cache": scratch / "calibrations",
        "heldout": TEXT,
        **({"tokens": trial.tokens} if trial.tokens else {}),
        "minutes": trial.minutes,
        "rate": trial.rate,
        "threads": 1,
    }
    asked: TrainingOptions = QatOptions(**common) if trial.rounded else DistillOptions(**common)
    if not (scratch / "trained").exists():
        if isinstance(asked, QatOptions):
            qat(MODEL, asked, progress=_told)
        elif isinstance(asked, DistillOptions):
            distill(MODEL, asked, progress=_told)
    teacher, before, after = models_of(trial, asked)
    ids = held_out()
    start, end = scores(teacher, before, ids), scores(teacher, after, ids)
    reference = start["reference_perplexity"]
    figures = read_trained(scratch / "trained").stated
    return {
        "name": name,
        "recipe": trial.recipe,
        "set": list(trial.sets),
        "rate": trial.rate,
        "minutes": trial.minutes,
        "tokens": figures["tokens"],
        **{key: figures["settings"][key] for key in ("window", "batch")},
        "precision": figures["precision"],
        "steps": figures["steps"],
        "best_step": figures["best_step"],
        "start": start,
        "end": end,
        "kl_over_start": end["kl_mean"] / start["kl_mean"],
        "perplexity_gap_won": (start["perplexity"] - end["perplexity"])
        / (start["perplexity"] - reference),
        "evaluations": figures["evaluations"],
    }


def _unchecked(*_: object) -> None:
    """Memory is not limited here."""


def _told(stage: str, done: int, total: int) -> None:
    print(f"{stage} {done}/{total}", flush=True)


def main() -> None:
    """Train what is asked for, and print a line for each."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof.distillation", description=__doc__)
    parser.add_argument("pool", type=Path)
    parser.add_argument("--only", choices=list(TRIALS), action="append")
    parser.add_argument("--work", type=Path, help="keeps checkpoints and calibrations")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = json.loads(args.json.read_text()) if args.json and args.json.is_file() else []
    for name in args.only or TRIALS:
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(args.work or folder) / name.replace(" ", "-")
            scratch.mkdir(parents=True, exist_ok=True)
            row = row_of(name, args.pool, scratch)
        rows = [one for one in rows if one["name"] != name] + [row]
        print(json.dumps({k: v for k, v in row.items() if k != "evaluations"}), flush=True)
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
