"""Train a byte-level BPE tokenizer of any size on the Python files below a folder.

    python -m benchmarks.inputs.build_tokenizer SIZE FOLDER OUTPUT

For measurements that depend on the size of a vocabulary. It reads 50 MB, spread over the folder;
an environment's ``site-packages`` suffices for 128,256 tokens (a minute).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

TRAINING_BYTES = 50_000_000


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    built = tokenizers.Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=args.size,
        min_frequency=1,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    built.train([str(path) for path in training_files(args.folder)], trainer)
    built.save(str(args.output))
    print(f"{built.get_vocab_size()} tokens in {args.output}")


def training_files(folder: Path) -> list[Path]:
    """Python files spread over the folder, as many as hold the bytes for training."""
    found = sorted(path for path in folder.rglob("*.py") if path.is_file())
    order = np.random.default_rng(0).permutation(len(found))
    sizes = np.cumsum([found[index].stat().st_size for index in order])
    count = int(np.searchsorted(sizes, TRAINING_BYTES)) + 1
    return [found[index] for index in order[:count]]


if __name__ == "__main__":
    main()
