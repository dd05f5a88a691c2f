"""CTranslate2's Generator, static batches: ``MODEL_FOLDER THREADS``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from serving import scoring, serve


class Translator:
    """One model, computed as it is stored: int8 with the rest in float32, or float32; ids are given
    as tokens of its vocabulary."""

    def __init__(self, folder: str, threads: int) -> None:
        self.model = ctranslate2.Generator(
            folder, device="cpu", compute_type="default", intra_threads=threads
        )
        self.vocabulary = vocabulary_of(folder)

    def texts(self, prompts: list[list[int]]) -> list[list[str]]:
        """Prompts in words of the vocabulary."""
        return [[self.vocabulary[token] for token in prompt] for prompt in prompts]

    def generate(self, prompts: list[list[int]], new: int) -> float:
        """Seconds for ``new`` greedy tokens of each prompt; no token ends it."""
        start = time.perf_counter()
        self.model.generate_batch(
            self.texts(prompts), min_length=new, max_length=new, sampling_topk=1, end_token=[],
            include_prompt_in_result=False,
        )  # fmt: skip
        return time.perf_counter() - start

    def prefill(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time one prompt up to its first token."""
        return {"seconds": self.generate([request["tokens"]], 1)}

    def decode(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time greedy decoding of several sequences together: all less the prompts'."""
        first = self.generate(request["prompts"], 1)
        return {"seconds": self.generate(request["prompts"], request["new"] + 1) - first}

    def logits(self, tokens: list[int]) -> Any:
        """Logarithms of probabilities [S, V] of one prompt: logits less a number in each row."""
        found = self.model.forward_batch(self.texts([tokens]), return_log_probs=True)
        return np.asarray(found)[0]


def vocabulary_of(folder: str) -> list[str]:
    """The converter's vocabulary by id."""
    return list(json.loads((Path(folder) / "vocabulary.json").read_text()))


def main() -> None:
    peer = Translator(sys.argv[1], int(sys.argv[2]))
    operations = {"prefill": peer.prefill, "decode": peer.decode, **scoring(peer.logits)}
    serve(operations, {"name": "CTranslate2", "version": ctranslate2.__version__})


if __name__ == "__main__":
    main()
