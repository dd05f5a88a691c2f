"""One time slice of training, from checkpoint to checkpoint."""

from __future__ import annotations

import json
import os
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from .batches import Windows, eval_loss
from .llama import Llama
from .optimizers import learning_rate, make_optimizers
from .sizes import config_of

#: Exit code of a slice after which the run is complete.
COMPLETE = 10


def train(options: Namespace) -> int:
    """Train for ``options.seconds``; `COMPLETE` once all steps are done, else 0."""
    torch.set_num_threads(options.threads)
    run = _Slice(options)
    while run.step < options.steps and run.elapsed < options.seconds:
        run.train_step()
        if run.step % options.every == 0 or run.step == options.steps:
            run.log()
    run.save()
    print(f"step {run.step}/{options.steps}, {run.spent:.0f} s of training so far")
    return COMPLETE if run.step >= options.steps else 0


class _Slice:
    """Model, optimizers and data; goes on where the checkpoint in the work folder ends."""

    def __init__(self, options: Namespace) -> None:
        self.begun = time.time()
        self.options = options
        self.work = Path(options.work)
        self.model = Llama(config_of(options.model), seed=options.seed)
        self.optimizers = make_optimizers(self.model, options.lr, options.muon)
        self.checkpoint = self.work / f"{options.model}.pt"
        self.step, self.spent = 0, 0.0
        if self.checkpoint.exists():
            self._resume()
        self.teacher = None if options.teacher is None else self._teacher()
        ids = np.fromfile(self.work / "train.u16", dtype=np.uint16)
        self.data = Windows(ids, options.length, options.batch, options.seed)
        self.eval_ids = np.fromfile(self.work / "eval.u16", dtype=np.uint16)
        self.forward = torch.compile(self.model) if options.compile else self.model
        self.losses: list[float] = []  # since the last line of the log

    @property
    def elapsed(self) -> float:
        """Seconds of this slice."""
        return time.time() - self.begun

    def train_step(self) -> None:
        """One update of the weights."""
        options = self.options
        self.rate = learning_rate(self.step, options.steps, options.lr, options.warmup)
        for group in (group for o in self.optimizers for group in o.param_groups):
            group["lr"] = self.rate
        inputs, targets = self.data(self.step)
        loss, goal = self._losses(inputs, targets)
        goal.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.item())
        self.step += 1

    def log(self) -> None:
        """Print a line and add it to the log; every fourth has the held-out loss."""
        options = self.options
        line = {
            "step": self.step,
            "tokens": self.step * options.batch * options.length,
            "train": round(sum(self.losses) / len(self.losses), 4),
            "lr": round(self.rate, 6),
            "seconds": round(self.spent + self.elapsed, 1),
        }
        if self.step % (options.every * 4) == 0 or self.step == options.steps:
            loss = eval_loss(self.model, self.eval_ids, options.length, bf16=not options.fp32)
            line["eval"] = round(loss, 4)
        with (self.work / f"{options.model}.log.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)
        self.losses.clear()

    def save(self) -> None:
        """Replace the checkpoint."""
        self.spent += self.elapsed
        state = {
            "model": self.model.state_dict(),
            "opt": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "spent": self.spent,
        }
        temporary = self.checkpoint.with_suffix(".new")
        torch.save(state, temporary)
        os.replace(temporary, self.checkpoint)

    def _resume(self) -> None:
        state = torch.load(self.checkpoint, weights_only=True)
        self.model.load_state_dict(state["model"])
        # A run may go on with another set of optimizers.
        for optimizer, kept in zip(self.optimizers, state["opt"], strict=False):
            optimizer.load_state_dict(kept)
        self.step, self.spent = state["step"], state["spent"]

    def _teacher(self) -> Llama:
        """An already trained model to distil from (Hinton et al., 2015)."""
        name = self.options.teacher
        teacher = Llama(config_of(name))
        teacher.load_state_dict(torch.load(self.work / f"{name}.pt", weights_only=True)["model"])
        teacher.eval().requires_grad_(False)
        return teacher

    def _losses(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy, and what is minimized: with a teacher also the distance from it."""
        options = self.options
        distil = self.teacher is not None and self.step >= options.kd_from
        with torch.autocast("cpu", torch.bfloat16, enabled=not options.fp32):
            logits = self.forward(inputs)
            if distil:
                with torch.no_grad():
                    wanted = self.teacher(inputs)
        logits = logits.float().flatten(0, 1)
        loss = F.cross_entropy(logits, targets.flatten())
        if not distil:
            return loss, loss
        goal = F.log_softmax(wanted.float().flatten(0, 1), -1)
        kl = F.kl_div(F.log_softmax(logits, -1), goal, log_target=True, reduction="batchmean")
        return loss, options.kd * kl + (1 - options.kd) * loss
