#!/usr/bin/env python3
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

from __future__ import annotations

import argparse
import sys

from pair.corpus import write_corpus
from pair.export import export
from pair.sizes import COMMON, MODELS
from pair.tokenizer import encode, train_tokenizer
from pair.training import train

STAGES = {
    "corpus": write_corpus,
    "tokenizer": train_tokenizer,
    "encode": encode,
    "train": train,
    "export": export,
}


def main() -> int:
    """Run the stage that the command line names; its exit code."""
    options = make_parser().parse_args()
    return STAGES[options.stage](options) or 0


def make_parser() -> argparse.ArgumentParser:
    """The command line: a sub-command for each stage."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    stages = parser.add_subparsers(dest="stage", required=True)
    add = {name: stages.add_parser(name) for name in STAGES}
    for stage in add.values():
        stage.add_argument("work")
    corpus = add["corpus"]
    corpus.add_argument("--src", required=True)
    corpus.add_argument("--packages", help="folder that holds the packages")
    corpus.add_argument(
        "--package", nargs="*", default=[], help="package names to train on as well"
    )
    corpus.add_argument("--eval-share", type=float, default=0.06)
    add["tokenizer"].add_argument("--vocab", type=int, default=COMMON["vocab_size"])
    add["export"].add_argument("--model", choices=MODELS, required=True)
    add["export"].add_argument("--out", required=True)
    add_training_options(add["train"])
    return parser


def add_training_options(stage: argparse.ArgumentParser) -> None:
    """Options of the stage ``train``."""
    stage.add_argument("--model", choices=MODELS, required=True)
    stage.add_argument("--steps", type=int, required=True)
    stage.add_argument("--seconds", type=float, default=450)
    stage.add_argument("--batch", type=int, default=8)
    stage.add_argument("--length", type=int, default=512)
    stage.add_argument("--lr", type=float, default=1.5e-3)
    stage.add_argument("--warmup", type=int, default=60)
    stage.add_argument("--every", type=int, default=25)
    stage.add_argument("--seed", type=int, default=0)
    stage.add_argument("--threads", type=int, default=2)
    stage.add_argument("--muon", action="store_true", help="Muon for the matrices of the layers")
    stage.add_argument("--fp32", action="store_true", help="no bf16 autocast")
    stage.add_argument("--compile", action="store_true", help="use torch.compile")
    stage.add_argument("--teacher", choices=MODELS, help="distil from this trained model")
    stage.add_argument("--kd", type=float, default=0.5, help="weight of the distillation loss")
    stage.add_argument("--kd-from", type=int, default=0, help="first step that distils")


if __name__ == "__main__":
    sys.exit(main())
